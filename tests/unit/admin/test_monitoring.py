"""startMonitoring: what it finds, round by round."""

from __future__ import annotations

import json

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.topic import TopicList
from tests.support.admin import Mqadmin, with_group
from tests.support.cluster import FakeBroker, FakeCluster


def watched(cluster: FakeCluster) -> FakeBroker:
    broker = with_group(cluster)
    broker.topics["OFFSET_MOVED_EVENT"] = 1
    cluster.name_server.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T", "%RETRY%g"]))
    return broker


def test_backlog_and_queues_that_do_not_move(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        watched(cluster)

    assert mqadmin("startMonitoring", "--rounds", "1", script=script) == [], "as Java: nothing on standard output"
    assert "backlog g: topic T: 30 messages not consumed, 30 in one queue" in mqadmin.error
    rows = [json.loads(line) for line in mqadmin("startMonitoring", "--rounds", "1", "--output", "json", script=script)]
    assert [row["kind"] for row in rows] == ["backlog", "queue"]
    assert "can't consume for a while" in rows[1]["text"]


def test_a_group_that_is_offline_has_its_backlog_shown(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        watched(cluster).refuse(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)

    rows = [json.loads(line) for line in mqadmin("startMonitoring", "--rounds", "1", "--output", "json", script=script)]
    assert [row["kind"] for row in rows] == ["backlog"]


def test_a_group_that_cannot_be_examined_does_not_hide_the_others(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = watched(cluster)
        broker.refuse(RequestCode.GET_CONSUME_STATS, ResponseCode.SYSTEM_ERROR)
        broker.store("OFFSET_MOVED_EVENT", 0, b"earlier than the first round")

    rows = [json.loads(line) for line in mqadmin("startMonitoring", "--rounds", "1", "--output", "json", script=script)]
    assert [(row["kind"], row["group"]) for row in rows] == [("error", "g")]


def test_moved_offsets_are_told_once(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = watched(cluster)
        info = broker.answers[RequestCode.GET_CONSUMER_RUNNING_INFO]

        def while_looking(request: object, channel: object) -> object:
            broker.store("OFFSET_MOVED_EVENT", 0, b"moved")
            return info(request, channel)  # type: ignore[arg-type]  # as the broker calls it

        broker.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = while_looking  # type: ignore[assignment]  # the same

    lines = mqadmin("startMonitoring", "--rounds", "3", "--interval", "5", "--output", "json", script=script)
    moved = [row for row in map(json.loads, lines) if row["kind"] == "offset_moved"]
    assert [row["text"] for row in moved] == ["moved", "moved"], "of rounds 2 and 3; the first round only notes the end"
