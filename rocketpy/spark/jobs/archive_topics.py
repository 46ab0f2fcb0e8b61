"""Job archive of topics: what running brokers have of them after the end of the run before.

The archive is the same as that of a store, but its manifests say how far each queue is archived, not the log. A run
asks each broker once for the ends of its queues and reads up to them. Parts go through the queues in order, so the rows
of a queue are in files whose names ascend with its offsets.

A topic that was deleted and made again ends the run. Its messages would have the queues and offsets of archived ones,
and compaction and replay order the rows of a queue by offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy.errors import ConfigError, StoreError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.store.inspection.findings import ProgressListener
from rocketpy.store.inspection.verify import NO_LISTENER

from ..cluster import CLUSTERS, Bounds
from ..connection import ConnectionOptions
from ..data_lost import DataLost, RecordsGone
from ..first_messages import Looker, compare
from ..offsets import Firsts
from ..options import parse_options
from ..pulls import Slice
from ..slices import mean_message_bytes, read_slices
from ..topic_options import TopicOptions
from .archive_files import COLUMNS, write_rows
from .archive_log import ArchivedFile, ArchiveLog, Manifest, Positions, brokers_of, read_manifest
from .running import run_in_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

PART_BYTES = 64 << 20  # of records, about
COMMIT_BYTES = 2 << 30  # of records, about, for one manifest
BESIDE_CONNECTION = frozenset({"storepath", "pullbatchsize", "pulltimeoutms", "pullpipeline"})


@attrs.frozen
class TopicPart:
    """Ranges of queues of one broker, in the order of its topics and queues. `number` is unique in a manifest."""

    number: int
    slices: list[Slice]


def archive_topics(
    spark: SparkSession | None,
    target: Path,
    topics: tuple[str, ...],
    connection: Mapping[str, str],
    *,
    allow_gap: bool = False,
    part_bytes: int = PART_BYTES,
    commit_bytes: int = COMMIT_BYTES,
    listener: ProgressListener = NO_LISTENER,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Manifest]:
    """Archive what is new in topics, broker by broker.

    Args:
        target: the archive, at the same path on every worker; made if it is not there.
        connection: nameServer and the other options of the connection; storePath, pullBatchSize, pullTimeoutMs and
            pullPipeline as of the source.
        allow_gap: go on where retention has deleted messages before they were archived.
        commit_bytes: bytes of one manifest, about; at least a task for each core is committed at a time.
        is_stopped: asked after each commit; True ends the run there.
    Returns: the manifests of this run; none if there was nothing new.
    Raises:
        ConfigError: options, or a topic that does not exist. StoreError: another run is busy, messages are gone, a
        topic was made again, or the archive of a broker is made of its store. TransportError, BrokerError: a broker
        cannot be read.
    """
    options = parse_connection(topics, connection, allow_gap=allow_gap)
    cluster = CLUSTERS.get(options.client_options())
    queues = cluster.queues(topics)
    brokers = sorted({queue.broker_name for queue in queues})
    _warn_of_absent(target.absolute(), topics, set(brokers))
    manifests: list[Manifest] = []
    for broker in brokers:
        with ArchiveLog.opened(target.absolute(), broker) as log:
            if log.end is not None and not log.positions:
                raise StoreError(
                    f"{target}: the archive of broker {broker} is made of its store; rows would be there twice: name "
                    "another directory"
                )
            # Asked with the log open: no other run moves the positions beyond these ends.
            of_broker = dict(sorted(cluster.bounds({one for one in queues if one.broker_name == broker}).items()))
            group = options.pull_settings.group
            firsts = compared(target, log.firsts, log.positions, of_broker, cluster, group)
            slices = new_slices(log.positions, of_broker, allow_gap)
            size = mean_message_bytes(options, slices)
            parts = list(cut_parts(slices, max(1, min(part_bytes, commit_bytes) // size)))
            work, per_commit = partial(_make_work, options, log), max(1, commit_bytes // part_bytes)
            for done, results in run_in_groups(spark, work, parts, per_commit, broker, listener, is_stopped):
                manifests.append(_commit(log, done, results, firsts))
    return manifests


def _warn_of_absent(target: Path, topics: tuple[str, ...], present: set[str]) -> None:
    """A broker that is down long enough has no route: nobody can tell that it has messages, but for the archive."""
    for broker, paths in brokers_of(target).items():
        positions = read_manifest(paths[-1]).positions if paths else {}
        if broker not in present and (known := sorted(set(topics) & set(positions))):
            logger.warning(
                "broker %s has no route now, and has archived messages of %s in %s: what it has stored since is not "
                "archived. Repeat the run when it is back",
                broker,
                ", ".join(known),
                target,
            )


def parse_connection(topics: tuple[str, ...], connection: Mapping[str, str], *, allow_gap: bool) -> TopicOptions:
    """Return the options for the source. Raises ConfigError, also for an option that would change the rows that are
    read."""
    of_connection = {key: value for key, value in connection.items() if key.lower() not in BESIDE_CONNECTION}
    parse_options(ConnectionOptions, of_connection)
    if not topics:
        raise ConfigError("which topics of the brokers? name them with --topic")
    chosen = {"subscribe": ",".join(topics), "failOnDataLoss": str(not allow_gap).lower()}
    return parse_options(TopicOptions, {**connection, **chosen})


def compared(
    target: object,
    kept: Firsts,
    positions: Positions,
    bounds: Mapping[MessageQueue, Bounds],
    cluster: Looker,
    group: str,
) -> Firsts:
    """Return the first messages for the next commit.

    Args:
        target: for errors.
        kept: of the last commit, as `positions`. A run that was cut short may have kept those of topics of which
            nothing is archived yet: they do not count.
        bounds: the offsets of one broker's queues.
    Raises:
        StoreError: a topic was made again.
    """
    comparison = compare({q: first for q, first in kept.items() if q.topic in positions}, bounds, cluster, group)
    if comparison.remade:
        broker, topics = min(broker for _, broker in comparison.remade), sorted(topic for topic, _ in comparison.remade)
        raise StoreError(
            f"{target}: archived topics of broker {broker} were deleted and made again since, or its store was "
            f"replaced: {', '.join(topics)}. Archive them to another directory or table; runs without them go on here"
        )
    return comparison.firsts


def new_slices(positions: Positions, bounds: Mapping[MessageQueue, Bounds], allow_gap: bool) -> list[Slice]:
    """From where each queue is archived to where it ends now. A gap is logged when a run passes it, together with the
    first message behind it.

    A queue without a position begins where it does now. If other queues of its topic have one, it was added, or was
    empty till now: then a beginning beyond 0 is a gap that nobody could prevent.

    Raises:
        StoreError: messages are gone, or the queue is another one.
    """
    slices = []
    for queue, ends in bounds.items():
        archived = positions.get(queue.topic, {}).get(str(queue.queue_id))
        if archived is not None and archived > ends.max_offset:
            raise StoreError(f"{queue} ends at {ends.max_offset}, but is archived up to {archived}: it is another one")
        if archived is not None and archived < ends.min_offset and not allow_gap:
            raise StoreError(
                f"{queue} begins at {ends.min_offset}, and is archived up to {archived}: what was between is deleted; "
                "--allow-gap goes on without it"
            )
        known = archived if archived is not None else 0 if queue.topic in positions else ends.min_offset
        if (begin := max(known, ends.min_offset)) < ends.max_offset:
            if known < begin:
                logger.warning(
                    "queue %d of topic %s on %s: %d of the offsets %d to %d were deleted before they were archived",
                    *(queue.queue_id, queue.topic, queue.broker_name, begin - known, known, begin),
                )
            slices.append(Slice(queue, begin, ends.max_offset))
    return slices


def cut_parts(slices: list[Slice], messages_max: int) -> Iterator[TopicPart]:
    """Parts of at most so many messages; long slices go on in the next part."""
    number, part, room = 0, list[Slice](), messages_max
    for one in slices:
        begin = one.begin
        while begin < one.end:
            end = min(one.end, begin + room)
            part.append(Slice(one.queue, begin, end))
            room, begin = room - (end - begin), end
            if not room:
                yield TopicPart(number, part)
                number, part, room = number + 1, [], messages_max
    if part:
        yield TopicPart(number, part)


def _make_work(options: TopicOptions, log: ArchiveLog) -> Callable[[TopicPart], list[ArchivedFile]]:
    """Files are named after the manifest that will name them."""
    return partial(write_part, options, log.pending, f"{log.directory.name}-{log.number + 1:08}")


def _commit(log: ArchiveLog, parts: Sequence[TopicPart], results: list[list[ArchivedFile]], firsts: Firsts) -> Manifest:
    positions: Positions = {topic: dict(queues) for topic, queues in log.positions.items()}
    for one in (one for part in parts for one in part.slices):
        positions.setdefault(one.queue.topic, {})[str(one.queue.queue_id)] = one.end
    files = [file for result in results for file in result]
    return log.commit(Manifest(0, 0, files, positions=positions, firsts=firsts))


def write_part(options: TopicOptions, pending: Path, prefix: str, part: TopicPart) -> list[ArchivedFile]:
    """Read a part and write its files. Runs in a worker.

    Raises:
        StoreError: messages were deleted while the run was reading.
    """
    files, _ = write_rows(read_part(options, part), pending, partial(_name, prefix, part.number))
    return files


def read_part(options: TopicOptions, part: TopicPart) -> Iterator[Any]:
    """The batches of a part, with all columns. Raises StoreError: messages were deleted meanwhile."""
    try:
        yield from read_slices(options, COLUMNS, part.slices)
    except RecordsGone as error:
        raise StoreError(
            f"{error.queue}: the broker skips offset {error.wanted}: its record was deleted meanwhile, or is damaged; "
            "--allow-gap goes on without it"
        ) from error
    except DataLost as error:
        raise StoreError(
            f"{error.queue} begins at {error.min_offset} now, and is archived up to {error.wanted}: what was between "
            "was deleted meanwhile; --allow-gap goes on without it"
        ) from error


def _name(prefix: str, part: int, number: int, _: Any) -> str:
    return f"{prefix}.{part:06}.{number:04}.parquet"
