"""Queries of the store: stored messages by key and by offset, offsets and times of queues. They are those of the pool
`query`, and follow settings that change."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker.current_settings import CurrentSettings
from rocketpy.broker.processors.queries import queries_by_code
from rocketpy.config import BrokerSettings
from tests.support.slow_path import NOW_MS, SlowPathRig

KEY = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "1", "endTimestamp": "2"}
QUEUE = {"topic": "T", "queueId": "0"}


def test_query_by_key(tmp_path: Path) -> None:
    """Holds: query, messages by key and time; answer, queries (12, 33)."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        nothing = await rig.ask(12, KEY)
        assert (nothing.code, nothing.remark) == (22, "can not find message, maybe time range not correct")
        assert nothing.ext_fields == {"indexLastUpdateTimestamp": "1", "indexLastUpdatePhyoffset": "2"}
        rig.store.found = [b"one", b"two"]
        found = await rig.ask(12, KEY | {"_UNIQUE_KEY_QUERY": "true"})
        assert (found.code, found.body) == (0, b"onetwo")
        assert rig.store.queried == [("T", "k", 64, 1, 2), ("T", "k", 32, 1, 2)]

    trio.run(main)


def test_messages_of_a_query_by_unique_key(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, default_query_max_num=5)

    async def main() -> None:
        await rig.ask(12, KEY | {"_UNIQUE_KEY_QUERY": "true"})
        await rig.ask(12, KEY | {"_UNIQUE_KEY_QUERY": "false"})
        assert [count for _, _, count, _, _ in rig.store.queried] == [5, 64]

    trio.run(main)


def test_view_by_offset(tmp_path: Path) -> None:
    """Holds: query, a message by its id; answer, queries (12, 33)."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[77] = b"record"

    async def main() -> None:
        assert (await rig.ask(33, {"offset": "77"})).body == b"record"
        missing = await rig.ask(33, {"offset": "78"})
        assert (missing.code, missing.remark) == (1, "can not find message by the offset, 78")

    trio.run(main)


def test_ends_of_a_queue_and_search_by_time(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.fill("T", 0, 9, low=2)

    async def main() -> None:
        assert (await rig.ask(30, QUEUE)).ext_fields == {"offset": "9"}
        assert (await rig.ask(31, QUEUE)).ext_fields == {"offset": "2"}
        assert (await rig.ask(32, QUEUE)).ext_fields == {"timestamp": str(NOW_MS + 2)}
        assert (await rig.ask(29, QUEUE | {"timestamp": str(NOW_MS + 5)})).ext_fields == {"offset": "5"}
        unknown = {"topic": "none", "queueId": "7"}
        assert (await rig.ask(30, unknown)).ext_fields == {"offset": "0"}
        assert (await rig.ask(31, unknown)).ext_fields == {"offset": "0"}
        assert (await rig.ask(32, unknown)).ext_fields == {"timestamp": "-1"}
        assert (await rig.ask(29, unknown | {"timestamp": "1"})).ext_fields == {"offset": "0"}

    trio.run(main)


def test_a_request_without_its_queue_is_refused(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    answer = trio.run(lambda: rig.ask(30, {"topic": "T"}))
    assert answer.code == 1 and "queueId" in (answer.remark or "")


def test_they_are_the_codes_of_the_pool(tmp_path: Path) -> None:
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from rocketpy.reactor.pools import broker_pools

    rig = SlowPathRig(tmp_path)
    pool = broker_pools(BrokerSettings()).pool("query")
    assert queries_by_code(rig.store, rig.services.settings).keys() == set(pool.codes)


def test_they_follow_what_the_manager_tells(tmp_path: Path) -> None:
    settings = CurrentSettings(SlowPathRig(tmp_path).settings)
    settings.apply(b"defaultQueryMaxNum=7\n")
    assert settings.store.default_query_max_num == 7
    settings.apply(b"defaultQueryMaxNum=8\nfileReservedTime=9\n")
    assert settings.store.default_query_max_num == 8
