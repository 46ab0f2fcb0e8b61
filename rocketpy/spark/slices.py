"""The tasks of a plan for topics: slices of queues, pulled and decoded in an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import attrs
from pyspark.sql.datasource import InputPartition

from rocketpy.errors import RecordCorrupt
from rocketpy.native.status import Status

from .cluster import CLUSTERS
from .decoder import End, fault_at
from .planning import MESSAGE_BYTES, pack
from .pulls import Slice
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
    settings = attrs.evolve(options.pull_settings, fail_on_data_loss=False, pipeline=1)
    cluster = CLUSTERS.get(options.client_options())
    pulls = cluster.start_pulls(probe, settings)
    sizes = [len(answer.body) for answer in cluster.take(pulls)]
    cluster.stop_pulls(pulls)
    return max(1, sum(sizes) // probe.count) if sum(sizes) else MESSAGE_BYTES


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
    """Pulls one slice and decodes what comes."""

    options: TopicOptions
    columns: tuple[str, ...]
    wanted: Slice

    def batches(self) -> Iterator[Any]:
        """Batches of the slice's messages.

        Raises:
            DataLost: some are gone, with failOnDataLoss=true. RecordCorrupt: an answer is damaged.
        """
        wanted = self.wanted
        decoder = self.options.decoder(
            self.columns,
            attrs.evolve(self.options.selection, queue_offset_from=wanted.begin, queue_offset_to=wanted.end),
            constants={"brokerName": wanted.queue.broker_name},
        )
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
