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

from rocketpy.message.compression import INFLATED_SIZE_MAX
from rocketpy.store.inspection.findings import ProgressListener
from rocketpy.store.inspection.parts import counted
from rocketpy.store.inspection.verify import NO_LISTENER

from ...connection import ConnectionOptions
from ...options import parse_options
from ...outgoing import SinkOptions
from ..running import run_parts
from .check import compare, make_plan, read_back, slices_to_check
from .conditions import parse_where
from .parts import ReplayJob, replay_part
from .plan import Ledger, Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INLINE_SHARDS = 1


@attrs.frozen(kw_only=True)
class Replayed:
    """The messages that a replay has sent, found and missed, in all of its runs together."""

    sent: int  # by this run
    planned: int  # messages of the archive, by all runs
    stored: int  # of them, read back from the topics with the body that was sent
    missing: int  # planned, and not stored
    duplicates: int  # further copies: they were sent again after a failure
    changed: int = 0  # copies with another body
    refused: int = 0  # messages of the archive, beside those planned, that no client may send

    @property
    def is_sound(self) -> bool:
        return not self.missing and not self.changed and not self.refused


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
        connection: nameServer and the other options that source and sink have in common, and onNotStoredOk.
        rate: messages per second, of all workers together.
    Raises:
        ConfigError: options, a topic that the archive lacks, or a ledger of another replay, before anything is sent.
        StoreError: a file cannot be read or written.
        RowRefused, ClientError, TransportError, BrokerError: a message was not stored.
    """
    archive, ledger = archive.absolute(), ledger.absolute()
    parse_where(wanted.where)
    of_sink = {key: value for key, value in connection.items() if key.lower() == "onnotstoredok"}
    connection = {key: value for key, value in connection.items() if key not in of_sink}
    parse_options(ConnectionOptions, connection)  # nothing that would change where messages go
    sending = {"producerGroup": "replay", "maxMessageSize": str(INFLATED_SIZE_MAX)}  # what was compressed is so again
    options = parse_options(SinkOptions, {**connection, **of_sink, **sending})
    parallel = spark.sparkContext.defaultParallelism if spark is not None else INLINE_SHARDS
    settings = {**attrs.asdict(wanted), "keys": sorted(wanted.keys), "archive": str(archive)}
    run = partial(run_parts, spark)
    with Ledger.opened(ledger, settings, partial(make_plan, archive, wanted, parallel, connection)) as opened:
        at_once = min(parallel, len(opened.parts))
        job = ReplayJob(archive, ledger, opened.identity, options, wanted, rate and rate / at_once)
        sent = sum(counted(listener, "parts", run)(partial(replay_part, job), opened.parts))
        slices = slices_to_check(connection, opened)
        work = partial(read_back, dict(connection), ledger, opened.identity)
        compared = compare(opened, counted(listener, "check", run)(work, slices))
    return Replayed(sent=sent, **attrs.asdict(compared))
