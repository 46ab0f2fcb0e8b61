"""The tasks of a plan for topics: slices of queues, pulled and decoded in an executor."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import attrs
from pyspark.sql.datasource import InputPartition

from rocketpy.client.consuming.subscription import Sql92
from rocketpy.errors import ConfigError, RecordCorrupt
from rocketpy.message.message_queue import MessageQueue
from rocketpy.native import Status

from .cluster import CLUSTERS
from .data_lost import RecordsGone
from .decoder import Decoder, End, fault_at
from .planning import MESSAGE_BYTES, pack
from .pulls import Answer, PullSettings, Slice
from .stored_queue import HEAD, StoredQueue
from .topic_options import TopicOptions
from .worker import Origin, prepare_worker, reason_first

logger = logging.getLogger(__name__)

PROBED_MESSAGES = 32


class SlicesPartition(InputPartition):
    """One task: slices of queues."""

    def __init__(self, slices: list[Slice]) -> None:
        super().__init__(slices)
        self.origin = Origin()


def partitions_of(options: TopicOptions, slices: list[Slice], message_bytes: int) -> list[InputPartition]:
    """The tasks that read these slices."""
    tasks = pack(
        slices,
        message_bytes=message_bytes,
        partition_bytes=options.partition_bytes,
        tasks_min=options.partitions_min,
        tasks_max=options.partitions_max,
    )
    return [SlicesPartition(task) for task in tasks]


def mean_message_bytes(options: TopicOptions, slices: list[Slice]) -> int:
    """Of some messages of the longest slice: planning needs no more."""
    if not slices:
        return MESSAGE_BYTES
    longest = max(slices, key=lambda one: one.count)
    probe = attrs.evolve(longest, end=min(longest.end, longest.begin + PROBED_MESSAGES))
    size = len(probed(options, probe, options.pull_settings.expression))
    return max(1, size // probe.count) if size else MESSAGE_BYTES


def probed(options: TopicOptions, wanted: Slice, expression: str | Sql92) -> bytes:
    """The first records of a slice that a broker gives, one after the other; nothing if they are not there."""
    settings = attrs.evolve(options.pull_settings, expression=expression, fail_on_data_loss=False, pipeline=1)
    cluster = CLUSTERS.get(options.client_options())
    pulls = cluster.start_pulls([wanted], settings)
    try:
        return b"".join(answer.pulled.body for answer in cluster.take(pulls))
    finally:
        cluster.stop_pulls(pulls)


def read_partition(options: TopicOptions, columns: tuple[str, ...], partition: InputPartition) -> Iterator[Any]:
    """The batches of one task."""
    if isinstance(partition, SlicesPartition):  # an empty plan arrives as one InputPartition(None)
        with reason_first():
            partition.origin.check()
            prepare_worker()
            yield from read_slices(options, columns, partition.value)


def read_slices(options: TopicOptions, columns: tuple[str, ...], slices: Sequence[Slice]) -> Iterator[Any]:
    """Batches of the slices' messages: from files where storePath names them, the rest by pulls.

    Raises:
        MessagesMissing: some are gone, with failOnDataLoss=true. RecordCorrupt: an answer is damaged. ConfigError: the
        files are those of another store.
    """
    rest = []
    for one in slices:
        reached = one.begin
        if (root := options.store_path_of(one.queue.broker_name)) is not None:
            reached = yield from FileReader(options, columns, one, StoredQueue(root, one.queue)).batches()
        if reached < one.end:
            rest.append(attrs.evolve(one, begin=reached))
    if rest:
        yield from PullReader(options, columns).batches(rest)


def _decoder(options: TopicOptions, columns: tuple[str, ...], wanted: Slice | None, *, crc: bool) -> Decoder:
    """For messages of one slice, or of any."""
    selection = options.selection
    if wanted is not None:
        selection = attrs.evolve(selection, queue_offset_from=wanted.begin, queue_offset_to=wanted.end)
    return options.decoder(columns, selection, crc=crc, constants={})


@attrs.define(eq=False)
class FileReader:
    """Reads the beginning of one slice from the files of its broker's store."""

    options: TopicOptions
    columns: tuple[str, ...]
    wanted: Slice
    stored: StoredQueue

    def batches(self) -> Generator[Any, None, int]:
        """Batches of the first messages. Returns the offset of the first message that the files do not have.

        Bodies are compared with their CRC: a mount may show the beginning of a record before its end.
        """
        wanted, reached = self.wanted, self.wanted.begin
        decoder = _decoder(self.options, self.columns, wanted, crc=True)
        for image in self.stored.images(wanted.begin, wanted.end, self.options.bytes_max):
            if reached == wanted.begin and not self._is_of_broker(image):
                break
            end: End = yield from decoder.decode(image, brokerName=wanted.queue.broker_name)
            reached += end.records
            if end.status is not Status.OK:
                reason = fault_at(image, 0, end.position, decoder.checks)
                logger.warning(
                    "%s: the record of offset %d is damaged in %s (%s): pulling from the broker from there on",
                    wanted.queue,
                    reached,
                    self.stored.root,
                    reason,
                )
                break
        return reached

    def _is_of_broker(self, image: bytes) -> bool:
        """Return True if the broker has the first record, too. Raises ConfigError if it has another one at that
        offset."""
        wanted = self.wanted
        record = probed(self.options, attrs.evolve(wanted, end=wanted.begin + 1), "*")
        if record and not image.startswith(record):
            raise ConfigError(
                f"{self.stored.root} is not the store of {wanted.queue.broker_name}: message {wanted.begin} of queue "
                f"{wanted.queue.queue_id} of topic {wanted.queue.topic} is another one there. For several brokers give "
                'JSON: {"broker": "/path"}',
                key="storePath",
            )
        return bool(record)


