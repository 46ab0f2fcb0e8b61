"""Dispatch table: every request code has one pool, every pool one process."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.codes import RequestCode
from rocketpy.errors import ConfigError
from rocketpy.reactor.dispatch import DEFAULT_POOLS, DispatchTable, Pool

TABLE = DispatchTable()


@pytest.mark.parametrize(
    ("code", "pool"),
    [
        (RequestCode.SEND_MESSAGE_V2, "send"),
        (RequestCode.CONSUMER_SEND_MSG_BACK, "send"),
        (RequestCode.PULL_MESSAGE, "pull"),
        (RequestCode.VIEW_MESSAGE_BY_ID, "query"),
        (RequestCode.HEART_BEAT, "client"),
        (RequestCode.UNREGISTER_CLIENT, "client"),
        (RequestCode.UPDATE_CONSUMER_OFFSET, "consumer"),
        (RequestCode.END_TRANSACTION, "transaction"),
        (RequestCode.GET_BROKER_CONFIG, "admin"),
        (9999, "admin"),
    ],
)
def test_pool_of_a_code(code: int, pool: str) -> None:
    assert TABLE.pool_for(code).name == pool


def test_requests_that_must_not_overtake_each_other_share_a_pool_of_one() -> None:
    for codes in (
        (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT),
        (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET),
    ):
        pools = {TABLE.pool_for(code).name for code in codes}
        assert len(pools) == 1
        assert TABLE.pool(pools.pop()).tasks == 1


def test_the_codec_is_told_the_hot_codes_and_the_pools_of_further_managers() -> None:
    assert TABLE.routes() == [(10, 0), (11, 1), (310, 0), (320, 0), (361, 1)]
    pools = tuple(attrs.evolve(pool, manager=1) if pool.name == "query" else pool for pool in DEFAULT_POOLS)
    assert set(DispatchTable(pools=pools).routes()) - set(TABLE.routes()) == {(12, 3), (33, 3)}


def test_a_pool_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="pool admin serves requests but is not declared"):
        DispatchTable(pools=(Pool(name="send", tasks=1, queue_max=1),), pool_of_code={})


@pytest.mark.parametrize("change", [{"tasks": 0}, {"queue_max": 0}])
def test_a_pool_has_at_least_one_task_and_one_place(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=">= 1"):
        Pool(**{"name": "x", "tasks": 1, "queue_max": 1, **change})
