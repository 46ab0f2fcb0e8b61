"""Job replay: sends messages of an archive to topics, each queue in its order, and checks what is stored.

A part is some queues of an archived topic; a step is one file of a part. A finished step is in the ledger, and a run
that was cut short is repeated with the same ledger: only the messages of unfinished steps are sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.store.inspection.findings import ProgressListener
from rocketpy.store.inspection.parts import counted
from rocketpy.store.inspection.verify import NO_LISTENER

from ..options import parse_options
from ..sink_options import SinkOptions
from .replay_conditions import parse_where
from .replay_parts import OriginQueue, ReplayJob, read_back, replay_part
from .replay_plan import Ledger, Sent, Wanted, plan_parts, stored_ranges
from .running import run_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INLINE_SHARDS = 1


@attrs.frozen(kw_only=True)
class Replayed:
    """What a replay has done, all of its runs together."""

    sent: int  # by this run
    planned: int  # messages of the archive, by all runs
    stored: int  # of them, read back from the topics
    missing: int  # planned, and not found, or with another body
    duplicates: int  # found more than once: they were sent again after a failure

    @property
    def is_sound(self) -> bool:
        return not self.missing


def replay(
    spark: SparkSession | None,
    archive: Path,
    ledger: Path,
    wanted: Wanted,
    connection: Mapping[str, str],
    *,
    rate: float | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> Replayed:
    """Send archived messages, then read them back.

    Args:
        archive: the directory of job archive, at the same path on every worker, as is `ledger`.
        ledger: a directory for this replay alone; made if it is not there.
        connection: options of the sink that the source has, too: nameServer, and those of access control and TLS.
        rate: messages per second, of all workers together.
    Raises:
        ConfigError: options, or a ledger of another replay. StoreError: a file cannot be read or written.
        RowRefused, TransportError, BrokerError: a message was not stored.
    """
    archive, ledger = archive.absolute(), ledger.absolute()
    parse_where(wanted.where)
    options = parse_options(SinkOptions, {**connection, "producerGroup": "replay"})
    parallel = spark.sparkContext.defaultParallelism if spark is not None else INLINE_SHARDS
    settings = {**attrs.asdict(wanted), "keys": sorted(wanted.keys), "archive": str(archive)}
    run = partial(run_parts, spark)
    with Ledger.opened(ledger, settings, partial(plan_parts, archive, wanted, parallel)) as opened:
        at_once = min(parallel, len(opened.parts))
        job = ReplayJob(archive, ledger, opened.identity, options, wanted, rate and rate / at_once)
        sent = sum(counted(listener, "parts", run)(partial(replay_part, job), opened.parts))
        planned: dict[OriginQueue, Sent] = {}
        for part, step in opened.steps():
            for queue, one in step.queues.items():
                source = (part.topic, part.broker, queue)
                planned[source] = planned.get(source, Sent(0, 0)) + one
        found: dict[OriginQueue, tuple[Sent, int]] = {}
        ranges = stored_ranges(opened.steps())
        for result in counted(listener, "check", run)(partial(read_back, dict(connection), opened.identity), ranges):
            for source, (one, more) in result.items():
                before, more_before = found.get(source, (Sent(0, 0), 0))
                found[source] = before + one, more_before + more
    return _compared(sent, planned, found)


def _compared(
    sent: int, planned: Mapping[OriginQueue, Sent], found: Mapping[OriginQueue, tuple[Sent, int]]
) -> Replayed:
    missing = duplicates = stored = 0
    for source, plan in planned.items():
        there, more = found.get(source, (Sent(0, 0), 0))
        stored += min(there.count, plan.count)
        duplicates += more + max(0, there.count - plan.count)
        is_changed = there.count == plan.count and there.hashes != plan.hashes
        missing += plan.count if is_changed else max(0, plan.count - there.count)
    planned_count = sum(plan.count for plan in planned.values())
    return Replayed(sent=sent, planned=planned_count, stored=stored, missing=missing, duplicates=duplicates)
