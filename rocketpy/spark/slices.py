"""The tasks of a plan for topics: slices of queues, pulled and decoded in an executor."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import Any

import attrs
from pyspark.sql.datasource import InputPartition

from rocketpy.client.consuming.subscription import Sql92
from rocketpy.errors import ConfigError, RecordCorrupt
from rocketpy.native.status import Status

from .cluster import CLUSTERS
from .decoder import Decoder, End, fault_at
from .planning import MESSAGE_BYTES, pack
from .pulls import Slice
from .stored_queue import StoredQueue
from .topic_options import TopicOptions
from .worker import Origin, prepare_worker

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
    pulls = cluster.start_pulls(wanted, settings)
    try:
        return b"".join(answer.body for answer in cluster.take(pulls))
    finally:
        cluster.stop_pulls(pulls)


def read_partition(options: TopicOptions, columns: tuple[str, ...], partition: InputPartition) -> Iterator[Any]:
    """The batches of one task."""
    if not isinstance(partition, SlicesPartition):  # an empty plan arrives as one InputPartition(None)
        return
    partition.origin.check()
    prepare_worker()
    for one in partition.value:
        yield from SliceReader(options, columns, one).batches()


def joined(images: list[bytes], size_max: int) -> Iterator[bytes]:
    """Neighbours as one image of about `size_max` bytes: a batch of few rows costs the JVM as much as one of many."""
    group: list[bytes] = []
    size = 0
    for image in images:
        if group and size + len(image) > size_max:
            yield b"".join(group)
            group, size = [], 0
        group.append(image)
        size += len(image)
    if group:
        yield b"".join(group)


@attrs.define(eq=False)
class SliceReader:
    """Reads one slice: its begin from files where storePath names them, the rest by pulls."""

    options: TopicOptions
    columns: tuple[str, ...]
    wanted: Slice

    def batches(self) -> Iterator[Any]:
        """Batches of the slice's messages.

        Raises:
            DataLost: some are gone, with failOnDataLoss=true. RecordCorrupt: an answer is damaged. ConfigError: the
            files are those of another store.
        """
        reached = self.wanted.begin
        if (root := self.options.store_path_of(self.wanted.queue.broker_name)) is not None:
            reached = yield from self._from_files(StoredQueue(root, self.wanted.queue))
        if reached < self.wanted.end:
            yield from self._pulled(attrs.evolve(self.wanted, begin=reached))

    def _decoder(self, *, crc: bool) -> Decoder:
        wanted = self.wanted
        return self.options.decoder(
            self.columns,
            attrs.evolve(self.options.selection, queue_offset_from=wanted.begin, queue_offset_to=wanted.end),
            crc=crc,
            constants={"brokerName": wanted.queue.broker_name},
        )

    def _from_files(self, stored: StoredQueue) -> Generator[Any, None, int]:
        """Batches of the first messages. Returns the offset of the first message that the files do not have.

        Bodies are compared with their CRC: a mount may show a record's begin before its end.
        """
        wanted, reached = self.wanted, self.wanted.begin
        decoder = self._decoder(crc=True)
        for image in stored.images(wanted.begin, wanted.end, self.options.bytes_max):
            if reached == wanted.begin and not self._is_of_broker(stored, image):
                break
            end: End = yield from decoder.decode(image)
            reached += end.records
            if end.status is not Status.OK:
                reason = fault_at(image, 0, end.position, decoder.checks)
                logger.warning(
                    "%s: the record of offset %d is damaged in %s (%s): pulling from the broker from there on",
                    wanted.queue,
                    reached,
                    stored.root,
                    reason,
                )
                break
        return reached

    def _is_of_broker(self, stored: StoredQueue, image: bytes) -> bool:
        """Whether the broker has the first record, too. Raises ConfigError if it has another one."""
        wanted = self.wanted
        record = probed(self.options, attrs.evolve(wanted, end=wanted.begin + 1), "*")
        if record and not image.startswith(record):
            raise ConfigError(
                f"{stored.root} is not the store of {wanted.queue.broker_name}: message {wanted.begin} of queue "
                f"{wanted.queue.queue_id} of topic {wanted.queue.topic} is another one there. For several brokers give "
                'JSON: {"broker": "/path"}',
                key="storePath",
            )
        return bool(record)

    def _pulled(self, wanted: Slice) -> Iterator[Any]:
        decoder = self._decoder(crc=False)
        cluster = CLUSTERS.get(self.options.client_options())
        pulls = cluster.start_pulls(wanted, self.options.pull_settings)
        try:
            while answers := cluster.take(pulls):
                for image in joined([answer.body for answer in answers], self.options.bytes_max):
                    end: End = yield from decoder.decode(image)
                    if end.status is not Status.OK:
                        reason = fault_at(image, 0, end.position, decoder.checks)
                        raise RecordCorrupt(end.position, f"{reason} (in an answer for {wanted.queue})")
        finally:
            cluster.stop_pulls(pulls)
        if pulls.lost:
            logger.warning("%s: %d offsets were not there any more", wanted.queue, pulls.lost)
