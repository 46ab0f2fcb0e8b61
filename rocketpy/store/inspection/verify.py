"""Checks or counts a whole store: the log, the queues against the log, the index, and the control block."""

from __future__ import annotations

import attrs

from .findings import Findings, Inspected, NoListener, Problem, ProgressListener
from .index_check import IndexCheck
from .log_check import LogCheck
from .queue_check import QueueCheck
from .reader import StoreReader
from .state_files import StoreState, read_state

NO_LISTENER = NoListener()


@attrs.frozen
class VerifyReport:
    """`problems` are damage; `notes` are repaired by the next start, or could not be checked."""

    log_begin: int
    log_end: int
    records: int
    last_store_timestamp_ms: int  # -1: no message
    queues: int
    units: int
    index_units: int
    problems: list[Problem]
    notes: list[str]
    state: StoreState


@attrs.frozen
class TopicStats:
    topic: str
    queues: int
    records: int
    bytes: int


@attrs.frozen
class StoreStats:
    """The content of a store, counted from its log, queues and index."""

    log_begin: int
    log_end: int
    records: int
    body_bytes: int
    first_store_timestamp_ms: int  # -1: no message
    last_store_timestamp_ms: int
    queues: int
    units: int
    index_files: int
    index_keys: int
    topics: list[TopicStats]  # by the log, largest first
    state: StoreState

    @property
    def is_open(self) -> bool:
        """Return True if the store is in use, or was not stopped cleanly."""
        return not self.state.is_closed


def verify_store(
    reader: StoreReader, listener: ProgressListener = NO_LISTENER, *, slots: int | None = None
) -> VerifyReport:
    """Every record, unit and index entry.

    Args:
        slots: maxHashSlotNum, if it cannot be derived from the size of the index files.
    Raises:
        StoreError: something cannot be read at all.
    """
    state = read_state(reader.files, reader.paths)
    findings = Findings(reader.paths.root)
    if state.in_use_by is not None:
        findings.note("in use: what its broker has written since this began is not looked at")
    inspected = Inspected(reader, state, findings, listener)
    with LogCheck(inspected) as log:
        log.run()
        queues = QueueCheck(inspected, log)
        queues.run()
        index = IndexCheck(inspected, log_begin=log.begin, slots=slots)
        index.run()
        return VerifyReport(
            log_begin=log.begin,
            log_end=log.end,
            records=log.totals.records,
            last_store_timestamp_ms=log.totals.last_store_timestamp_ms,
            queues=queues.queues,
            units=queues.units,
            index_units=index.units,
            problems=findings.problems,
            notes=findings.notes,
            state=state,
        )


def count_store(reader: StoreReader, listener: ProgressListener = NO_LISTENER) -> StoreStats:
    """Count sizes, times and messages, without checks.

    Raises:
        StoreError: something cannot be read at all.
    """
    state = read_state(reader.files, reader.paths)
    inspected = Inspected(reader, state, Findings(reader.paths.root), listener)
    with LogCheck(inspected, check_crc=False) as log:
        log.run()
        queues = QueueCheck(inspected, log)
        queues.count()
        headers = [header for _, header in reader.index_headers() if header]
        totals = log.totals
        return StoreStats(
            log_begin=log.begin,
            log_end=log.end,
            records=totals.records,
            body_bytes=totals.body_bytes,
            first_store_timestamp_ms=totals.first_store_timestamp_ms,
            last_store_timestamp_ms=totals.last_store_timestamp_ms,
            queues=queues.queues,
            units=queues.units,
            index_files=len(headers),
            index_keys=sum(header.index_count - 1 for header in headers),
            topics=_topics(log),
            state=state,
        )


def _topics(log: LogCheck) -> list[TopicStats]:
    found: dict[str, list[int]] = {}
    for tally in log.tallies():
        sums = found.setdefault(tally.topic, [0, 0, 0])
        for index, value in enumerate((1, tally.records, tally.bytes)):
            sums[index] += value
    stats = [TopicStats(topic, *sums) for topic, sums in found.items()]
    return sorted(stats, key=lambda topic: (-topic.bytes, topic.topic))
