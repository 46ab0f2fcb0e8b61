from __future__ import annotations

import pytest

from rocketpy.console import cluster
from rocketpy.console.cluster import GONE_MS, WATCH_MS, WATCHED_MAX, BrokerState, ClusterState, GroupState
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.broker import HaStatus
from rocketpy.remoting.bodies.offset import OffsetWrapper
from rocketpy.remoting.bodies.route import BrokerData, ClusterInfo


def info(**masters: str) -> ClusterInfo:
    return ClusterInfo(
        broker_addr_table={
            name: BrokerData(broker_addrs={0: address}, broker_name=name) for name, address in masters.items()
        },
        cluster_addr_table={"C": list(masters)},
    )


def test_rates_are_of_the_time_between_two_answers() -> None:
    broker = BrokerState("C", "a", 0, "x:1")
    broker.answered(0, 1, {"msgPutTotalTodayNow": "1000", "putTps": "7.5 1 1"}, None)
    assert broker.rates_in.last == 7.5, "before the second answer the broker's own figure"
    broker.answered(10_000, 1, {"msgPutTotalTodayNow": "3000", "putTps": "7.5 1 1"}, None)
    assert broker.rates_in.last == 200
    broker.answered(20_000, 1, {"msgPutTotalTodayNow": "10", "putTps": "1 1 1"}, None)
    assert broker.rates_in.last == 1, "a broker that was restarted counts anew"


def test_a_broker_that_is_gone_stays_for_a_day() -> None:
    state = ClusterState()
    state.list_brokers(info(a="x:1", b="x:2"), 1000)
    for broker in state.brokers.values():
        broker.answered(1000, 1, {}, None)
    assert state.without_master() == []
    state.list_brokers(info(a="x:1"), 2000)
    assert state.without_master() == [("C", "b")]
    assert [broker.is_up for broker in state.sorted_brokers()] == [True, False]
    state.list_brokers(info(a="x:1"), 2000 + GONE_MS)
    assert state.without_master() == []


def test_a_broker_with_automatic_failover_is_master_by_its_own_word() -> None:
    broker = BrokerState("C", "a", 0, "x:1")
    assert broker.is_master
    broker.answered(0, 1, {}, HaStatus(role="SLAVE", master=False))
    assert not broker.is_master


def test_brokers_are_bounded_and_those_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "BROKERS_MAX", 2)
    state = ClusterState()
    state.list_brokers(info(a="x:1", b="x:2", c="x:3"), 1000)
    assert [broker.name for broker in state.sorted_brokers()] == ["a", "b"]
    state.list_brokers(info(b="x:2", c="x:3"), 2000)
    state.list_brokers(info(b="x:2", c="x:3"), 3000)
    assert [broker.name for broker in state.sorted_brokers()] == ["b", "c"]


def test_names_are_told_apart_and_groups_keep_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ClusterState()
    state.name_topics_and_groups(["T", "%RETRY%g", "%DLQ%g", "A"], ["h"])
    assert (state.topics, state.dead_letter_topics, sorted(state.groups)) == (("A", "T"), ("%DLQ%g",), ["g", "h"])
    group = state.groups["g"]
    state.name_topics_and_groups(["%RETRY%g"], [])
    assert state.groups == {"g": group}
    monkeypatch.setattr(cluster, "GROUPS_MAX", 1)
    monkeypatch.setattr(cluster, "TOPICS_MAX", 1)
    state.name_topics_and_groups(["T", "A", "B"], ["g", "h"])
    assert (state.topics, list(state.groups), state.names_left_out) == (("A",), ["g"], 3)


def test_new_groups_displace_no_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Clients that created thousands of groups ended the alarms about groups with later names."""
    monkeypatch.setattr(cluster, "GROUPS_MAX", 2)
    state = ClusterState()
    state.name_topics_and_groups([], ["orders"])
    state.name_topics_and_groups(["%RETRY%a", "%RETRY%b"], ["c", "orders"])
    assert list(state.groups) == ["orders", "a"] and state.names_left_out == 2


def test_a_sample_has_the_backlog_and_a_history_of_each_queue_of_a_watched_group() -> None:
    group = GroupState("g")
    queues = [MessageQueue("T", "a", n) for n in range(100)]
    offsets = {queue: OffsetWrapper(broker_offset=10, consumer_offset=8) for queue in queues}
    offsets[queues[0]] = OffsetWrapper(broker_offset=5, consumer_offset=9)  # the group is ahead: topic made anew
    group.sampled(1000, offsets, 1.0, None, with_queues=False)
    assert (group.lag, len(group.queue_lags), len(group.ages)) == (198, 0, 0)
    group.sampled(20_000, offsets, 1.0, 500.0, with_queues=True)
    assert len(group.queue_lags) == cluster.QUEUE_HISTORIES_MAX
    assert (group.queue_lags[queues[1]].last, group.ages.last) == (2, 500)


def test_offsets_are_kept_of_watched_groups_alone_and_bounded() -> None:
    """Fault: All offsets of up to 20 000 groups were kept, and each page added them up."""
    group = GroupState("g")
    count = cluster.QUEUES_MAX + 1
    offsets = {MessageQueue("T", "a", n): OffsetWrapper(broker_offset=3, consumer_offset=1) for n in range(count)}
    for is_watched, kept in ((False, 0), (True, cluster.QUEUES_MAX), (False, 0)):
        group.sampled(1000, offsets, 1.0, None, with_queues=is_watched)
        assert (group.lag, group.queue_count, len(group.offsets)) == (2 * count, count, kept)


def test_groups_are_watched_for_a_while_after_a_look_and_the_newest_looks_count() -> None:
    state = ClusterState()
    state.name_topics_and_groups([], [f"g{n}" for n in range(WATCHED_MAX + 1)])
    assert state.look_at("unknown", 1) is None
    for n in range(WATCHED_MAX + 1):
        state.look_at(f"g{n}", 1000)
    names = [group.name for group in state.watched(1000)]
    assert len(names) == WATCHED_MAX
    assert "g0" not in names
    assert state.watched(1000 + WATCH_MS) == []
