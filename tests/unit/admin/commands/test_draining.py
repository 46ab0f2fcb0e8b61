"""drainBroker against a scripted cluster: when it is done, what it waits for, and what it tells a script."""

from __future__ import annotations

import json

import pytest

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.client import Connection, ConsumerConnection, ConsumeType, MessageModel, SubscriptionData
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rocketpy.remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicOffset, TopicStatsTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    TopicStatsRequestHeader,
)
from rocketpy.remoting.headers.namesrv import WipeWritePermOfBrokerResponseHeader
from tests.support.admin import Mqadmin
from tests.support.cluster import FakeCluster
from tests.support.scripted_server import no

QUEUE = MessageQueue("T", "broker-a", 0)
DRAIN = ("drainBroker", "-b", "broker-a", "--wait", "--output", "json")


class Draining:
    """A broker with 100 messages, whose groups have so many unread at each look; the last look stays."""

    def __init__(self, *looks: dict[str, int], online: frozenset[str] = frozenset({"g"})) -> None:
        self.looks = list(looks)
        self.online = online
        self.wipes = 0
        self.asked = 0

    def __call__(self, cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.answers[RequestCode.GET_BROKER_CONSUME_STATS] = self.stats
        broker.answers[RequestCode.GET_CONSUMER_CONNECTION_LIST] = self.members
        broker.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = self.configs
        broker.answers[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = self.groups
        cluster.name_server.answers[RequestCode.WIPE_WRITE_PERM_OF_BROKER] = self.wipe

    def wipe(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self.wipes += 1
        return RemotingCommand.response(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=3))

    def stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        unread = self.looks[min(self.asked, len(self.looks) - 1)]
        self.asked += 1
        tables = {
            group: [ConsumeStats(offset_table={QUEUE: OffsetWrapper(broker_offset=100, consumer_offset=100 - count)})]
            for group, count in unread.items()
        }
        return RemotingCommand.response(body=ConsumeStatsList(consume_stats_list=[tables]).encode())

    def configs(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        configs = {"T": TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)}
        return RemotingCommand.response(body=TopicConfigSerializeWrapper(topic_config_table=configs).encode())

    def groups(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        table = {group: SubscriptionGroupConfig(group_name=group) for group in ("g", "h", "gone")}
        return RemotingCommand.response(body=SubscriptionGroupWrapper(subscription_group_table=table).encode())

    def members(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        if GetConsumerConnectionListRequestHeader.of(request).consumer_group not in self.online:
            return no(ResponseCode.CONSUMER_NOT_ONLINE)
        return RemotingCommand.response(body=ConsumerConnection(connection_set=[Connection(client_id="c")]).encode())


class ReadOnlyQueue(Draining):
    """A broker of RocketMQ, whose statistics of all groups have the queues that are written to: the topic has a second
    one that is only read, with 5 messages."""

    def __init__(self, unread: int) -> None:
        super().__init__({"g": 0})
        self.unread = unread

    def __call__(self, cluster: FakeCluster) -> None:
        super().__call__(cluster)
        cluster.brokers["broker-a"].answers[RequestCode.GET_CONSUME_STATS] = self.group_stats

    def configs(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        configs = {"T": TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=1)}
        return RemotingCommand.response(body=TopicConfigSerializeWrapper(topic_config_table=configs).encode())

    def group_stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        assert GetConsumeStatsRequestHeader.of(request).consumer_group == "g"
        table = {
            QUEUE: OffsetWrapper(broker_offset=100, consumer_offset=100),
            MessageQueue("T", "broker-a", 1): OffsetWrapper(broker_offset=5, consumer_offset=5 - self.unread),
        }
        return RemotingCommand.response(body=ConsumeStats(offset_table=table).encode())


class WithoutOffset(Draining):
    """A broker with 40 messages of T, and online groups that commit their first offset before look `commits_at`."""

    def __init__(
        self,
        *groups: str,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
        model: MessageModel = MessageModel.CLUSTERING,
        topic: str = "T",
        perm: int = 4,
        commits_at: int = 1000,
    ) -> None:
        super().__init__(*[{}] * (commits_at - 1), dict.fromkeys(groups, 0), online=frozenset(groups))
        self.joined = ConsumerConnection(
            connection_set=[Connection(client_id="c"), Connection(client_id="d")],
            consume_type=consume_type,
            message_model=model,
            subscription_table={name: SubscriptionData(topic=name) for name in (topic, "elsewhere")},
        )
        self.perm = perm

    def __call__(self, cluster: FakeCluster) -> None:
        super().__call__(cluster)
        cluster.brokers["broker-a"].answers[RequestCode.GET_TOPIC_STATS_INFO] = self.topic_stats

    def configs(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        configs = {"T": TopicConfig(topic_name="T", perm=self.perm), "Empty": TopicConfig(topic_name="Empty")}
        return RemotingCommand.response(body=TopicConfigSerializeWrapper(topic_config_table=configs).encode())

    def topic_stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        is_empty = TopicStatsRequestHeader.of(request).topic == "Empty"
        offset = TopicOffset(min_offset=60, max_offset=60 if is_empty else 100)
        return RemotingCommand.response(body=TopicStatsTable(offset_table={QUEUE: offset}).encode())

    def members(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        if GetConsumerConnectionListRequestHeader.of(request).consumer_group not in self.online:
            return no(ResponseCode.CONSUMER_NOT_ONLINE)
        return RemotingCommand.response(body=self.joined.encode())


def rows(lines: list[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines]


def test_it_returns_when_every_group_has_read_all(mqadmin: Mqadmin) -> None:
    draining = Draining({"g": 30, "h": 0}, {"g": 7, "h": 2}, {"g": 0, "h": 0})
    wiped, done = rows(mqadmin(*DRAIN, "--route-seconds", "0", script=draining))
    assert wiped == {"name_server": "ns:9876", "broker_name": "broker-a", "topics": 3}
    assert done == {"broker_name": "broker-a", "drained": True, "unread": 0}
    assert draining.asked == 3


def test_producers_have_time_to_turn_away(mqadmin: Mqadmin) -> None:
    """Messages that come after the first look are waited for, too; and a permission that comes back is wiped again."""
    draining = Draining(*[{"g": 0}] * 10, {"g": 5}, {"g": 0})
    mqadmin(*DRAIN, script=draining)
    assert draining.asked >= 35 / 2, "a look every 2 s, for the time in which producers ask for routes"
    assert draining.wipes == 4, "at first and every 10 s"


def test_what_is_unread_is_told_by_group(mqadmin: Mqadmin) -> None:
    draining = Draining({"g": 30, "gone": 4, "read": 0})
    _, online, gone, done = rows(mqadmin(*DRAIN, "--wait-seconds", "60", script=draining, status=3))
    assert online == {"group": "g", "members": 1, "unread": 30}
    assert gone == {"group": "gone", "members": 0, "unread": 4}
    assert done == {"broker_name": "broker-a", "drained": False, "unread": 34}
    assert "34 messages are unread after 60 s" in mqadmin.error


def test_queues_that_are_only_read_are_drained_too(mqadmin: Mqadmin) -> None:
    """A broker of RocketMQ lists them for a single group only."""
    _, unread, done = rows(mqadmin(*DRAIN, "--wait-seconds", "60", script=ReadOnlyQueue(5), status=3))
    assert unread == {"group": "g", "members": 1, "unread": 5}
    assert done == {"broker_name": "broker-a", "drained": False, "unread": 5}
    assert rows(mqadmin(*DRAIN, script=ReadOnlyQueue(0)))[-1]["drained"] is True


def test_an_online_group_without_an_offset_has_read_nothing(mqadmin: Mqadmin) -> None:
    """Fault: A broker was reported as drained while an online group had not committed its first offset."""
    _, unread, done = rows(mqadmin(*DRAIN, "--online-only", script=WithoutOffset("g"), status=3))
    assert unread == {"group": "g", "members": 2, "unread": 40}
    assert done == {"broker_name": "broker-a", "drained": False, "unread": 40}
    assert rows(mqadmin(*DRAIN, script=WithoutOffset("g", commits_at=30)))[-1]["drained"] is True


@pytest.mark.parametrize(
    ("consume_type", "model"),
    [
        (ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING),
        (ConsumeType.CONSUME_PASSIVELY, MessageModel.BROADCASTING),
        (None, None),
    ],
)
def test_groups_that_may_keep_their_offsets_themselves_are_named(
    mqadmin: Mqadmin, consume_type: ConsumeType, model: MessageModel
) -> None:
    done = rows(mqadmin(*DRAIN, script=WithoutOffset("g", "h", consume_type=consume_type, model=model)))[-1]
    assert done == {"broker_name": "broker-a", "drained": True, "unread": 0}
    assert "groups without an offset on broker-a may not have read all: g, h\n" in mqadmin.error


@pytest.mark.parametrize("quiet", [WithoutOffset("g", topic="Empty"), WithoutOffset("g", perm=2), WithoutOffset()])
def test_topics_that_have_nothing_for_a_group(mqadmin: Mqadmin, quiet: WithoutOffset) -> None:
    """Topics without messages or permission to read; and groups that are not online."""
    assert rows(mqadmin(*DRAIN, script=quiet))[-1]["drained"] is True
    assert "may not have read" not in mqadmin.error


def test_groups_without_members_may_be_left_out(mqadmin: Mqadmin) -> None:
    mqadmin(*DRAIN, "--online-only", script=Draining({"g": 0, "gone": 4}))


def test_a_broker_that_does_not_answer_for_a_while(mqadmin: Mqadmin) -> None:
    draining = Draining({"g": 3}, {"g": 0})

    def script(cluster: FakeCluster) -> None:
        draining(cluster)
        broker = cluster.brokers["broker-a"]
        answer, calls = broker.answers[RequestCode.GET_BROKER_CONSUME_STATS], [0]

        def sometimes(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            calls[0] += 1
            return no(ResponseCode.SYSTEM_BUSY) if calls[0] in (2, 3) else draining.stats(request, channel)

        assert answer is not None
        broker.answers[RequestCode.GET_BROKER_CONSUME_STATS] = sometimes

    assert rows(mqadmin(*DRAIN, script=script))[-1]["drained"] is True


def test_a_broker_that_does_not_answer_any_more_is_not_drained(mqadmin: Mqadmin) -> None:
    """It had nothing unread at the first look, and took messages afterwards: a script must not stop it."""
    draining = Draining({"g": 0})

    def script(cluster: FakeCluster) -> None:
        draining(cluster)

        def once(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            return no(ResponseCode.SYSTEM_BUSY) if draining.asked else draining.stats(request, channel)

        cluster.brokers["broker-a"].answers[RequestCode.GET_BROKER_CONSUME_STATS] = once

    mqadmin(*DRAIN, "--wait-seconds", "60", script=script, status=1)
    assert "SYSTEM_BUSY" in mqadmin.error


def test_without_waiting_producers_are_turned_away(mqadmin: Mqadmin) -> None:
    draining = Draining({"g": 30})
    _, line = mqadmin("drainBroker", "-b", "broker-a", script=draining)
    assert line == "producers turn away from broker-a within 35 s" and draining.asked == 0
    mqadmin("drainBroker", "-b", "broker-z", script=draining, status=4)
