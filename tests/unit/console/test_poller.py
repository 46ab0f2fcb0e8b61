"""The poller: what it learns, what a broker that fails does to it, and that groups take little of a broker's time."""

from __future__ import annotations

from rocketpy import aio
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.console.alarm_file import AlarmSettings, GroupRule
from rocketpy.console.cluster import GroupState
from rocketpy.console.poller import REST, ROUND_MIN_S, WATCHED_S, delays_ms
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import GetConsumeStatsRequestHeader
from tests.support.cluster import FakeBroker
from tests.support.console import Rig, prepare, run

STATS = ConsumeStats(offset_table={MessageQueue("T", "broker-a", 0): OffsetWrapper(broker_offset=9, consumer_offset=4)})
QUEUE_OF_B = MessageQueue("T", "broker-b", 0)
STATS_OF_B = ConsumeStats(offset_table={QUEUE_OF_B: OffsetWrapper(broker_offset=3, consumer_offset=1)})
SPAN = b'{"consumeTimeSpanSet":[{"delayTime":1500},{"delayTime":700}]}'


def test_brokers_topics_and_groups_are_known_after_a_round() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        (broker,) = rig.state.brokers.values()
        assert broker.is_up
        assert broker.disk_percent == 40
        assert (rig.state.topics, sorted(rig.state.groups)) == (("T", "TBW102"), ["g", "h"])

    run(test, T=2, **{"%RETRY%h": 1})


def test_a_broker_that_does_not_answer_is_down_and_the_others_are_not() -> None:
    async def test(rig: Rig) -> None:
        other = rig.cluster.add_broker("broker-b", T=1)
        prepare(other)
        await rig.look()
        rig.broker.unreachable = True
        rig.broker.mute.add(RequestCode.GET_BROKER_RUNTIME_INFO)
        await rig.look()
        first, second = rig.state.sorted_brokers()
        assert (first.is_up, second.is_up) == (False, True)
        assert first.error
        assert rig.state.without_master() == [("DefaultCluster", "broker-a")]

    run(test, T=2)


def test_name_servers_that_do_not_answer_leave_the_brokers_known() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        rig.cluster.name_server.mute.add(RequestCode.GET_BROKER_CLUSTER_INFO)
        await rig.poller._brokers()
        assert rig.state.error
        assert [broker.is_up for broker in rig.state.sorted_brokers()] == [True]

    run(test, T=2)


def test_groups_of_a_broker_that_is_down_are_not_gone() -> None:
    """Else their alarms would be cleared by its end."""

    async def test(rig: Rig) -> None:
        await rig.look()
        group = rig.state.groups["h"]
        rig.broker.unreachable = True
        rig.broker.mute.add(RequestCode.GET_BROKER_RUNTIME_INFO)
        rig.broker.topics.clear()  # as a name server sees it
        await rig.look()
        assert rig.state.groups["h"] is group

    run(test, **{"%RETRY%h": 1})


def test_a_broker_that_refuses_to_tell_its_groups_hides_no_others() -> None:
    """Fault: One broker that did not know the console's account hid the groups of all brokers, and their alarms."""

    async def test(rig: Rig) -> None:
        other = rig.cluster.add_broker("broker-b", T=1)
        prepare(other)
        other.refuse(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ResponseCode.NO_PERMISSION)
        await rig.look()
        assert (rig.state.topics, sorted(rig.state.groups)) == (("T", "TBW102"), ["g", "h"])
        assert rig.state.names_error.startswith("broker-b: ")
        other.refuse(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ResponseCode.NO_PERMISSION)
        rig.broker.answer(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper())
        await rig.look()
        assert "g" in rig.state.groups, "the broker that refuses may have it"
        other.answer(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper())
        await rig.look()
        assert sorted(rig.state.groups) == ["h"] and rig.state.names_error == ""

    run(test, T=2, **{"%RETRY%h": 1})


