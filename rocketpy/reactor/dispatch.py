"""Which pool serves a request code, and in which process that pool lives.

SEND and PULL requests that need no decision are served in C (`send`, `pull` processes); the codec is given those codes
as an array. Every other request is a command for a manager process, where each pool is a bounded queue and a number of
trio tasks. A pool with one task serves the requests of every connection in the order in which they were sent; with
more, requests of one connection may overtake each other, as in the reference.

Source: RocketMQ 4.9 `BrokerController#registerProcessor`, `BrokerFastFailure`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketpy.codes import RequestCode
from rocketpy.errors import ConfigError

FAST_SEND_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
FAST_PULL_CODES = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
SERVED_ON_MAIN_PORT_ONLY = FAST_PULL_CODES
DESTINATION_SEND = 0
DESTINATION_PULL = 1
DESTINATION_MANAGER = 2  # + number of the manager; RP_TO_* of csrc/workers/codec.h


@attrs.frozen(kw_only=True)
class Pool:
    """One kind of requests in a manager process."""

    name: str
    tasks: int = attrs.field(validator=attrs.validators.ge(1))
    queue_max: int = attrs.field(validator=attrs.validators.ge(1))
    """Requests that wait; one more is answered SYSTEM_BUSY at once."""
    queue_bytes_max: int = attrs.field(default=32 * 1024 * 1024, validator=attrs.validators.ge(1))
    """Bytes of the requests that wait, likewise; into an empty queue any single request goes."""
    wait_max_ms: int | None = None
    """A request that has waited longer is answered SYSTEM_BUSY when its turn comes; None: however long."""
    manager: int = 0
    """Number of the manager process that it lives in."""


DEFAULT_POOLS = (
    Pool(name="send", tasks=4, queue_max=10_000),  # send-backs, replies, and sends in a form that C does not read
    Pool(name="pull", tasks=4, queue_max=10_000),
    Pool(name="query", tasks=4, queue_max=20_000),
    Pool(name="client", tasks=1, queue_max=50_000, wait_max_ms=31_000),  # in order: heartbeat, then unregister
    Pool(name="consumer", tasks=1, queue_max=50_000),  # in order: an older offset never overwrites a newer one
    Pool(name="transaction", tasks=8, queue_max=100_000, wait_max_ms=3_000),
    Pool(name="admin", tasks=4, queue_max=10_000),
)
DEFAULT_POOL = "admin"
POOL_OF_CODE: Mapping[int, str] = {
    **dict.fromkeys(FAST_SEND_CODES, "send"),
    **dict.fromkeys(FAST_PULL_CODES, "pull"),
    RequestCode.CONSUMER_SEND_MSG_BACK: "send",
    RequestCode.SEND_REPLY_MESSAGE: "send",
    RequestCode.SEND_REPLY_MESSAGE_V2: "send",
    RequestCode.QUERY_MESSAGE: "query",
    RequestCode.VIEW_MESSAGE_BY_ID: "query",
    RequestCode.HEART_BEAT: "client",
    RequestCode.UNREGISTER_CLIENT: "client",
    RequestCode.CHECK_CLIENT_CONFIG: "client",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "consumer",
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumer",
    RequestCode.QUERY_CONSUMER_OFFSET: "consumer",
    RequestCode.END_TRANSACTION: "transaction",
}


@attrs.frozen
class DispatchTable:
    """Pools and the codes they serve; what is not named goes to `default_pool`."""

    pools: tuple[Pool, ...] = DEFAULT_POOLS
    pool_of_code: Mapping[int, str] = attrs.field(factory=lambda: dict(POOL_OF_CODE))
    default_pool: str = DEFAULT_POOL

    def __attrs_post_init__(self) -> None:
        known = {pool.name for pool in self.pools}
        for name in {*self.pool_of_code.values(), self.default_pool}:
            if name not in known:
                raise ConfigError(f"pool {name} serves requests but is not declared; declared are {sorted(known)}")

    def pool(self, name: str) -> Pool:
        return next(pool for pool in self.pools if pool.name == name)

    def pool_for(self, code: int) -> Pool:
        return self.pool(self.pool_of_code.get(code, self.default_pool))

    def pools_of_manager(self, manager: int) -> tuple[Pool, ...]:
        return tuple(pool for pool in self.pools if pool.manager == manager)

    def routes(self) -> list[tuple[int, int]]:
        """(code, destination) of every code that does not simply go to manager 0: the codec's table."""
        routes: list[tuple[int, int]] = []
        for code, name in sorted(self.pool_of_code.items()):
            if code in FAST_SEND_CODES:
                routes.append((int(code), DESTINATION_SEND))
            elif code in FAST_PULL_CODES:
                routes.append((int(code), DESTINATION_PULL))
            elif manager := self.pool(name).manager:
                routes.append((int(code), DESTINATION_MANAGER + manager))
        return routes
