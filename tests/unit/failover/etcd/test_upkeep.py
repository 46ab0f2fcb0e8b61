"""The upkeep of etcd: alarms are told once, old history is removed by the master, and little is written."""

from __future__ import annotations

import pytest
import trio

from rocketpy.failover.etcd.coordinator import END_S
from rocketpy.failover.etcd.gateway import EtcdStatus
from rocketpy.failover.etcd.upkeep import LOOK_S, QUOTA_BYTES, remedy
from tests.support.failover.live import LiveGroup
from tests.support.failover.model_keys import ModelKeys
from tests.unit.failover.etcd.test_coordinator import play

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("status", "task"),
    [
        (EtcdStatus(db_bytes=1 << 20), ""),
        (EtcdStatus(alarms="NOSPACE"), "alarm disarm"),
        (EtcdStatus(db_bytes=QUOTA_BYTES - 1), "defrag"),
    ],
)
def test_an_alarm_and_a_full_database_have_a_remedy(status: EtcdStatus, task: str) -> None:
    assert (task in remedy(status)) if task else not remedy(status)


def test_an_alarm_is_logged_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        keys.alarms = "NOSPACE"
        await trio.sleep(3 * LOOK_S)
        assert caplog.text.count("etcd has NOSPACE") == 2, "once by each member"
        assert group.coordinators[first].upkeep.status.alarms == "NOSPACE"
        keys.alarms = ""
        await trio.sleep(2 * LOOK_S)
        assert caplog.text.count("etcd has no alarm any more") == 2

    play(story)


def test_a_log_that_grows_costs_few_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each renewal of the lease would be 86 400 a day and member. The bar is 50 000 for a group."""
    assert 3 * DAY_S / END_S < 1000
    monkeypatch.setattr("rocketpy.failover.etcd.coordinator.END_S", 10.0)

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("abc"))
        begun, end = keys.etcd.revision, len(group.nodes[first].disk.log)
        await trio.sleep(20)
        assert len(group.nodes[first].disk.log) > end + 100
        assert 0 < keys.etcd.revision - begun <= 3 * 3, "each member has registered its end every 10 s"

    play(story, "abc")


def test_ends_are_registered_when_candidates_are_compared() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("abc"))
        await trio.sleep(20)
        rest = set("abc") - {first}
        group.kill(first)
        await group.until_master(rest)
        ends = {name: keys.etcd.view().members[name].end for name in rest}
        assert all(end > 100 for end in ends.values()), "they are those of the election"

    play(story, "abc", mode="async")


def test_the_master_removes_the_history_of_yesterday() -> None:
    """Fault: Registrations every second filled etcd with history in weeks."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        for coordinator in group.coordinators.values():
            coordinator.upkeep.keep_s = 30.0
        before = keys.etcd.revision
        await trio.sleep(25)
        assert keys.compacted == []
        await trio.sleep(20)
        assert keys.compacted and max(keys.compacted) <= before + 2
        count = len(keys.compacted)
        await trio.sleep(3 * LOOK_S)
        assert count < len(keys.compacted) < count + 10 and keys.compacted == sorted(keys.compacted)
        assert group.master() == first

    play(story)


def test_history_stays_if_that_is_configured() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        await group.until_master(set("ab"))
        await trio.sleep(3 * LOOK_S)
        assert keys.compacted == []

    play(story)
