"""Every check of a pull, in the reference's order and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketpy.broker.managers import filter_compiler
from rocketpy.broker.pulling.slow_pull import COMPILING_MAX
from rocketpy.config import BrokerRole
from rocketpy.filter.parser import parse
from rocketpy.filter.program import compile_program
from rocketpy.message.tags import EXPRESSION_TAGS_MAX
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.fast_path import PullRequest
from tests.support.slow_path import FakeChannel, SlowPathRig

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SUBSCRIPTION = {"sys_flag": 4}


def rig_with_topic(root: Path, **settings: Any) -> SlowPathRig:
    rig = SlowPathRig(root, **settings)
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    rig.services.topics.update(TopicConfig(topic_name="W", perm=2))
    rig.services.groups.update(SubscriptionGroupConfig(group_name="OFF", consume_enable=False))
    rig.services.groups.update(SubscriptionGroupConfig(group_name="NB", consume_broadcast_enable=False))
    return rig


@pytest.mark.parametrize(
    ("settings", "pull", "code", "remark"),
    [
        ({}, {"channel": FakeChannel(5, is_vip=True)}, 3, " request type 11 not supported"),
        ({"broker_permission": 2}, {"topic": "none"}, 16, "the broker[127.0.0.1] pulling message is forbidden"),
        (
            {"auto_create_subscription_group": False},
            {"topic": "none"},
            26,
            f"subscription group [G] does not exist, {FAQ}",
        ),
        ({}, {"consumer_group": "OFF", "topic": "none"}, 16, "subscription group no permission, OFF"),
        ({}, {"topic": "none"}, 17, f"topic[none] not exist, apply first please! {FAQ}"),
        ({}, {"topic": "W", "queue_id": 99}, 16, "the topic[W] pulling message is forbidden"),
        (
            {},
            {"queue_id": 4},
            1,
            "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[10.0.0.1:4000]",
        ),
        (
            {},
            {"queue_id": -1},
            1,
            "queueId[-1] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[10.0.0.1:4000]",
        ),
        ({}, SUBSCRIPTION | {"subscription": "||"}, 23, "parse the consumer's subscription failed"),
        (
            {},
            SUBSCRIPTION | {"subscription": "a||" * EXPRESSION_TAGS_MAX},
            23,
            f"parse the consumer's subscription failed: more than {EXPRESSION_TAGS_MAX} tags",
        ),
        (
            {},
            SUBSCRIPTION | {"subscription": "a > 1", "expression_type": "SQL92"},
            1,
            "The broker does not support consumer to filter message by SQL92",
        ),
        ({}, {}, 24, f"the consumer's group info not exist{FAQ}"),
    ],
)
def test_refusals(tmp_path: Path, settings: dict[str, Any], pull: dict[str, Any], code: int, remark: str) -> None:
    """Holds: broker, permissions 2, 4 and 6; answer, checks of a pull (11)."""
    rig = rig_with_topic(tmp_path, **settings)
    request = rig.pull(**pull)
    rig.broker.slow_pull(request)
    reply = request.channel.last  # type: ignore[attr-defined]  # a FakeChannel
    assert (reply.code, reply.remark, reply.opaque) == (code, remark, 9)
    assert rig.fast_path.named("repull") == []


@pytest.mark.parametrize(
    ("heartbeat", "pull", "code", "remark"),
    [
        (
            {"group": "NB", "model": "BROADCASTING"},
            {"consumer_group": "NB"},
            16,
            "the consumer group[NB] can not consume by broadcast way",
        ),
        ({"group": "G", "topics": {"U": "*"}}, {}, 24, f"the consumer's subscription not exist{FAQ}"),
        ({"group": "G", "topics": {"T": "*"}}, {"sub_version": 2}, 25, "the consumer's subscription not latest"),
    ],
)
def test_refusals_of_members(
    tmp_path: Path, heartbeat: dict[str, Any], pull: dict[str, Any], code: int, remark: str
) -> None:
    """Holds: client, broadcasting; answer, checks of a pull (11); trap, differing subscriptions overwrite each
    other."""
    rig = rig_with_topic(tmp_path)
    trio.run(lambda: rig.heartbeat("a", **heartbeat))
    refusal = rig.broker._slow_pull.admit(rig.pull(**pull))
    assert refusal is not None and (refusal.code, refusal.remark) == (code, remark)


def test_a_sql_subscription_of_a_heartbeat_is_refused_and_not_ignored(tmp_path: Path) -> None:
    rig = rig_with_topic(tmp_path)
    subscription = {"topic": "T", "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}
    body = {"clientID": "a", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [subscription]}]}
    assert trio.run(lambda: rig.ask(34, None, body)).code == 0
    refusal = rig.broker._slow_pull.admit(rig.pull())
    assert refusal is not None and refusal.code == 1


@pytest.mark.parametrize("pull", [SUBSCRIPTION, SUBSCRIPTION | {"subscription": "a || b"}, {"sub_version": 0}])
def test_a_pull_that_lacked_only_its_group_goes_back(tmp_path: Path, pull: dict[str, Any]) -> None:
    """The fast path is told of the group before the pull comes back to it."""
    rig = rig_with_topic(tmp_path)
    if "sys_flag" not in pull:
        trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"}))
    request = rig.pull(**pull)
    rig.broker.slow_pull(request)
    assert rig.channel.pushed == [] or rig.channel.last.code == 40
    names = [name for name, _ in rig.fast_path.calls]
    assert names.index("group_changed") < names.index("repull")
    assert rig.fast_path.named("repull") == [request]


@pytest.mark.parametrize(
    ("committed", "offset", "low", "next_begin"),
    [
        (3, 9, 0, 3),
        (8, 9, 0, 8),
        (3, 9, 5, 5),
        (3, 8, 0, None),  # the end of the queue
        (9, 10, 0, None),  # it is beyond the queue as well
        (-1, 9, 0, None),
    ],
)
def test_a_pull_beyond_its_queue_goes_on_where_its_group_has_committed(
    tmp_path: Path, committed: int, offset: int, low: int, next_begin: int | None
) -> None:
    """Fault: A consumer with an offset of a lost log tail was sent past messages that had come since."""
    rig = rig_with_topic(tmp_path)
    rig.store.fill("T", 1, 8, low=low)
    if committed >= 0:
        rig.services.offsets.commit("G", "T", 1, committed)
    request = rig.pull(queue_id=1, queue_offset=offset, **SUBSCRIPTION)
    rig.broker.slow_pull(request)
    if next_begin is None:
        assert rig.channel.pushed == [] and rig.fast_path.named("repull") == [request]
        return
    reply = rig.channel.last
    assert (reply.code, reply.remark, reply.opaque) == (21, "OFFSET_OVERFLOW_BADLY", 9)
    assert reply.ext_fields == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": str(next_begin), "minOffset": str(low), "maxOffset": "8",
    }  # fmt: skip
    assert rig.fast_path.named("repull") == []


def test_messages_that_are_in_the_log_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not dispatched yet: the consumer has them from this log."""
    rig = rig_with_topic(tmp_path)
    rig.store.fill("T", 1, 8)
    monkeypatch.setattr(rig.store, "log_end_of", lambda topic, queue_id: 12)
    rig.services.offsets.commit("G", "T", 1, 3)
    for offset, is_moved in ((12, False), (13, True)):
        rig.broker.slow_pull(rig.pull(queue_id=1, queue_offset=offset, **SUBSCRIPTION))
        assert bool(rig.channel.pushed) is is_moved


