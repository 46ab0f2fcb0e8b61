"""Alarms: raised once, repeated while they last, cleared by figures, and left alone when nothing is known."""

from __future__ import annotations

import pytest

from rocketpy.console import alarms as module
from rocketpy.console.alarm_file import AlarmSettings, BrokerLimits, GroupRule
from rocketpy.console.alarms import STALE_MS, Alarms, Notice, as_json
from rocketpy.console.cluster import ClusterState
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.offset import OffsetWrapper
from rocketpy.remoting.bodies.route import BrokerData, ClusterInfo

QUEUE = MessageQueue("T", "a", 0)
MINUTE_MS = 60_000
SETTINGS = AlarmSettings(
    link="https://console.example.com",
    repeat_minutes=10,
    groups=(GroupRule("quiet"), GroupRule("bill*", backlog=10, age_minutes=2)),
    broker=BrokerLimits(no_answer_seconds=1e6),
)
INFO = ClusterInfo(
    broker_addr_table={"a": BrokerData(broker_addrs={0: "x:1"}, broker_name="a")}, cluster_addr_table={"C": ["a"]}
)


def changes(notices: list[Notice]) -> list[tuple[str, str, str]]:
    return [(notice.change.value, notice.condition.kind, notice.condition.subject) for notice in notices]


def with_groups(*names: str) -> ClusterState:
    state = ClusterState()
    state.list_brokers(INFO, 1)
    up(state, 1)
    state.name_topics_and_groups([], names)
    return state


def up(state: ClusterState, now_ms: float, disk: float = 0.5) -> None:
    for broker in state.brokers.values():
        broker.answered(now_ms, 1, {"commitLogDiskRatio": str(disk)}, None)


def sample(state: ClusterState, group: str, now_ms: float, lag: int, age_ms: float | None = None) -> None:
    offsets = {QUEUE: OffsetWrapper(broker_offset=lag, consumer_offset=0)}
    state.groups[group].sampled(now_ms, offsets, 0, age_ms, with_queues=False)


def test_a_backlog_is_raised_once_repeated_and_cleared() -> None:
    state, alarms = with_groups("billing", "quiet", "other"), Alarms(SETTINGS)
    for name in state.groups:
        sample(state, name, 1000, 11)
    assert changes(alarms.look(state, 1000)) == [("raised", "backlog", "billing")]
    assert alarms.look(state, 2000) == []
    sample(state, "billing", 10 * MINUTE_MS, 500)
    (again,) = alarms.look(state, 10 * MINUTE_MS + 1000)
    assert (again.change.value, again.condition.value, again.raised_ms) == ("repeated", 500, 1000)
    sample(state, "billing", 11 * MINUTE_MS, 10)
    assert changes(alarms.look(state, 11 * MINUTE_MS)) == [("cleared", "backlog", "billing")]
    assert (alarms.active, alarms.cleared[0].cleared_ms) == ({}, 11 * MINUTE_MS)
    sample(state, "billing", 12 * MINUTE_MS, 11)
    assert changes(alarms.look(state, 12 * MINUTE_MS)) == [("raised", "backlog", "billing")]


def test_the_age_has_its_numbers_and_a_link() -> None:
    state, alarms = with_groups("bill%ing"), Alarms(SETTINGS)
    sample(state, "bill%ing", 1000, 1, age_ms=3 * MINUTE_MS)
    (notice,) = alarms.look(state, 1000)
    told = as_json(notice)
    assert (told["kind"], told["value"], told["limit"]) == ("age", 3.0, 2)
    assert told["link"] == "https://console.example.com/group?name=bill%25ing"
    assert str(told["text"]).endswith(str(told["link"]))


def test_figures_that_are_old_or_in_part_neither_raise_nor_clear() -> None:
    state, alarms = with_groups("billing"), Alarms(SETTINGS)
    sample(state, "billing", 1000, 11)
    assert alarms.look(state, 1000 + STALE_MS + 1) == []
    assert changes(alarms.look(state, 1000)) == [("raised", "backlog", "billing")]
    assert alarms.look(state, 1000 + STALE_MS + 1) == [] or alarms.active
    sample(state, "billing", 2 * STALE_MS, 5)
    state.groups["billing"].error = "broker-b: connection lost"
    assert alarms.look(state, 2 * STALE_MS) == []
    assert alarms.active
    state.groups["billing"].error = ""
    assert changes(alarms.look(state, 2 * STALE_MS)) == [("cleared", "backlog", "billing")]


def test_a_group_that_is_gone_has_no_alarm() -> None:
    state, alarms = with_groups("billing"), Alarms(SETTINGS)
    sample(state, "billing", 1000, 11)
    alarms.look(state, 1000)
    state.name_topics_and_groups([], [])
    assert changes(alarms.look(state, 2000)) == [("cleared", "backlog", "billing")]


def test_a_full_disk() -> None:
    state, alarms = with_groups(), Alarms(SETTINGS)
    up(state, 1000, disk=0.86)
    assert changes(alarms.look(state, 1000)) == [("raised", "disk", "a x:1")]
    for broker in state.brokers.values():
        broker.failed("connection lost")
    assert changes(alarms.look(state, 2000)) == [], "nobody knows how full it is now"
    up(state, 3000, disk=0.5)
    assert changes(alarms.look(state, 3000)) == [("cleared", "disk", "a x:1")]


