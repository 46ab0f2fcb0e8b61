"""Inside a broker: BrokerStatsData (315), QueryConsumeQueueResponseBody (321)."""

from __future__ import annotations

from .heartbeat import SubscriptionData
from .schema import Body, Int, body, wire


@body
class BrokerStatsItem(Body):
    avgpt: float = wire("avgpt", default=0.0)
    sum: int = wire("sum", default=0)
    tps: float = wire("tps", default=0.0)


@body
class BrokerStatsData(Body):
    stats_day: BrokerStatsItem = wire("statsDay", factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = wire("statsHour", factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = wire("statsMinute", factory=BrokerStatsItem)


@body
class ConsumeQueueData(Body):
    bit_map: str | None = wire("bitMap", default=None)
    eval: bool = wire("eval", default=False)
    extend_data_json: str | None = wire("extendDataJson", default=None)
    msg: str | None = wire("msg", default=None)
    physic_offset: int = wire("physicOffset", default=0)
    physic_size: Int = wire("physicSize", default=0)
    tags_code: int = wire("tagsCode", default=0)


@body
class QueryConsumeQueueResponseBody(Body):
    filter_data: str | None = wire("filterData", default=None)  # a JSON text, "null" without a filter
    max_queue_index: int = wire("maxQueueIndex", default=0)
    min_queue_index: int = wire("minQueueIndex", default=0)
    queue_data: list[ConsumeQueueData] | None = wire("queueData", default=None)
    subscription_data: SubscriptionData | None = wire("subscriptionData", default=None)