@attrs.define(eq=False)
class PullReader:
    """Pulls slices from their brokers."""

    options: TopicOptions
    columns: tuple[str, ...]
    _settings: PullSettings = attrs.field(init=False)
    _whole: Decoder = attrs.field(init=False)  # for answers that are taken as they are

    def __attrs_post_init__(self) -> None:
        self._settings = self.options.pull_settings
        # An answer is a batch: a broker gives somewhat more than its size, and a second batch of a few rows costs the
        # JVM as much as one of many.
        size = self.options.bytes_max + self.options.bytes_max // 4
        self._whole = _decoder(attrs.evolve(self.options, bytes_max=size), self.columns, None, crc=False)

    def batches(self, slices: Sequence[Slice]) -> Iterator[Any]:
        """Batches of the slices' messages."""
        cluster, settings = CLUSTERS.get(self.options.client_options()), self._settings
        rest, lost = slices, Counter[MessageQueue]()
        if (direct := cluster.direct_pulls(slices, settings)) is not None:
            with contextlib.closing(direct):
                yield from self._batches_of(direct.take, lost)
                rest = direct.rest
        if rest:
            pulls = cluster.start_pulls(rest, settings)
            try:
                yield from self._batches_of(functools.partial(cluster.take, pulls), lost)
            finally:
                cluster.stop_pulls(pulls)
            lost += pulls.lost
        for queue, count in sorted(lost.items()):
            logger.warning("%s: %d offsets were not there any more", queue, count)

    def _batches_of(self, take: Callable[[int], list[Answer]], lost: Counter[MessageQueue]) -> Iterator[Any]:
        """Batches of the answers that `take` gives."""
        while answers := take(self.options.bytes_max):
            for group in joinable(answers, self.options.bytes_max):
                records = yield from self._decoded(group)
                if self._settings.is_of_all and records != sum(answer.offsets for answer in group):
                    self._note_gone(group, lost)

    def _decoded(self, group: list[Answer]) -> Generator[Any, None, int]:
        """Batches of answers. Returns the number of records in them."""
        first, image = group[0], b"".join(answer.pulled.body for answer in group)
        decoder = self._whole if first.is_within else _decoder(self.options, self.columns, first.run, crc=False)
        end: End = yield from decoder.decode(image, brokerName=first.run.queue.broker_name)
        if end.status is not Status.OK:
            ends = itertools.accumulate(len(answer.pulled.body) for answer in group)
            damaged = next(answer for answer, stop in zip(group, ends, strict=True) if end.position < stop)
            reason = fault_at(image, 0, end.position, decoder.checks)
            raise RecordCorrupt(end.position, f"{reason} (in an answer for {damaged.run.queue})")
        return end.records

    def _note_gone(self, group: list[Answer], lost: Counter[MessageQueue]) -> None:
        """Some offsets were skipped in these answers. Raises RecordsGone, or counts them with failOnDataLoss=false."""
        for answer in group:
            end, there = min(answer.pulled.next_begin_offset, answer.run.end), queue_offsets(answer.pulled.body)
            gone = end - answer.begin - sum(answer.begin <= offset < end for offset in there)
            if gone > 0 and self.options.fail_on_data_loss:
                raise RecordsGone(answer.run.queue, next(at for at in itertools.count(answer.begin) if at not in there))
            lost[answer.run.queue] += max(0, gone)


def queue_offsets(image: bytes) -> set[int]:
    """The queue offsets of sound records, one after the other."""
    offsets, at = set(), 0
    while at < len(image):
        size, _, queue_offset, _ = HEAD.unpack_from(image, at)
        offsets.add(queue_offset)
        at += size
    return offsets


def joinable(answers: list[Answer], size_max: int) -> Iterator[list[Answer]]:
    """Neighbours that are decoded as one image of about `size_max` bytes: a batch of few rows costs the JVM as much as
    one of many. An answer with messages after its run is alone, because those are left out."""
    group: list[Answer] = []
    size = 0
    for answer in answers:
        last, added = group[-1] if group else answer, len(answer.pulled.body)
        is_alike = last.is_within and answer.is_within and last.run.queue.broker_name == answer.run.queue.broker_name
        if group and (not is_alike or size + added > size_max):
            yield group
            group, size = [], 0
        group.append(answer)
        size += added
    if group:
        yield group
