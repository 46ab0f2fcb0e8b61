"""Reads back what a replay has sent, and compares it message by message with what the ledger says.

Each message says in SPARK_ID which row of which step it is. So what is stored of a step is a bitmap of its rows: the
driver holds a bit for each message, a worker the rows of one slice of a target queue.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path

import attrs

from rocketpy.message.message_queue import MessageQueue

from ...cluster import CLUSTERS, Cluster
from ...options import parse_options
from ...outgoing import SPARK_ID
from ...pulls import Slice
from ...slices import read_slices
from ...topic_options import TopicOptions
from .plan import Begins, Ledger, Part, StepId, Wanted, crc_of, plan_parts, read_crcs

SLICE_MESSAGES = 1 << 18  # offsets of a target queue that one task reads back
STEPS_KEPT = 8  # CRCs of steps that a worker has in memory
DISPATCHED_S = 30.0  # a broker takes milliseconds until what it has acknowledged can be read
POLL_S = 0.05


@attrs.frozen
class SliceFound:
    """The messages of a replay that were found in a slice.

    Attributes:
        rows: for each step a bitmap of the rows that are there, compressed.
        more: further copies of rows that are there.
        changed: messages with a body that was not sent.
    """

    rows: dict[StepId, bytes]
    more: int
    changed: int


@attrs.frozen
class Compared:
    """The sums over all steps; `missing` are rows without any copy, `refused` messages that are no rows."""

    planned: int
    stored: int
    missing: int
    duplicates: int
    changed: int
    refused: int = 0


def target_options(connection: Mapping[str, str], topic: str) -> TopicOptions:
    """Options to read a target topic: what retention has deleted since is missing, not an error. Raises ConfigError."""
    return parse_options(TopicOptions, {**connection, "topic": topic, "failOnDataLoss": "false"})


# --- in the driver ---


def make_plan(archive: Path, wanted: Wanted, parallel: int, connection: Mapping[str, str]) -> tuple[list[Part], Begins]:
    """The parts, and where each queue of a target topic ends before anything is sent."""
    parts = plan_parts(archive, wanted, parallel)
    cluster = _cluster(connection, parts[0].target)
    targets = {part.target for part in parts} & set(cluster.topics())
    begins = cluster.max_offsets(cluster.queues(targets)) if targets else {}
    return parts, [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in begins.items()]


def slices_to_check(connection: Mapping[str, str], ledger: Ledger) -> list[Slice]:
    """Everything that target queues got since the plan was made, in slices. A topic that got nothing may not exist."""
    targets = {ledger.parts[number].target for (number, _), step in ledger.steps() if step.rows}
    if not targets:
        return []
    cluster = _cluster(connection, min(targets))
    queues = cluster.queues(targets)
    _wait_until_readable(cluster, {queue: end for queue, end in _acknowledged(ledger).items() if queue in queues})
    begins = {MessageQueue(topic, broker, queue_id): offset for topic, broker, queue_id, offset in ledger.begins}
    return [
        Slice(queue, begin, min(begin + SLICE_MESSAGES, bounds.max_offset))
        for queue, bounds in sorted(cluster.bounds(queues).items())
        for begin in range(max(bounds.min_offset, begins.get(queue, 0)), bounds.max_offset, SLICE_MESSAGES)
    ]


def _cluster(connection: Mapping[str, str], topic: str) -> Cluster:
    return CLUSTERS.get(target_options(connection, topic).client_options())


def _acknowledged(ledger: Ledger) -> dict[MessageQueue, int]:
    """For each target queue the offset after its last acknowledged message."""
    ends: dict[MessageQueue, int] = {}
    for _, step in ledger.steps():
        for topic, broker, queue_id, last in step.stored:
            queue = MessageQueue(topic, broker, queue_id)
            ends[queue] = max(ends.get(queue, 0), last + 1)
    return ends


def _wait_until_readable(
    cluster: Cluster,
    ends: Mapping[MessageQueue, int],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for the consume queues. A queue that stays behind lacks messages, which are then counted."""
    deadline_s = clock() + DISPATCHED_S
    while ends and clock() < deadline_s:
        now = cluster.max_offsets(ends)
        ends = {queue: end for queue, end in ends.items() if now[queue] < end}
        if ends:
            sleep(POLL_S)


def compare(ledger: Ledger, results: Iterable[SliceFound]) -> Compared:
    """Put the bitmaps of all slices together."""
    there: dict[StepId, int] = {}
    duplicates = changed = 0
    for result in results:
        duplicates += result.more
        changed += result.changed
        for identity, packed in result.rows.items():
            rows, known = int.from_bytes(zlib.decompress(packed), "little"), there.get(identity, 0)
            duplicates += (rows & known).bit_count()
            there[identity] = rows | known
    planned = stored = refused = 0
    for identity, step in ledger.steps():
        planned += step.rows
        refused += step.refused
        stored += there.pop(identity, 0).bit_count()
    return Compared(planned, stored, planned - stored, duplicates, changed, refused)


# --- in the workers ---


def read_back(connection: Mapping[str, str], ledger: Path, identity: str, wanted: Slice) -> SliceFound:
    """The messages of the replay `identity` in a slice of a target queue.

    Raises:
        StoreError: the ledger cannot be read. TransportError, BrokerError: the broker cannot.
    """
    options = target_options(connection, wanted.queue.topic)
    crcs = lru_cache(STEPS_KEPT)(partial(read_crcs, ledger))
    there: dict[StepId, set[int]] = {}
    more = changed = 0
    for batch in read_slices(options, ("body", "properties"), [wanted]):
        for body, pairs in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            properties = dict(pairs or ())
            name, _, numbers = properties.get(SPARK_ID, "").partition(":")
            if name != identity:
                continue  # of somebody else
            part, file, row = map(int, numbers.split(":"))
            sent = crcs((part, file))
            if row >= len(sent) or sent[row] != crc_of(body, int(properties["ORIGIN_OFFSET"])):
                changed += 1
                continue
            rows = there.setdefault((part, file), set())
            more += row in rows
            rows.add(row)
    return SliceFound({step: bitmap(rows) for step, rows in there.items()}, more, changed)


def bitmap(rows: set[int]) -> bytes:
    bits = bytearray(max(rows) // 8 + 1)
    for row in rows:
        bits[row // 8] |= 1 << row % 8
    return zlib.compress(bits, 1)