def test_a_sample_and_the_age_of_a_group_with_an_alarm() -> None:
    async def test(rig: Rig) -> None:
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, STATS)
        rig.broker.answer(RequestCode.QUERY_CONSUME_TIME_SPAN, SPAN)
        await rig.look()
        for name in ("g", "other"):
            await rig.poller.sample(rig.state.groups[name])
        assert (rig.state.groups["g"].lag, rig.state.groups["g"].age_ms) == (5, 1500)
        assert (rig.state.groups["other"].lag, rig.state.groups["other"].age_ms) == (5, None)

    run(test, alarms=AlarmSettings(groups=(GroupRule("g", age_minutes=1),)), **{"%RETRY%g": 1, "%RETRY%other": 1})


def test_a_sample_that_fails_says_why_and_keeps_the_figures() -> None:
    async def test(rig: Rig) -> None:
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, STATS)
        await rig.look()
        group = rig.state.groups["g"]
        await rig.poller.sample(group)
        rig.broker.refuse(RequestCode.GET_CONSUME_STATS, ResponseCode.SYSTEM_ERROR)
        await rig.poller.sample(group)
        assert group.error.startswith("broker-a: ")
        assert group.lag == 5
        await rig.poller.sample(group)
        assert group.error == ""

    run(test, T=1)


async def raise_backlog(rig: Rig) -> tuple[FakeBroker, GroupState]:
    """A group has a backlog on the rig's broker, and its alarm is raised. Returns another broker, and the group."""
    other = rig.cluster.add_broker("broker-b", T=1)
    prepare(other)
    rig.broker.answer(RequestCode.GET_CONSUME_STATS, STATS)
    await rig.look()
    group = rig.state.groups["g"]
    await rig.poller.sample(group)
    assert [notice.change.value for notice in rig.alarms.look(rig.state, rig.poller._now_ms)] == ["raised"]
    return other, group


def test_a_broker_that_goes_down_clears_no_backlog() -> None:
    """Fault: The console cleared the alarm of a backlog because the broker that held it went down."""

    async def test(rig: Rig) -> None:
        other, group = await raise_backlog(rig)
        rig.broker.unreachable = True
        rig.broker.mute |= {RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_CONSUME_STATS}
        other.answer(RequestCode.GET_CONSUME_STATS, STATS_OF_B)
        for _ in range(3):  # not known to be down; down; gone from the name servers
            await rig.poller.sample(group)
            assert group.error.startswith("broker-a: ")
            assert rig.alarms.look(rig.state, rig.poller._now_ms) == []
            if group.error == "broker-a: no master answers":
                rig.cluster.brokers.pop("broker-a", None)
            await rig.look()
        assert not rig.state.brokers["broker-a", rig.broker.address].is_listed
        rig.cluster.brokers["broker-a"] = rig.broker
        rig.broker.unreachable = False
        rig.broker.mute.clear()
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats())
        await rig.look()
        await rig.poller.sample(group)
        assert [notice.change.value for notice in rig.alarms.look(rig.state, rig.poller._now_ms)] == ["cleared"]

    run(test, alarms=AlarmSettings(groups=(GroupRule("g", backlog=4),)), T=1, **{"%RETRY%g": 1})


def test_a_broker_without_queues_of_a_group_keeps_no_alarm_when_it_goes_down() -> None:
    """Fault: The alarm of a backlog stayed after it was consumed, while a broker without queues of the group had no
    master."""

    async def test(rig: Rig) -> None:
        other, group = await raise_backlog(rig)
        other.unreachable = True
        other.mute |= {RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_CONSUME_STATS}
        await rig.look()
        assert rig.state.without_master() == [("DefaultCluster", "broker-b")]
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats())
        await rig.poller.sample(group)
        assert (group.error, group.lag) == ("", 0)
        assert [notice.change.value for notice in rig.alarms.look(rig.state, rig.poller._now_ms)] == ["cleared"]
        group.has_queues = {}  # as in a console that has just started
        await rig.poller.sample(group)
        assert group.error == "broker-b: no master answers", "it may hold some: nobody has asked it"

    run(test, alarms=AlarmSettings(groups=(GroupRule("g", backlog=4),)), T=1, **{"%RETRY%g": 1})