def test_no_master_after_its_time_and_not_while_name_servers_are_silent() -> None:
    state, alarms = with_groups(), Alarms(SETTINGS)
    for broker in state.brokers.values():
        broker.failed("connection lost")
    assert alarms.look(state, 1000) == []
    assert alarms.look(state, 30_999) == []
    assert changes(alarms.look(state, 31_000)) == [("raised", "no_master", "C/a")]
    state.error = "no name server answers"
    assert alarms.look(state, 40_000) == []
    state.error = ""
    up(state, 50_000)
    assert changes(alarms.look(state, 50_000)) == [("cleared", "no_master", "C/a")]
    for broker in state.brokers.values():
        broker.failed("connection lost")
    assert alarms.look(state, 60_000) == [], "the time begins anew"


@pytest.mark.parametrize("jump_ms", [600_000, -600_000], ids=["a stopped console", "a clock that is set back"])
def test_only_the_time_in_which_the_console_looks_makes_a_broker_silent(jump_ms: int) -> None:
    """Fault: A console that had been stopped told of a master that did not answer."""
    settings = AlarmSettings(broker=BrokerLimits(no_answer_seconds=20))
    state, alarms = with_groups(), Alarms(settings)
    for broker in state.brokers.values():
        broker.failed("connection lost")
    begin_ms = 1_000_000
    assert alarms.look(state, begin_ms) == []
    assert alarms.look(state, begin_ms + 10_000) == []
    later_ms = begin_ms + 10_000 + jump_ms
    assert alarms.look(state, later_ms) == []
    assert changes(alarms.look(state, later_ms + 10_000)) == [("raised", "no_answer", "a x:1")]
    assert changes(alarms.look(state, later_ms + 20_000)) == [("raised", "no_master", "C/a")]


def test_a_clock_that_is_set_back_keeps_no_alarm_from_being_repeated() -> None:
    """Fault: After the clock of the console was set back by hours, an alarm was not repeated for as long."""
    state, alarms = with_groups("billing"), Alarms(SETTINGS)
    begin_ms, later_ms = 600 * MINUTE_MS, 300 * MINUTE_MS
    sample(state, "billing", begin_ms, 11)
    assert changes(alarms.look(state, begin_ms)) == [("raised", "backlog", "billing")]
    sample(state, "billing", later_ms, 11)
    assert alarms.look(state, later_ms) == []
    assert changes(alarms.look(state, later_ms + 10 * MINUTE_MS)) == [("repeated", "backlog", "billing")]


def test_a_slave_that_does_not_answer_is_named_with_the_reason() -> None:
    pair = BrokerData(broker_addrs={0: "x:1", 1: "x:2"}, broker_name="a")
    info = ClusterInfo(broker_addr_table={"a": pair}, cluster_addr_table={"C": ["a"]})
    state, alarms = ClusterState(), Alarms(AlarmSettings())
    state.list_brokers(info, 1)
    up(state, 1)
    assert alarms.look(state, 1) == []
    state.brokers["a", "x:2"].failed("connection lost")
    assert alarms.look(state, 1000) == []
    (notice,) = alarms.look(state, 31_000)
    assert (notice.condition.kind, notice.condition.subject) == ("no_answer", "a x:2")
    assert notice.condition.text == "broker a x:2: this slave does not answer (connection lost) for 30 s, limit 30 s"
    state.list_brokers(INFO, 32_000)
    alarms.look(state, 32_000)
    assert "this slave is gone from the name servers" in alarms.active["no_answer", "a x:2"].condition.text
    state.list_brokers(info, 33_000)
    up(state, 33_000)
    assert changes(alarms.look(state, 33_000)) == [("cleared", "no_answer", "a x:2")]


def test_figures_of_a_broker_that_does_not_answer_raise_and_clear_nothing() -> None:
    state, alarms = with_groups(), Alarms(SETTINGS)
    (broker,) = state.brokers.values()
    for now_ms, failed in ((1000, "0"), (20_000, "3")):
        broker.answered(now_ms, 1, {"putMessageFailedTimes": failed}, None)
    assert changes(alarms.look(state, 20_000)) == [("raised", "failed_sends", "a x:1")]
    broker.failed("no permission", refused_ms=30_000)
    assert alarms.look(state, 20 * MINUTE_MS) == []
    assert ("failed_sends", "a x:1") in alarms.active
    broker.answered(20 * MINUTE_MS, 1, {"putMessageFailedTimes": "3"}, None)
    assert changes(alarms.look(state, 20 * MINUTE_MS)) == [("cleared", "failed_sends", "a x:1")]


def test_alarms_are_bounded() -> None:
    names = [f"bill{n}" for n in range(module.ALARMS_MAX + 3)]
    state, alarms = with_groups(*names), Alarms(SETTINGS)
    for name in names:
        sample(state, name, 1000, 11)
    assert len(alarms.look(state, 1000)) == module.ALARMS_MAX
    assert alarms.left_out == 3


def test_alarms_of_groups_displace_none_of_brokers() -> None:
    """Fault: While 1 000 groups were behind, a broker that died raised no alarm."""
    names = [f"bill{n}" for n in range(module.ALARMS_MAX + 3)]
    state, alarms = with_groups(*names), Alarms(SETTINGS)
    for name in names:
        sample(state, name, 1000, 11)
    alarms.look(state, 1000)
    up(state, 2000, disk=0.9)
    assert changes(alarms.look(state, 2000)) == [("raised", "disk", "a x:1")]
    for broker in state.brokers.values():
        broker.failed("connection lost")
    alarms.look(state, 3000)
    assert changes(alarms.look(state, 33_000)) == [("raised", "no_master", "C/a")]
    assert (len(alarms.active), alarms.left_out) == (module.ALARMS_MAX + 2, 3)
    sample(state, names[0], 34_000, 0)
    assert len(alarms.look(state, 34_000)) == 2, "one is cleared, and its place goes to another"
    assert (len(alarms.active), alarms.left_out) == (module.ALARMS_MAX + 2, 2)
