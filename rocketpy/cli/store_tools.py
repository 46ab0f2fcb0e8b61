"""`rocketpy store dump|verify|stats|backup`: print, check and copy a store directory, which is only read; progress is
shown on a terminal.

Exit status: 0 sound, 1 damaged, 2 cannot be read (`_look` in command_line.py turns errors into it).
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocketpy.admin.output import echo, harmless
from rocketpy.errors import StoreError
from rocketpy.store.backup.backup import back_up
from rocketpy.store.inspection.dump import (
    StoreDump,
    damage_fields,
    describe_damage,
    describe_entry,
    describe_record,
    describe_unit,
    entry_fields,
    header_line,
    record_fields,
    state_fields,
    unit_fields,
)
from rocketpy.store.inspection.findings import UNCHECKED_FIELDS
from rocketpy.store.inspection.reader import Damage, guess_slots
from rocketpy.store.inspection.state_files import StoreState
from rocketpy.store.inspection.verify import StoreStats, VerifyReport, count_store, verify_store

from .store_progress import StoreProgress

SHOWS = ("records", "units", "index", "state")
PROBLEMS_SHOWN = 50
TOPICS_SHOWN = 30
Line = tuple[str, dict[str, Any]]  # for people, for programs


@attrs.frozen
class Selection:
    """The selection of records, units or entries to print."""

    show: str | None = None  # of SHOWS; None: units if a queue is named, else records
    topic: str | None = None
    queue_id: int | None = None
    start: int = 0  # log offset, queue offset, or number in the index
    count: int = 100
    as_json: bool = False
    slots: int | None = None


def dump(directory: Path, wanted: Selection, commitlog: str = "") -> int:
    """Print the selection, one line each; at most `count` lines. Tell of a topic without records.

    Raises:
        StoreError: no such directory or queue.
    """
    store = StoreDump(directory, commitlog)
    show = wanted.show or ("records" if wanted.queue_id is None else "units")
    sources = {"records": _record_lines, "units": _unit_lines, "index": _index_lines, "state": _state_lines}
    damaged, printed = False, 0
    for text, fields in itertools.islice(sources[show](store, wanted), wanted.count):
        echo(json.dumps(fields, ensure_ascii=False) if wanted.as_json else text)
        damaged, printed = damaged or "damage" in fields, printed + 1
    if not printed and wanted.count and show == "records" and wanted.topic is not None and wanted.queue_id is None:
        place = f"from log offset {wanted.start} on" if wanted.start else "in the log"
        echo(f"no record of topic {wanted.topic} {place}; `rocketpy store stats {directory}` lists topics", err=True)
    return int(damaged)


def verify(directory: Path, *, as_json: bool = False, slots: int | None = None, commitlog: str = "") -> int:
    """Check a store and print the findings; returns 1 if anything is damaged. Each finding names its file and byte."""
    reader = StoreDump(directory, commitlog)
    began_s = time.monotonic()
    with StoreProgress() as progress:
        report = verify_store(reader, progress, slots=slots)
    print_report(report, time.monotonic() - began_s, as_json)
    return int(bool(report.problems))


def stats(directory: Path, *, as_json: bool = False, commitlog: str = "") -> int:
    """Print sizes, offsets, times, and messages by topic."""
    reader = StoreDump(directory, commitlog)
    with StoreProgress() as progress:
        found = count_store(reader, progress)
    if as_json:
        fields = attrs.asdict(found, filter=lambda attribute, _: attribute.name != "state")
        echo(json.dumps(fields | {"state": state_fields(found.state)}, ensure_ascii=False))
        return 0
    console = Console()
    console.print(_stats_table(str(directory), found))
    if found.topics:
        console.print(_topics_table(found))
    return 0


def backup(
    directory: Path, target: Path, *, keep: int | None = None, slots: int | None = None, commitlog: str = ""
) -> int:
    """Copy a store, also of a running broker, and print what the copy has; returns 1 if anything in it is damaged."""
    with StoreProgress() as progress:
        made = back_up(directory, target, commitlog, keep=keep, slots=slots, listener=progress)
    print_report(made.report, made.seconds, as_json=False)
    if not made.is_complete:
        check = f"rocketpy store verify {directory}" + (f" --commitlog {commitlog}" if commitlog else "")
        echo(f"{made.path} is no backup; remove it and repeat, if `{check}` finds no damage")
        return 1
    report, shared = made.report, f"; {made.linked_bytes / 1e6:.0f} MB are shared with the copy before"
    echo(
        f"backup {made.path}: {report.records} messages up to log offset {report.log_end}, the last stored at "
        f"{_time(report.last_store_timestamp_ms)}" + (shared if made.linked_bytes else "")
    )
    return 0


# --- dump ---


def _record_lines(store: StoreDump, wanted: Selection) -> Iterator[Line]:
    for found in store.walk(wanted.start, check_crc=True):
        if isinstance(found, Damage):
            yield describe_damage(found), damage_fields(found)
        elif wanted.topic in (None, found.topic) and wanted.queue_id in (None, found.queue_id):
            yield describe_record(found), record_fields(found)


def _unit_lines(store: StoreDump, wanted: Selection) -> Iterator[Line]:
    queues = store.queues(wanted.topic, wanted.queue_id)
    first = next(queues, None)
    if first is None and (wanted.topic, wanted.queue_id) != (None, None):
        name = wanted.topic or "any topic"
        what = f"queue {wanted.queue_id} of {name}" if wanted.queue_id is not None else f"topic {name}"
        raise StoreError(f"{store.paths.consumequeue} has no {what}")
    for queue in itertools.chain([first] if first else [], queues):
        prefix = "" if wanted.topic is not None and wanted.queue_id is not None else f"{queue.name} "
        for offset, unit in store.units(queue, wanted.start):
            if offset >= wanted.start:
                ext = store.ext_unit(queue, unit)
                yield prefix + describe_unit(offset, unit, ext), unit_fields(queue, offset, unit, ext)


def _index_lines(store: StoreDump, wanted: Selection) -> Iterator[Line]:
    for path, header in store.index_headers():
        if header is None:
            continue
        yield header_line(path, header), {"file": path.name} | attrs.asdict(header)
        info = store.files.info(path)
        slots = wanted.slots or guess_slots(info.size if info else 0)
        if slots is None:
            raise StoreError(f"{path}: cannot determine its number of hash slots; give --hash-slots (maxHashSlotNum)")
        for entry in store.index_entries(path, slots):
            if entry.number >= wanted.start:
                yield describe_entry(entry), entry_fields(path, entry)


def _state_lines(store: StoreDump, wanted: Selection) -> Iterator[Line]:
    fields = state_fields(store.state())
    if wanted.as_json:
        yield "", fields
        return
    for name, value in fields.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for key, part in inner:
            yield f"{f'{name} {key}'.strip()}: {part}", {}


# --- verify and stats ---


def print_report(report: VerifyReport, seconds: float, as_json: bool) -> None:
    """Print what a check has found."""
    if as_json:
        fields = attrs.asdict(report, filter=lambda attribute, _: attribute.name != "state")
        fields |= {"sound": not report.problems, "unchecked_fields": UNCHECKED_FIELDS}
        echo(json.dumps(fields | {"state": state_fields(report.state)}))
        return
    size = report.log_end - report.log_begin
    echo(
        f"{report.records} records, {report.units} units in {report.queues} queues, {report.index_units} index units; "
        f"log from {report.log_begin} to {report.log_end}; {size / 1e6:.0f} MB in {seconds:.1f} s"
    )
    for note in report.notes:
        echo(f"note: {note}")
    for problem in report.problems[:PROBLEMS_SHOWN]:
        echo(f"{problem.code} {problem}")
    if len(report.problems) > PROBLEMS_SHOWN:
        echo(f"... and {len(report.problems) - PROBLEMS_SHOWN} more (--json shows all)")
    echo(f"not covered by a checksum or another file: {', '.join(UNCHECKED_FIELDS)}")
    echo("damaged" if report.problems else "sound")


def _stats_table(title: str, found: StoreStats) -> Table:
    table = Table(title=Text(title), title_justify="left", show_header=False)
    size = found.log_end - found.log_begin
    rows = {
        "log": f"{found.log_begin} to {found.log_end} ({size} bytes)",
        "records": f"{found.records} with {found.body_bytes} bytes of body",
        "first stored": _time(found.first_store_timestamp_ms),
        "last stored": _time(found.last_store_timestamp_ms),
        "queues": f"{found.queues} with {found.units} units",
        "index": f"{found.index_files} files with {found.index_keys} keys",
        "closed in order": _closed(found.state),
    }
    if found.state.checkpoint:
        times = attrs.astuple(found.state.checkpoint)
        rows["checkpoint"] = ", ".join(
            f"{name} {_time(ms or -1)}" for name, ms in zip(("log", "queues", "index"), times, strict=True)
        )
    rows["control"] = _control(found.state)
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _topics_table(found: StoreStats) -> Table:
    table = Table("topic", title="messages by topic", title_justify="left")
    for heading in ("queues", "messages", "bytes"):
        table.add_column(heading, justify="right")
    for topic in found.topics[:TOPICS_SHOWN]:
        table.add_row(Text(harmless(topic.topic)), str(topic.queues), str(topic.records), str(topic.bytes))
    if len(found.topics) > TOPICS_SHOWN:
        table.add_row(f"... and {len(found.topics) - TOPICS_SHOWN} more")
    return table


def _closed(state: StoreState) -> str:
    if state.in_use_by is not None:
        return f"no: in use by process {state.in_use_by}" if state.in_use_by else "no: in use"
    return "no: its broker was killed" if state.has_abort else "yes"


def _control(state: StoreState) -> str:
    control = state.control
    if control is None:
        return "none: the next start looks at the files"
    if not control.is_current:
        return "stale: another program has held the store since"
    boot = "this boot" if control.is_same_boot else "an earlier boot"
    return (
        f"of {boot}: published {control.published_phy_offset}, durable {control.durable_phy_offset}, "
        f"dispatched {control.dispatched_phy_offset}, {control.queue_count} queues"
    )


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "never"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms, which is no date"
