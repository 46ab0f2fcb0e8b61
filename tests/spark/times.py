"""A check that ranges by time begin and end at the first message stored at or after the time, in every queue."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import rocketpy.spark
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.options import parse_options
from rocketpy.spark.ranges import Ranges
from rocketpy.spark.topic_options import TopicOptions


def check_times(spark: Any, namesrv: str, topic: str, queues: Collection[MessageQueue]) -> list[tuple[int, int]]:
    """Compare both ends of a range, for each time of a message, with the store times of all messages.

    Returns: queue id and store time in ms of each message.
    """
    rows = rocketpy.spark.read(spark, nameServer=namesrv, topic=topic, columns="queueId,storeTimestamp").collect()
    stored = [(row.queueId, int(row.storeTimestamp.timestamp() * 1000 + 0.5)) for row in rows]
    times = {time for _, time in stored}
    for time_ms in sorted(times | {max(times) + 1, min(times) - 1}):
        given = {"nameServer": namesrv, "topic": topic, "startingTimestamp": str(time_ms)}
        given |= {"endingTimestamp": str(time_ms), "startingOffsetsByTimestampStrategy": "latest"}
        options = parse_options(TopicOptions, given)
        ranges = Ranges(options, CLUSTERS.get(options.client_options()))
        bounds = ranges.cluster.bounds(ranges.queues())
        before = {queue: sum(of == queue.queue_id and at < time_ms for of, at in stored) for queue in queues}
        assert ranges.starts(bounds, "earliest") == ranges.ends(bounds) == before
    return stored
