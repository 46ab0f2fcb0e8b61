"""The work of job replay in Spark's workers: send the files of a part."""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import MessageInvalid
from rocketpy.message.properties import NAME_VALUE_SEPARATOR, PROPERTIES_SIZE_MAX, PROPERTY_SEPARATOR

from ...outgoing import Outgoing, RowReader, SinkOptions
from ...sending import SENDERS
from ..archive_files import opened_table
from ..archived import place_of
from .conditions import COLUMNS as CONDITION_COLUMNS
from .conditions import row_filter
from .plan import Part, Step, Wanted, crc_of, read_step, write_step

logger = logging.getLogger(__name__)

COLUMNS = ["body", "properties", *CONDITION_COLUMNS]
BATCH_ROWS = 1024
SEPARATORS = frozenset(NAME_VALUE_SEPARATOR + PROPERTY_SEPARATOR)
OWN_PROPERTIES_SIZE = 512  # of the sink and the client: SPARK_ID, UNIQ_KEY, WAIT
ORIGIN = ("ORIGIN_TOPIC", "ORIGIN_BROKER", "ORIGIN_QUEUE", "ORIGIN_OFFSET")


@attrs.frozen
class ReplayJob:
    """The settings that all parts of a replay share."""

    archive: Path
    ledger: Path
    identity: str
    options: SinkOptions
    wanted: Wanted
    rate: float | None  # messages per second, of one part


@attrs.define(eq=False)
class RateLimit:
    """Lets `rate` messages a second pass: waits for the others; None: never waits."""

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

    Producers of other kinds store what no client of ours may send: that is counted, because it would end each run.

    Raises:
        RowRefused, ClientError, TransportError, BrokerError: a message was not stored; the next run repeats the step.
    """
    sender, sent = SENDERS.get(job.options.producer_group, job.options.client()), 0
    limit = RateLimit(job.rate)
    for index, path in enumerate(part.files):
        step = (part.number, index)
        if read_step(job.ledger, step) is not None:
            continue
        rows, crcs = RowReader(job.options, f"{job.identity}:{part.number}:{index}"), array("I")
        refused = 0
        transfer = sender.begin(job.options)
        for batch in _batches(job, part, path):
            outgoing = list(_outgoing(rows, part, batch, crcs))
            refused += len(batch) - len(outgoing)
            sender.add(transfer, outgoing)
            limit.add(len(batch))
        stored = [
            (queue.topic, queue.broker_name, queue.queue_id, receipt.last_offset)
            for queue, receipt in sender.finish(transfer).items()
        ]
        write_step(job.ledger, step, crcs, Step(rows.rows, stored, refused))
        sent += rows.rows
    return sent


def _batches(job: ReplayJob, part: Part, path: str) -> Iterator[list[dict[str, Any]]]:
    """The wanted rows of a file."""
    is_wanted = row_filter(job.wanted)
    _, place = place_of(job.archive, part.broker, path)
    with opened_table(place) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=COLUMNS):
            rows = batch.to_pylist()
            yield [row for row in rows if row["queueId"] % part.shards == part.shard and is_wanted(row)]


def _outgoing(rows: RowReader, part: Part, batch: list[dict[str, Any]], crcs: array[int]) -> Iterator[Outgoing]:
    for row in batch:
        queue, offset, body = str(row["queueId"]), row["queueOffset"], row["body"]
        origin = dict(zip(ORIGIN, (part.topic, part.broker, queue, str(offset)), strict=True))
        try:
            one = rows.message(
                {
                    "topic": part.target,
                    "body": body,
                    "tags": row["tags"],
                    "keys": row["keys"],
                    "flag": row["flag"],
                    "properties": _sendable(row["properties"], origin | {"ORIGIN_MSG_ID": row["msgId"] or ""}),
                    "shardingKey": f"{part.topic}:{part.broker}:{queue}",
                }
            )
        except MessageInvalid as error:
            logger.warning("message %d of queue %s of %s is not sent: %s", offset, queue, part.topic, error)
            continue
        crcs.append(crc_of(body, offset))
        yield one


def _sendable(stored: Any, origin: dict[str, str]) -> dict[str, str]:
    """The properties of a message and where it is from, without what no client may send: blanks, and values that hold
    a separator.

    Raises:
        MessageInvalid: they are too long.
    """
    kept = {name: value for name, value in dict(stored or ()).items() if name.strip() and value.strip()}
    kept = {name: value for name, value in kept.items() if SEPARATORS.isdisjoint(name + value)} | origin
    size = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in kept.items())
    if size > PROPERTIES_SIZE_MAX - OWN_PROPERTIES_SIZE:
        raise MessageInvalid(f"its properties have {size} bytes")
    return kept