def test_a_broker_that_was_removed_is_no_failure_of_groups_that_it_had_nothing_of() -> None:
    async def test(rig: Rig) -> None:
        other = rig.cluster.add_broker("broker-b", T=1)
        prepare(other)
        await rig.look()
        group = rig.state.groups["g"]
        del rig.cluster.brokers["broker-b"]
        await rig.look()
        assert rig.state.without_master() == [("DefaultCluster", "broker-b")]
        await rig.poller.sample(group)
        assert group.error == ""

    run(test, T=1, **{"%RETRY%g": 1})


def test_samples_rest_for_most_of_the_time() -> None:
    """A broker that takes 10 ms for an answer works less than 2 % of the time for groups, however many there are."""

    async def test(rig: Rig) -> None:
        took_s = 0.01
        asked: list[tuple[float, str]] = []

        async def slow(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            asked.append((aio.now_s(), GetConsumeStatsRequestHeader.of(request).consumer_group))
            await aio.sleep(took_s)
            return RemotingCommand.response(body=ConsumeStats().encode())

        rig.broker.answers[RequestCode.GET_CONSUME_STATS] = slow
        names = {f"g{n}": SubscriptionGroupConfig(group_name=f"g{n}") for n in range(500)}
        wrapper = SubscriptionGroupWrapper(subscription_group_table=names)
        rig.broker.answer(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, wrapper)
        begun_s = aio.now_s()
        with aio.move_on_after(200):
            await rig.poller.run()
        seconds = aio.now_s() - begun_s
        assert len(asked) > 100
        assert len(asked) * took_s / seconds <= 1.01 / (REST + 1) < 0.02
        assert len({group for _, group in asked}) == len(asked), "each group has its turn before one comes again"

    run(test, T=1)


def test_groups_that_are_looked_at_come_often_and_others_seldom() -> None:
    async def test(rig: Rig) -> None:
        asked: list[str] = []

        def answer(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            asked.append(GetConsumeStatsRequestHeader.of(request).consumer_group)
            return RemotingCommand.response(body=ConsumeStats().encode())

        rig.broker.answers[RequestCode.GET_CONSUME_STATS] = answer
        await rig.look()
        rig.state.look_at("g", rig.poller._now_ms)
        with aio.move_on_after(10 * ROUND_MIN_S):
            await rig.poller.run()
        counts = {name: asked.count(name) for name in ("g", "seldom", "named")}
        often = 10 * ROUND_MIN_S / WATCHED_S
        assert counts["seldom"] in range(8, 12)
        assert often * 0.8 < counts["g"] < often * 1.2
        assert often * 0.8 < counts["named"] < often * 1.2

    rules = (GroupRule("named", backlog=1), GroupRule("*", backlog=1))
    run(test, alarms=AlarmSettings(groups=rules), **{f"%RETRY%{name}": 1 for name in ("g", "seldom", "named")})


def test_a_clock_that_is_set_back_stops_no_samples() -> None:
    """Fault: After the clock of the console's machine was set back, no group was sampled for as long."""

    async def test(rig: Rig) -> None:
        await rig.look()
        later_ms = rig.poller._now_ms + 3_600_000
        rig.state.groups["named"].asked_ms = rig.poller._turn_ms = later_ms
        assert rig.poller._next_name() == "named"
        rig.state.groups["named"].asked_ms = rig.poller._now_ms
        assert rig.poller._next_name() == "g", "a round begins"

    run(test, alarms=AlarmSettings(groups=(GroupRule("named", backlog=1),)), **{"%RETRY%g": 1, "%RETRY%named": 1})


def test_a_job_that_fails_is_done_again() -> None:
    async def test(rig: Rig) -> None:
        rig.broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, b"[]")  # no such body
        with aio.move_on_after(12):
            await rig.poller.run()
        assert len(rig.broker.got(RequestCode.GET_BROKER_RUNTIME_INFO)) >= 2

    run(test, T=1)


def test_odd_answers_have_no_age() -> None:
    assert delays_ms(SPAN) == [1500, 700]
    endless = b"1" + b"0" * 400
    assert delays_ms(b'{"consumeTimeSpanSet":[{"delayTime":%s},{"delayTime":NaN},{"delayTime":5}]}' % endless) == [5]
    assert [delays_ms(body) for body in (None, b"{}", b"[]", b'{"consumeTimeSpanSet":[1,{"delayTime":"x"}]}')] == [
        []
    ] * 4