def test_a_group_that_consumes_by_broadcast_has_committed_nothing(tmp_path: Path) -> None:
    """Its members have offsets of their own. What it has committed is of an earlier life."""
    rig = rig_with_topic(tmp_path)
    rig.store.fill("T", 1, 8)
    rig.services.offsets.commit("G", "T", 1, 3)
    trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"}, model="BROADCASTING"))
    request = rig.pull(queue_id=1, queue_offset=9, **SUBSCRIPTION)
    rig.broker.slow_pull(request)
    assert rig.fast_path.named("repull") == [request]


def test_a_slave_moves_nobody_back(tmp_path: Path) -> None:
    """Its master may have the message."""
    rig = rig_with_topic(tmp_path, broker_role=BrokerRole.SLAVE, broker_id=1)
    rig.store.fill("T", 1, 8)
    rig.services.offsets.commit("G", "T", 1, 3)
    request = rig.pull(queue_id=1, queue_offset=9, **SUBSCRIPTION)
    rig.broker.slow_pull(request)
    assert rig.channel.pushed == [] and rig.fast_path.named("repull") == [request]


def test_a_one_way_pull_is_refused_in_silence(tmp_path: Path) -> None:
    rig = rig_with_topic(tmp_path)
    rig.broker.slow_pull(rig.pull(topic="none", is_oneway=True))
    assert rig.channel.pushed == []


SQL = {"topic": "T", "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}


def join_with_sql(rig: SlowPathRig, **changes: Any) -> None:
    body = {"clientID": "a", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [SQL | changes]}]}
    assert trio.run(lambda: rig.ask(34, None, body)).code == 0


@pytest.mark.parametrize(
    ("changes", "pull", "code", "remark"),
    [
        (
            {"subString": "a LIKE 'x'"},
            {},
            27,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        ),
        (
            {"expressionType": "CLASS"},
            {},
            27,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        ),
        ({}, {"sub_version": 2}, 25, "the consumer's subscription not latest"),
    ],
)
def test_refusals_of_members_with_sql(
    tmp_path: Path, changes: dict[str, Any], pull: dict[str, Any], code: int, remark: str
) -> None:
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    join_with_sql(rig, **changes)
    refusal = rig.broker._slow_pull.admit(rig.pull(**pull))
    assert refusal is not None and (refusal.code, refusal.remark) == (code, remark)


