"""`rocketpy store dump|verify|stats`: a store directory printed and judged. Read-only; progress on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rocketpy.errors import StoreError
from rocketpy.store.consume_queue_ext import is_ext_address, real_offset
from rocketpy.store.dump import QueueDump, StoreDump, describe_record
from rocketpy.store.unit import ConsumeQueueUnit

PROBLEMS_SHOWN = 50


def dump(directory: Path, *, topic: str | None, queue_id: int | None, start: int, count: int) -> int:
    """Records from CommitLog offset `start` on, or the units of one queue; at most `count` lines.

    Raises:
        StoreError: no such directory, damage (with its offset), or no such queue.
    """
    store = StoreDump(directory)
    if queue_id is not None:
        if topic is None:
            raise StoreError("--queue needs --topic")
        for line in itertools.islice(_unit_lines(store, topic, queue_id), count):
            print(line)
        return 0
    records = (record for record in store.records(start) if topic in (None, record.topic))
    for record in itertools.islice(records, count):
        print(describe_record(record))
    return 0


def verify(directory: Path) -> int:
    """1 if anything is damaged; each finding names its file, queue or offset."""
    with _working(f"checking {directory}"):
        report = StoreDump(directory).verify()
    print(f"{report.records} records, {report.units} units, log ends at {report.log_end}")
    for problem in report.problems[:PROBLEMS_SHOWN]:
        print(problem)
    if len(report.problems) > PROBLEMS_SHOWN:
        print(f"... and {len(report.problems) - PROBLEMS_SHOWN} more")
    print("damaged" if report.problems else "sound")
    return int(bool(report.problems))


def stats(directory: Path) -> int:
    """Sizes, offsets and times in a table."""
    with _working(f"reading {directory}"):
        found = StoreDump(directory).stats()
    table = Table(title=str(directory), title_justify="left", show_header=False)
    rows = {
        "log": f"{found.log_begin} to {found.log_end} ({found.log_end - found.log_begin} bytes)",
        "records": f"{found.records} with {found.body_bytes} bytes of body",
        "first stored": _time(found.first_store_timestamp_ms),
        "last stored": _time(found.last_store_timestamp_ms),
        "queues": f"{found.queues} with {found.units} units",
        "index": f"{found.index_files} files with {found.index_keys} keys",
        "closed in order": "no: in use, or its broker was killed" if found.is_open else "yes",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    Console().print(table)
    return 0


def _unit_lines(store: StoreDump, topic: str, queue_id: int) -> Iterator[str]:
    queues = [queue for queue in store.queues() if (queue.topic, queue.queue_id) == (topic, queue_id)]
    if not queues:
        raise StoreError(f"{store.paths.consumequeue} has no queue {queue_id} of topic {topic}")
    queue: QueueDump = queues[0]
    for offset, unit in store.units(queue):
        yield f"{offset:>12} at {unit.phy_offset:>14} size {unit.size:>8} {_tags(store, queue, unit)}"


def _tags(store: StoreDump, queue: QueueDump, unit: ConsumeQueueUnit) -> str:
    """The third field, and what it leads to."""
    if not is_ext_address(unit.tags_code):
        return f"tags code {unit.tags_code}"
    place, ext = f"extension at {real_offset(unit.tags_code)}", store.ext_unit(queue, unit)
    if ext is None:
        return f"{place}, lost"
    bits = f" filter bits {ext.bitmap.hex()}" if ext.bitmap else ""
    return f"tags code {ext.tags_code} ({place}: stored={ext.store_timestamp_ms}{bits})"


def _time(timestamp_ms: int) -> str:
    return "never" if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "milliseconds")


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A spinner on standard error, where that is a terminal: a large store takes its time."""
    with Console(stderr=True).status(what):
        yield
