"""The table of pools: which pool serves a request code, in which processes, and what bounds it.

Each request code that the broker serves stands in one row. The codec takes its routes from here, the processes of the
slow path their queues and tasks, statistics and metrics the bounds that they show
(docs/understand/architecture.md, Pools).

    send     C; one process, for the CommitLog has one writer: more of them would need a lock around each append
    pull     C; pullWorkers processes, each of which owns some of the queues (csrc/ipc/worker.h)
    query    Python; queryWorkers processes that only read the store; without them the manager serves their rows
    manager  Python; one process, which owns the tables; serves all other rows, and what others cannot read

In a process of Python, a pool is a bounded queue and a number of trio tasks. With one task it serves the requests of a
connection in the order in which they were sent; with more, they may overtake each other, as in the reference.

Source: RocketMQ 4.9 `BrokerController#registerProcessor`, `BrokerFastFailure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from rocketpy.codes import RequestCode
from rocketpy.config import BrokerSettings
from rocketpy.errors import ConfigError
from rocketpy.native.core import lib

SEND, PULL, MANAGER, QUERY = "send", "pull", "manager", "query"
_ROUTES: Mapping[str, int] = {SEND: lib.RP_TO_SEND, PULL: lib.RP_TO_PULL, QUERY: lib.RP_TO_QUERY}


@attrs.frozen(kw_only=True)
class Pool:
    """One row: requests that are served alike."""

    name: str
    codes: tuple[int, ...] = ()
    served_by: str = MANAGER
    """Kind of the processes that serve it; where there is none, and for what they cannot read, the manager does."""
    tasks: int = attrs.field(validator=attrs.validators.ge(1))
    queue_max: int = attrs.field(validator=attrs.validators.ge(1))
    """Requests that wait for the tasks of a process; one more is answered SYSTEM_BUSY at once."""
    queue_bytes_max: int = attrs.field(default=32 * 1024 * 1024, validator=attrs.validators.ge(1))
    """Bytes of the requests that wait, likewise; into an empty queue any single request goes."""
    wait_max_ms: int | None = None
    """A request that has waited longer is answered SYSTEM_BUSY when its turn comes; None: however long."""
    main_port_only: bool = False
    """The VIP port (listenPort - 2) answers these codes REQUEST_CODE_NOT_SUPPORTED."""


@attrs.frozen
class PoolTable:
    """All rows, as one value."""

    pools: tuple[Pool, ...]
    default: str = "admin"
    """Pool of the codes that are in no row: they are answered REQUEST_CODE_NOT_SUPPORTED in their turn."""
    _by_code: Mapping[int, Pool] = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        by_code: dict[int, Pool] = {}
        for pool in self.pools:
            for code in pool.codes:
                if code in by_code:
                    raise ConfigError(f"request code {code} stands in the pools {by_code[code].name} and {pool.name}")
                by_code[code] = pool
        object.__setattr__(self, "_by_code", by_code)
        self.pool(self.default)

    @property
    def codes(self) -> frozenset[int]:
        """Every code that has a row."""
        return frozenset(self._by_code)

    def pool(self, name: str) -> Pool:
        """The row of this name.

        Raises:
            ConfigError: there is none of this name.
        """
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise ConfigError(f"there is no pool {name}; there are {', '.join(pool.name for pool in self.pools)}")

    def pool_for(self, code: int) -> Pool:
        return self._by_code.get(code) or self.pool(self.default)

    def only_served_by(self, worker: str) -> PoolTable:
        """The rows of one kind of process. A code of another row gets into its first pool, and is answered
        REQUEST_CODE_NOT_SUPPORTED there in its turn."""
        pools = tuple(pool for pool in self.pools if pool.served_by == worker)
        return PoolTable(pools, default=pools[0].name)

    def routes(self) -> Iterator[tuple[int, int]]:
        """(code, destination) of every code that does not simply go to the manager: the codec's table."""
        for code, pool in sorted(self._by_code.items()):
            if pool.served_by != MANAGER:
                yield int(code), _ROUTES[pool.served_by]


def broker_pools(settings: BrokerSettings) -> PoolTable:
    """The broker's table, with the bounds that the settings say."""
    broker = settings.broker
    code = RequestCode

    def age(limit_ms: int) -> int | None:
        return limit_ms if broker.broker_fast_failure_enable else None

    return PoolTable(
        (
            Pool(
                name="send",
                codes=(code.SEND_MESSAGE, code.SEND_MESSAGE_V2, code.SEND_BATCH_MESSAGE),
                served_by=SEND,
                tasks=4,
                queue_max=10_000,
                wait_max_ms=age(broker.wait_time_mills_in_send_queue),
            ),
            Pool(
                name="pull",
                codes=(code.PULL_MESSAGE, code.LITE_PULL_MESSAGE),
                served_by=PULL,
                tasks=4,
                queue_max=10_000,
                wait_max_ms=age(broker.wait_time_mills_in_pull_queue),
                main_port_only=True,
            ),
            Pool(name="transaction", codes=(code.END_TRANSACTION,), served_by=SEND, tasks=4, queue_max=10_000),
            Pool(
                name="query",
                codes=_QUERY_CODES,
                served_by=QUERY,
                tasks=4,
                queue_max=broker.query_thread_pool_queue_capacity,
            ),
            Pool(
                name="client",  # one task: a client that leaves must not be entered again by its last heartbeat
                codes=(code.HEART_BEAT, code.UNREGISTER_CLIENT, code.CHECK_CLIENT_CONFIG),
                tasks=1,
                queue_max=broker.heartbeat_thread_pool_queue_capacity,
                wait_max_ms=age(broker.wait_time_mills_in_heartbeat_queue),
            ),
            Pool(
                name="consumer",  # one task: an older offset must not overwrite a newer one
                codes=(code.GET_CONSUMER_LIST_BY_GROUP, code.UPDATE_CONSUMER_OFFSET, code.QUERY_CONSUMER_OFFSET),
                tasks=1,
                queue_max=50_000,
            ),
            Pool(name="reply", codes=_REPLY_CODES, tasks=4, queue_max=broker.reply_thread_pool_queue_capacity),
            Pool(name="send_back", codes=(code.CONSUMER_SEND_MSG_BACK,), tasks=4, queue_max=10_000),
            Pool(
                name="admin",
                codes=_OTHER_CODES,
                tasks=4,
                queue_max=10_000,
                wait_max_ms=age(broker.wait_time_mills_in_admin_broker_queue),
            ),
        )
    )


_QUERY_CODES = (
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)
_REPLY_CODES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
_OTHER_CODES = (
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_REPLICATION_VERSION,
    RequestCode.GET_ALL_CONSUMER_FILTER,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
)