def test_a_filter_that_is_older_than_the_pull(tmp_path: Path) -> None:
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    join_with_sql(rig)
    rig.services.filters._entries["G"]["T"].data.client_version = 0
    refusal = rig.broker._slow_pull.admit(rig.pull(sub_version=1))
    assert refusal is not None and refusal.code == 28


def test_a_heartbeat_brings_the_program_to_the_fast_path(tmp_path: Path) -> None:
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    join_with_sql(rig)
    _, _, told = rig.fast_path.named("subscription_changed")[-1]
    assert told["expression_type"] == "SQL92" and told["program"] == compile_program(parse("a > 1"))
    assert rig.broker._slow_pull.admit(rig.pull()) is None


def test_an_expression_that_a_pull_brings_is_compiled_once(tmp_path: Path) -> None:
    """The first such pull waits for a thread, the next one does not."""
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    request = rig.pull(**SUBSCRIPTION, subscription="a > 1", expression_type="SQL92")
    program = compile_program(parse("a > 1"))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            rig.broker._slow_pull.open(nursery)
            rig.broker.slow_pull(request)
            assert rig.fast_path.named("repull") == []
        rig.broker.slow_pull(request)

    trio.run(main)
    assert rig.fast_path.named("repull") == [(request, program)] * 2


def test_a_bad_expression_that_a_pull_brings_is_refused(tmp_path: Path) -> None:
    """Holds: trap, a bad SQL text in a pull turns the filter off."""
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    request = rig.pull(**SUBSCRIPTION, subscription="a > 1 b", expression_type="SQL92")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            rig.broker._slow_pull.open(nursery)
            rig.broker.slow_pull(request)

    trio.run(main)
    reply = request.channel.last  # type: ignore[attr-defined]  # a FakeChannel
    assert reply.code == 23
    assert reply.remark.startswith("parse the consumer's subscription failed: character 7: 'b' does not fit")


def submit_all(rig: SlowPathRig, requests: list[PullRequest]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            rig.broker._slow_pull.open(nursery)
            for request in requests:
                rig.broker.slow_pull(request)

    trio.run(main)


def test_pulls_that_wait_for_the_compiler_are_bounded(tmp_path: Path) -> None:
    """One connection has as many as are still free."""
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    channels = [FakeChannel(number) for number in range(1, 9)]
    asked = [attrs.evolve(sql_pull(rig, number), channel=channels[0]) for number in range(COMPILING_MAX)]
    asked += [attrs.evolve(sql_pull(rig, 1000 + n), channel=channel) for n, channel in enumerate(channels[1:])]
    submit_all(rig, asked)
    assert [reply.code for reply in channels[0].pushed] == [2] * (COMPILING_MAX // 2)
    assert all(not channel.pushed for channel in channels[1:]), "others are served"
    assert len(rig.fast_path.named("repull")) == COMPILING_MAX // 2 + 7
    submit_all(rig, [attrs.evolve(sql_pull(rig, 2000), channel=channels[0])])
    assert len(rig.fast_path.named("repull")) == COMPILING_MAX // 2 + 8, "those that are done count no more"


def test_strangers_do_not_displace_the_expressions_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many connections that bring new texts made every pull and heartbeat of the groups compile again.
    Fault: New SQL92 texts of strangers displaced the compiled expressions of all groups."""
    compiled: list[str] = []
    monkeypatch.setattr(filter_compiler, "TEXTS_MAX", 8)
    compile_one = filter_compiler._compile
    monkeypatch.setattr(filter_compiler, "_compile", lambda text: compiled.append(text) or compile_one(text))
    rig = rig_with_topic(tmp_path, enable_property_filter=True)
    join_with_sql(rig)
    strangers = [attrs.evolve(sql_pull(rig, 100 + number), channel=FakeChannel(50 + number)) for number in range(20)]
    submit_all(rig, strangers)
    assert len(rig.fast_path.named("repull")) == 20
    compiled.clear()
    member = rig.pull(**SUBSCRIPTION, subscription="a > 1", expression_type="SQL92")
    submit_all(rig, [member])
    join_with_sql(rig)
    assert rig.fast_path.named("repull")[-1] == (member, compile_program(parse("a > 1"))) and compiled == []
    rig.services.filters._drop("G", "T")
    submit_all(rig, strangers)
    submit_all(rig, [member])
    assert compiled[-1] == "a > 1", "a group that is gone is as everybody else"


def sql_pull(rig: SlowPathRig, number: int) -> PullRequest:
    return rig.pull(**SUBSCRIPTION, subscription=f"a > {number}", expression_type="SQL92")
