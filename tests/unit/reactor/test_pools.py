"""The table of pools: every request code has one row, and everybody reads that one."""

from __future__ import annotations

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode
from rocketpy.config import BrokerConfig, BrokerSettings
from rocketpy.errors import ConfigError
from rocketpy.native.core import lib
from rocketpy.reactor.pools import QUERY, Pool, PoolTable, broker_pools
from tests.support.cases import cases

TABLE = broker_pools(BrokerSettings())


@cases(
    "code, pool",
    [
        (RequestCode.SEND_MESSAGE_V2, "send"),
        (RequestCode.CONSUMER_SEND_MSG_BACK, "send_back"),
        (RequestCode.SEND_REPLY_MESSAGE, "reply"),
        (RequestCode.PULL_MESSAGE, "pull"),
        (RequestCode.VIEW_MESSAGE_BY_ID, "query"),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "query"),
        (RequestCode.HEART_BEAT, "client"),
        (RequestCode.UNREGISTER_CLIENT, "client"),
        (RequestCode.UPDATE_CONSUMER_OFFSET, "consumer"),
        (RequestCode.GET_BROKER_CONFIG, "admin"),
        (9999, "admin"),
    ],
)
def test_pool_of_a_code(code: int, pool: str) -> None:
    """Holds: broker, processors and pools; network, request code, processor and pool."""
    assert TABLE.pool_for(code).name == pool


def test_requests_that_must_not_overtake_each_other_share_a_pool_of_one() -> None:
    for codes in (
        (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT),
        (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET),
    ):
        pools = {TABLE.pool_for(code).name for code in codes}
        assert len(pools) == 1
        assert TABLE.pool(pools.pop()).tasks == 1


def test_the_codec_is_told_what_does_not_go_to_the_manager() -> None:
    send, pull = lib.RP_TO_SEND, lib.RP_TO_PULL
    routes = list(TABLE.routes())
    assert [route for route in routes if route[1] != lib.RP_TO_QUERY] == [
        (10, send),
        (11, pull),
        (37, send),
        (310, send),
        (320, send),
        (361, pull),
    ]
    assert {code for code, to in routes if to == lib.RP_TO_QUERY} == {12, 29, 30, 31, 32, 33}


def test_what_the_settings_say_bounds_the_pools() -> None:
    broker = BrokerConfig(
        query_thread_pool_queue_capacity=7,
        wait_time_mills_in_heartbeat_queue=8,
        wait_time_mills_in_admin_broker_queue=9,
    )
    table = broker_pools(BrokerSettings(broker=broker))
    assert table.pool("query").queue_max == 7
    assert table.pool("client").wait_max_ms == 8
    assert table.pool("admin").wait_max_ms == 9 and TABLE.pool("admin").wait_max_ms == 5_000
    patient = broker_pools(BrokerSettings(broker=attrs.evolve(broker, broker_fast_failure_enable=False)))
    assert {pool.wait_max_ms for pool in patient.pools} == {None}


def test_a_query_worker_has_its_own_pool_alone() -> None:
    table = TABLE.only_served_by(QUERY)
    assert [pool.name for pool in table.pools] == ["query"]
    assert table.pool_for(RequestCode.HEART_BEAT).name == "query", "where it is refused in its turn"


def test_a_code_in_two_rows_is_refused() -> None:
    rows = (Pool(name="a", codes=(1, 2), tasks=1, queue_max=1), Pool(name="b", codes=(2,), tasks=1, queue_max=1))
    with pytest.raises(ConfigError, match="request code 2 stands in the pools a and b"):
        PoolTable(rows, default="a")


def test_a_default_pool_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no pool admin; there are send"):
        PoolTable((Pool(name="send", tasks=1, queue_max=1),))


@pytest.mark.parametrize("change", [{"tasks": 0}, {"queue_max": 0}])
def test_a_pool_has_at_least_one_task_and_one_place(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=">= 1"):
        Pool(**{"name": "x", "tasks": 1, "queue_max": 1, **change})
