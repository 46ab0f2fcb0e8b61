"""The checks of verify.py in parts that can run in several processes, or on several machines that see the same files.

A part is a piece of the log, some queues, or an index file. What the log's parts say of a queue is joined (tally.py):
the report is that of one walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import attrs

from ..files import file_name
from .findings import Code, Findings, Inspected, NoListener, Problem, ProgressListener
from .index_check import IndexCheck
from .log_check import LogCheck, queue_offset_text
from .parts import NO_LIMIT, SPLIT_BYTES, LogPiece, RunParts, counted, cut_log, run_pieces
from .queue_check import QueueCheck
from .reader import QueueDirectory, StoreReader
from .state_files import StoreState, read_state
from .tally import QueueTally, goes_on, join
from .verify import NO_LISTENER, VerifyReport

QUEUES_PER_PART = 256


@attrs.frozen
class Store:
    """The store that all parts look at, as it was when the check began."""

    root: Path
    commitlog: str
    slots: int | None
    state: StoreState

    def inspected(self) -> Inspected:
        reader = StoreReader(self.root, self.commitlog)
        return Inspected(reader, self.state, Findings(reader.paths.root), NoListener())


@attrs.frozen
class LogPart:
    """The content of one piece of the log."""

    file_start: int
    first: int
    reached: int
    end: int
    continues: bool  # after the piece
    records: int
    last_store_timestamp_ms: int
    tallies: list[QueueTally]
    damages: list[int]
    problems: list[Problem]
    notes: list[str]


@attrs.frozen
class QueuesPart:
    """The check of some queues against the log."""

    queues: int
    units: int
    behind: int
    problems: list[Problem]
    notes: list[str]


@attrs.frozen
class IndexPart:
    units: int
    problems: list[Problem]
    notes: list[str]


@attrs.define
class JoinedLog:
    """The log by all its parts."""

    begin: int
    is_dispatch_known: bool
    end: int = 0
    records: int = 0
    last_store_timestamp_ms: int = attrs.field(init=False, default=-1)
    damages: list[int] = attrs.field(factory=list)
    queues: dict[tuple[str, int], QueueTally] = attrs.field(factory=dict)

    def tallies(self) -> Iterator[QueueTally]:
        yield from self.queues.values()

    def add(self, part: LogPart) -> Iterator[tuple[int, str]]:
        """Join the next part. Yields (phy offset, what is wrong) where queue offsets do not go on."""
        self.end = part.end
        self.records += part.records
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, part.last_store_timestamp_ms)
        self.damages += part.damages
        for tally in part.tallies:
            key = (tally.topic, tally.queue_id)
            before = self.queues.get(key)
            if before is not None and not goes_on(before, tally, self.damages):
                yield (
                    tally.entry_phy_offset,
                    queue_offset_text(tally.name, tally.entry_offset, before.next_offset),
                )
            self.queues[key] = tally if before is None else join(before, tally)


@attrs.frozen
class KnownLog:
    """The facts about the joined log that a part of the queues needs."""

    begin: int
    end: int
    is_dispatch_known: bool

    def tallies(self) -> Iterator[QueueTally]:
        return iter(())


def verify_in_parts(
    reader: StoreReader,
    run: RunParts,
    listener: ProgressListener = NO_LISTENER,
    *,
    commitlog: str = "",
    slots: int | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> VerifyReport:
    """As `verify_store`, with the work done by `run`.

    Args:
        listener: hears of the parts that are done.
        commitlog, slots: as the reader was given them, and of `verify_store`.
        split_bytes: of the log, for one part.
    Raises:
        StoreError: something cannot be read at all.
    """
    root = reader.paths.root
    store = Store(root, commitlog, slots, read_state(reader.files, reader.paths))
    inspected = Inspected(reader, store.state, Findings(root), NoListener())
    findings = inspected.findings
    if store.state.in_use_by is not None:
        findings.note("in use: what its broker has written since this began is not looked at")
    live = store.state.live_control
    pieces = cut_log(reader.log_files(), split_bytes, live.published_phy_offset if live else NO_LIMIT)
    log = _join_log(inspected, run_pieces(counted(listener, "log", run), partial(check_log_piece, store), pieces))
    queues = QueueCheck(inspected, log)
    parts, missing = _queue_parts(reader, log)
    known = KnownLog(log.begin, log.end, log.is_dispatch_known)
    for part in counted(listener, "queues", run)(partial(check_queues, store, known, _file_size(reader)), parts):
        queues.queues += part.queues
        queues.units += part.units
        queues.behind += part.behind
        _add(findings, part)
    queues.check_missing(missing)
    queues.note_behind()
    index = IndexCheck(inspected, log_begin=log.begin, slots=slots)
    paths = index.checkable()
    for one in counted(listener, "index", run)(partial(check_index_file, store, log.begin), paths):
        index.units += one.units
        _add(findings, one)
    return VerifyReport(
        log_begin=log.begin,
        log_end=log.end,
        records=log.records,
        last_store_timestamp_ms=log.last_store_timestamp_ms,
        queues=queues.queues,
        units=queues.units,
        index_units=index.units,
        problems=findings.problems,
        notes=findings.notes,
        state=store.state,
    )


# --- parts ---


def check_log_piece(store: Store, piece: LogPiece) -> LogPart:
    """One piece of the log, wherever this runs."""
    inspected = store.inspected()
    with LogCheck(inspected) as log:
        continues = log.run_piece(piece)
        return LogPart(
            file_start=piece.start,
            first=log.first,
            reached=log.reached,
            end=log.end,
            continues=continues,
            records=log.totals.records,
            last_store_timestamp_ms=log.totals.last_store_timestamp_ms,
            tallies=list(log.tallies()),
            damages=log.damages,
            problems=inspected.findings.problems,
            notes=inspected.findings.notes,
        )


def check_queues(
    store: Store, log: KnownLog, file_size: int, part: list[tuple[QueueDirectory, QueueTally | None]]
) -> QueuesPart:
    """Some queues, with what the log has of them."""
    inspected = store.inspected()
    check = QueueCheck(inspected, log, file_size=file_size)
    for queue, tally in part:
        check.check(queue, tally)
    return QueuesPart(check.queues, check.units, check.behind, inspected.findings.problems, inspected.findings.notes)


def check_index_file(store: Store, log_begin: int, path: Path) -> IndexPart:
    inspected = store.inspected()
    check = IndexCheck(inspected, log_begin=log_begin, slots=store.slots)
    check.check(path)
    return IndexPart(check.units, inspected.findings.problems, inspected.findings.notes)


# --- joining ---


def _join_log(inspected: Inspected, parts: Iterable[LogPart]) -> JoinedLog:
    """Join parts up to the log's end; what lies after it is no part of the log."""
    findings, directory = inspected.findings, inspected.reader.paths.commitlog
    infos = inspected.reader.log_files()
    with LogCheck(inspected) as check:
        check.check_names(infos)
        begin = int(infos[0].name) if infos else 0
        log = JoinedLog(begin, check.is_dispatch_known, end=begin)
        is_going_on = True
        for part in parts:
            if not is_going_on:
                continue  # of files past the log's end
            _add(findings, part)
            for phy_offset, text in log.add(part):
                path = directory / file_name(part.file_start)
                findings.problem(Code.QUEUE_OFFSET, path, phy_offset - part.file_start, f"offset {phy_offset}: {text}")
            is_going_on = part.continues
        check.end = log.end
        check.check_end()
    return log


def _queue_parts(
    reader: StoreReader, log: JoinedLog
) -> tuple[list[list[tuple[QueueDirectory, QueueTally | None]]], list[QueueTally]]:
    """Return the queues that have a directory, in parts, and the tallies of queues without one."""
    tallies = dict(log.queues)
    pairs = [(queue, tallies.pop((queue.topic, queue.queue_id), None)) for queue in reader.queues()]
    parts = [pairs[at : at + QUEUES_PER_PART] for at in range(0, len(pairs), QUEUES_PER_PART)]
    return parts, list(tallies.values())


def _file_size(reader: StoreReader) -> int:
    """The size of queue files: that of the first one, 0 if there is none."""
    return next((info.size for queue in reader.queues() for info in reader.queue_files(queue)), 0)


def _add(findings: Findings, part: LogPart | QueuesPart | IndexPart) -> None:
    findings.problems += part.problems
    findings.notes += part.notes
