"""A broker as a whole: BrokerStatsData (315), QueryConsumeQueueResponseBody (321), HaStatus (907)."""

from __future__ import annotations

from .client import SubscriptionData
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


@body
class SlaveConnection(Body):
    """A slave that is connected to this master. `lag_ms`, `sent_bytes` and `state` are of rocketpy alone."""

    addr: str = wire("addr", default="")  # of the connection, host:port
    diff: int = wire("diff", default=0)  # bytes of the log that it has not acknowledged
    in_sync: bool = wire("inSync", default=False)  # a synchronous send may wait for it
    lag_ms: int = wire("lagMillis", default=0)  # since it last acknowledged something, while bytes wait for it
    sent_bytes: int = wire("sentBytes", default=0)  # of the log, on this connection
    slave_ack_offset: int = wire("slaveAckOffset", default=0)
    state: str = wire("state", default="")  # of rocketpy/replication/slave_table.py


@body
class FollowedMaster(Body):
    """The master whose log this slave copies."""

    activated: bool = wire("activated", default=False)  # it follows a master now
    master_addr: str = wire("masterAddr", default="")  # for requests; empty: none is followed
    max_offset: int = wire("maxOffset", default=0)  # the end of the slave's own log


@body
class HaStatus(Body):
    """A broker's part in replication, at one moment.

    The names are those of 5.x where the meaning is the same, so `mqadmin haStatus` of 5.x understands the answer.
    Values that rocketpy does not measure (speeds, times of reads and writes) are left out. From `broker_id` on: of
    rocketpy alone.
    """

    ha_client_runtime_info: FollowedMaster = wire("haClientRuntimeInfo", factory=FollowedMaster)
    ha_connection_info: list[SlaveConnection] = wire("haConnectionInfo", factory=list)
    in_sync_slave_nums: Int = wire("inSyncSlaveNums", default=0)
    master: bool = wire("master", default=False)
    master_commit_log_max_offset: int = wire("masterCommitLogMaxOffset", default=0)
    broker_id: int = wire("brokerId", default=0)
    commit_log_max_offset: int = wire("commitLogMaxOffset", default=0)
    commit_log_min_offset: int = wire("commitLogMinOffset", default=0)
    epoch: int = wire("epoch", default=-1)  # with automatic failover, of a master: the one that it serves
    member_state: str = wire("memberState", default="")  # with automatic failover: docs/run/failover-reference.md
    role: str = wire("role", default="")  # brokerRole
