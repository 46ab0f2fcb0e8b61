"""Offsets of groups and delay levels, for admins."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import SlowPathRig, body_of

QUEUE = {"topic": "T", "queueId": "0"}
LONG_MAX = (1 << 63) - 1


def test_whole_tables_for_a_slave(tmp_path: Path) -> None:
    """Holds: replication, metadata on slaves."""
    rig = SlowPathRig(tmp_path)
    rig.services.offsets.commit("G", "T", 1, 6)
    rig.services.offsets.commit("G", "T", 0, 5)

    async def main() -> None:
        assert (await rig.ask(43)).body == b'{"offsetTable":{"T@G":{0:5,1:6}}}'
        assert (await rig.ask(45)).body == b'{"offsetTable":{}}'

    trio.run(main)


def test_correction_works_on_a_copy(tmp_path: Path) -> None:
    """Holds: trap, QUERY_CORRECTION_OFFSET destroys offsets."""
    rig = SlowPathRig(tmp_path)
    offsets = rig.services.offsets
    for group, first, second in (("A", 5, 8), ("B", 3, 9), ("LOW", 1, 1), ("C", 4, 20)):
        offsets.commit(group, "T", 0, first)
        offsets.commit(group, "T", 1, second)

    async def ask(**fields: str) -> object:
        return body_of(await rig.ask(308, {"topic": "T", **fields}))["correctionOffsets"]

    async def main() -> None:
        before = fastjson.dumps(offsets.document())
        assert await ask() == {"0": 1, "1": 1}
        assert await ask(filterGroups="LOW,none") == {"0": 3, "1": 8}
        assert await ask(filterGroups="LOW", compareGroup="LOW") == {"0": LONG_MAX, "1": LONG_MAX}
        assert await ask(filterGroups="LOW", compareGroup="C") == {"0": 3, "1": 8}
        assert fastjson.dumps(offsets.document()) == before

    trio.run(main)


def test_clone_of_one_topic_and_of_all(tmp_path: Path) -> None:
    """Holds: trap, CLONE_GROUP_OFFSET without a topic does nothing."""
    rig = SlowPathRig(tmp_path)
    for topic in ("T", "U"):
        rig.services.topics.update(TopicConfig(topic_name=topic))
        rig.services.offsets.commit("G", topic, 0, 5)
    rig.services.offsets.commit("G", "deleted", 0, 5)

    async def main() -> None:
        clone = {"srcGroup": "G", "destGroup": "H", "offline": "false"}
        assert (await rig.ask(314, clone | {"topic": "T"})).code == 0
        assert rig.services.offsets.topics_of("H") == ["T"]
        assert (await rig.ask(314, clone)).code == 0
        assert rig.services.offsets.topics_of("H") == ["T", "U"]

    trio.run(main)
