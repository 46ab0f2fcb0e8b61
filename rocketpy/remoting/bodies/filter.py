"""The file consumerFilter.json: SQL92 subscriptions with their filter bits."""

from __future__ import annotations

from .schema import Body, Int, body, wire


@body
class BloomFilterData(Body):
    bit_num: Int = wire("bitNum", default=0)
    bit_pos: list[Int] = wire("bitPos", factory=list)


@body
class ConsumerFilterData(Body):
    """One subscription. Times are milliseconds since 1970; it is dead, its group has left, if `dead_time` is not before
    `born_time`."""

    bloom_filter_data: BloomFilterData | None = wire("bloomFilterData", default=None)
    born_time: int = wire("bornTime", default=0)
    client_version: int = wire("clientVersion", default=0)  # subVersion of the subscription
    consumer_group: str = wire("consumerGroup", default="")
    dead: bool = wire("dead", default=False)  # written for readers; the times say it
    dead_time: int = wire("deadTime", default=0)
    expression: str = wire("expression", default="")
    expression_type: str = wire("expressionType", default="SQL92")
    topic: str = wire("topic", default="")

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


@body
class FilterDataOfTopic(Body):
    group_filter_data: dict[str, ConsumerFilterData] = wire("groupFilterData", factory=dict)
    topic: str = wire("topic", default="")


@body
class FilterDocument(Body):
    filter_data_by_topic: dict[str, FilterDataOfTopic] = wire("filterDataByTopic", factory=dict)
