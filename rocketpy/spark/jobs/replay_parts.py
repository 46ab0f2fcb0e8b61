"""What the workers of job replay do: send the files of a part, and read back what is stored."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq

from rocketpy.message.message_queue import MessageQueue
from rocketpy.store.files import translated

from ..options import parse_options
from ..outgoing import SPARK_ID, Outgoing, RowReader
from ..pulls import Slice
from ..sending import SENDERS
from ..sink_options import SinkOptions
from ..slices import SliceReader
from ..topic_options import TopicOptions
from .replay_conditions import COLUMNS as CONDITION_COLUMNS
from .replay_conditions import row_filter
from .replay_plan import Part, Sent, Step, Wanted, read_step, write_step

COLUMNS = ["body", "properties", *CONDITION_COLUMNS]
BATCH_ROWS = 1024
ORIGIN = ("ORIGIN_TOPIC", "ORIGIN_BROKER", "ORIGIN_QUEUE", "ORIGIN_OFFSET")
OriginQueue = tuple[str, str, str]
"""Topic, broker, and queue id."""


@attrs.frozen
class ReplayJob:
    """What all parts have in common."""

    archive: Path
    ledger: Path
    identity: str
    options: SinkOptions
    wanted: Wanted
    rate: float | None  # messages per second, of one part


def hash_of(body: bytes, offset: int) -> int:
    """Of a message and its place; sums of these do not depend on order."""
    return zlib.crc32(body, zlib.crc32(b"%d" % offset)) + 1


@attrs.define(eq=False)
class Pace:
    """Waits so that `rate` messages per second go on; None: does not wait."""

    rate: float | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _began_s: float | None = None
    _count: int = 0

    def add(self, count: int) -> None:
        if self.rate is None:
            return
        now_s = self.clock()
        began_s = self._began_s = now_s if self._began_s is None else self._began_s
        self._count += count
        wait_s = began_s + self._count / self.rate - now_s
        if wait_s > 0:
            self.sleep(wait_s)


def replay_part(job: ReplayJob, part: Part) -> int:
    """Send what the ledger does not say done. Returns the number of messages. Runs in a worker.

    Raises:
        RowRefused, TransportError, BrokerError: a message was not stored; the step is repeated by the next run.
    """
    sender, pace, sent = SENDERS.get(job.options.producer_group, job.options.client()), Pace(job.rate), 0
    for index, path in enumerate(part.files):
        if read_step(job.ledger, part, index) is not None:
            continue
        rows = RowReader(job.options, f"{job.identity}:{part.number}:{index}")
        transfer, queues = sender.begin(job.options), dict[str, Sent]()
        for batch in _batches(job, part, path):
            sender.add(transfer, list(_outgoing(rows, part, batch, queues)))
            pace.add(len(batch))
        stored = [
            (queue.topic, queue.broker_name, queue.queue_id, receipt.first_offset, receipt.last_offset)
            for queue, receipt in sender.finish(transfer).items()
        ]
        write_step(job.ledger, part, index, Step(queues, stored))
        sent += rows.rows
    return sent


def _batches(job: ReplayJob, part: Part, path: str) -> Iterator[list[dict[str, Any]]]:
    """The wanted rows of a file."""
    is_wanted = row_filter(job.wanted)
    with translated(job.archive / path, "read"), pq.ParquetFile(job.archive / path) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=COLUMNS):
            rows = batch.to_pylist()
            yield [row for row in rows if row["queueId"] % part.shards == part.shard and is_wanted(row)]


def _outgoing(rows: RowReader, part: Part, batch: list[dict[str, Any]], queues: dict[str, Sent]) -> Iterator[Outgoing]:
    for row in batch:
        queue, offset, body = str(row["queueId"]), row["queueOffset"], row["body"]
        origin = dict(zip(ORIGIN, (part.topic, part.broker, queue, str(offset)), strict=True))
        yield rows.message(
            {
                "topic": part.target,
                "body": body,
                "tags": row["tags"],
                "keys": row["keys"],
                "flag": row["flag"],
                "properties": dict(row["properties"] or ()) | origin | {"ORIGIN_MSG_ID": row["msgId"] or ""},
                "shardingKey": f"{part.topic}:{part.broker}:{queue}",
            }
        )
        queues[queue] = queues.get(queue, Sent(0, 0)) + Sent(1, hash_of(body, offset))


# --- reading back ---


def read_back(
    given: Mapping[str, str], identity: str, place: tuple[str, str, int, int, int]
) -> dict[OriginQueue, tuple[Sent, int]]:
    """The messages of this replay in a range of a target queue: by source queue, those that are there once, and how
    many more there are. Runs in a worker."""
    topic, broker, queue_id, first, last = place
    options = parse_options(TopicOptions, {**given, "topic": topic})
    wanted = Slice(MessageQueue(topic, broker, queue_id), first, last + 1)
    found: dict[OriginQueue, tuple[Sent, int]] = {}
    seen: dict[OriginQueue, set[int]] = {}
    for batch in SliceReader(options, ("body", "properties"), wanted).batches():
        for body, properties in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            origin = dict(properties or ())
            if not origin.get(SPARK_ID, "").startswith(f"{identity}:"):
                continue  # of somebody else
            source = (origin["ORIGIN_TOPIC"], origin["ORIGIN_BROKER"], origin["ORIGIN_QUEUE"])
            offset, (sent, more) = int(origin["ORIGIN_OFFSET"]), found.get(source, (Sent(0, 0), 0))
            offsets = seen.setdefault(source, set())
            if offset in offsets:
                found[source] = sent, more + 1
            else:
                offsets.add(offset)
                found[source] = sent + Sent(1, hash_of(body, offset)), more
    return found
