"""Stored messages by key and by offset."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.support.slow_path import SlowPathRig

KEY = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "1", "endTimestamp": "2"}


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
