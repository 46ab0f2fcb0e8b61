"""Groups and members for admins."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.support.slow_path import NOW_MS, SlowPathRig, body_of


def test_update_list_and_delete(tmp_path: Path) -> None:
    """Holds: answer, groups (200, 201, 203, 204, 207)."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        assert (await rig.ask(200, None, {"groupName": "G", "retryMaxTimes": 3, "groupSysFlag": 1})).code == 0
        assert rig.fast_path.named("group_changed")[-1][0] == "G"
        table = body_of(await rig.ask(201))["subscriptionGroupTable"]
        assert table["G"]["retryMaxTimes"] == 3 and table["TOOLS_CONSUMER"]["retryMaxTimes"] == 16
        assert body_of(await rig.ask(352, {"group": "G"}))["retryMaxTimes"] == 3
        assert (await rig.ask(352, {"group": "none"})).code == 26
        assert (await rig.ask(200, None, {"groupName": "bad name"})).code == 1
        assert (await rig.ask(200)).code == 1
        rig.services.offsets.commit("G", "T", 0, 5)
        assert (await rig.ask(207, {"groupName": "G", "removeOffset": "false"})).code == 0
        assert rig.services.offsets.query("G", "T", 0) == 5
        assert (await rig.ask(207, {"groupName": "G", "cleanOffset": "true"})).code == 0
        assert rig.services.offsets.query("G", "T", 0) == -1
        assert rig.services.groups.select("G") is None
        assert '"G"' not in (tmp_path / "config" / "subscriptionGroup.json").read_text()

    trio.run(main)


@pytest.mark.parametrize("queue_nums", [-1, 65_537, 2**31 - 1])
def test_a_retry_topic_has_as_many_queues_as_any(tmp_path: Path, queue_nums: int) -> None:
    """Fault: With a retryQueueNums of 2147483647 a member's heartbeat took all queues that a store can have."""
    rig = SlowPathRig(tmp_path)
    answer = trio.run(lambda: rig.ask(200, None, {"groupName": "G", "retryQueueNums": queue_nums}))
    assert (answer.code, answer.remark) == (1, f"a retry topic has 0 to 65536 queues, not {queue_nums}")
    assert rig.services.groups.select("G") is None


def test_connections(tmp_path: Path) -> None:
    """Holds: answer, groups (200, 201, 203, 204, 207)."""
    rig = SlowPathRig(tmp_path)
    connection = {"clientAddr": "10.0.0.1:4000", "clientId": "a", "language": "JAVA", "version": 409}

    async def main() -> None:
        offline = await rig.ask(203, {"consumerGroup": "G"})
        assert (offline.code, offline.remark) == (206, "the consumer group[G] not online")
        nobody = await rig.ask(204, {"producerGroup": "P"})
        assert (nobody.code, nobody.remark) == (1, "the producer group[P] not exist")
        await rig.heartbeat("a", group="G", topics={"T": "TagA"}, producer="P")
        consumers = body_of(await rig.ask(203, {"consumerGroup": "G"}))
        assert consumers["connectionSet"] == [connection]
        assert consumers["consumeType"] == "CONSUME_PASSIVELY" and consumers["messageModel"] == "CLUSTERING"
        assert consumers["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
        assert consumers["subscriptionTable"]["T"]["subString"] == "TagA"
        assert body_of(await rig.ask(204, {"producerGroup": "P"})) == {"connectionSet": [connection]}
        producer = {
            "clientId": "a",
            "language": "JAVA",
            "lastUpdateTimestamp": NOW_MS,
            "remoteIP": "/10.0.0.1:4000",
            "version": 409,
        }
        assert body_of(await rig.ask(328)) == {"data": {"P": [producer]}}

    trio.run(main)
