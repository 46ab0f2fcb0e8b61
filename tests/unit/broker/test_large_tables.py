"""Whatever grows with a table lets others run: every question about all of it, every duty that goes through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers import consumer_filter
from rocketpy.broker.processors import consume_stats
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.group import ConsumerFilterData, SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.json_writer import pretty_pieces
from rocketpy.transport import steps
from tests.support.slow_path import FakeChannel, SlowPathRig, body_of

ENTRIES = 2_500
TURNS_MIN = 3  # at a step of at most 512 entries; which of two tasks runs first is random

QUESTIONS: dict[RequestCode, dict[str, str]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: {},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
    RequestCode.GET_ALL_CONSUMER_OFFSET: {},
    RequestCode.GET_ALL_PRODUCER_INFO: {},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": "many"},
    RequestCode.GET_TOPIC_STATS_INFO: {"topic": "wide"},
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": "shared"},
    RequestCode.QUERY_CORRECTION_OFFSET: {"topic": "shared", "compareGroup": "G0"},
    RequestCode.QUERY_CONSUME_TIME_SPAN: {"topic": "wide", "group": "G0"},
    RequestCode.CLONE_GROUP_OFFSET: {"srcGroup": "many", "destGroup": "copy"},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": "many", "removeOffset": "true"},
    RequestCode.CLEAN_UNUSED_TOPIC: {},
}
DUTIES = (
    "saving topics",
    "saving subscription groups",
    "saving offsets",
    "closing silent clients",
    "dropping expired locks",
    "sampling minutes",
    "sampling hours",
    "sampling days",
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SlowPathRig:
    """Topics and groups by the thousand, one topic of many queues, one group of many topics."""
    rig = SlowPathRig(tmp_path_factory.mktemp("large"))
    services = rig.services
    services.topics.update(TopicConfig(topic_name="wide", read_queue_nums=ENTRIES, write_queue_nums=ENTRIES))
    services.topics.update(TopicConfig(topic_name="shared", read_queue_nums=1, write_queue_nums=1))
    for number in range(ENTRIES):
        topic, group = f"T{number}", f"G{number}"
        services.topics.update(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))
        services.groups.update(SubscriptionGroupConfig(group_name=group))
        services.offsets.commit(group, "shared", 0, 1)
        services.offsets.commit("many", topic, 0, 1)
        services.stats.count_send_back(group, topic)
        rig.store.fill(topic, 0, 2)
        rig.store.fill(f"unknown-{number}", 0, 1)

    async def online() -> None:
        subscriptions = [{"topic": "shared", "subString": "*"}]
        for client in range(10):
            numbers = range(client, ENTRIES, 10)
            consumers = [{"groupName": f"G{number}", "subscriptionDataSet": subscriptions} for number in numbers]
            producers = [{"groupName": f"P{number}"} for number in numbers]
            body = {"clientID": f"c{client}", "consumerDataSet": consumers, "producerDataSet": producers}
            answer = await rig.ask(34, body=body, channel=FakeChannel(client))
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def lock() -> None:
        queues = [{"topic": "wide", "brokerName": "broker-a", "queueId": number} for number in range(ENTRIES)]
        await rig.ask(RequestCode.LOCK_BATCH_MQ, body={"consumerGroup": "G0", "clientId": "c", "mqSet": queues})

    trio.run(online)
    trio.run(lock)
    return rig


def turns_during(work: Callable[[], Awaitable[None]]) -> int:
    """How often another task runs meanwhile, not counting the time that a thread takes."""
    turns = 0

    async def main() -> None:
        nonlocal turns

        async def count() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await work()
            nursery.cancel_scope.cancel()

    trio.run(main)
    return turns


@pytest.mark.parametrize("code", QUESTIONS, ids=lambda code: code.name)
def test_questions_about_a_whole_table(large: SlowPathRig, code: RequestCode) -> None:
    answers: list[RemotingCommand] = []

    async def ask() -> None:
        answers.append(await large.ask(code, QUESTIONS[code]))

    assert turns_during(ask) >= TURNS_MIN
    assert answers[0].code == ResponseCode.SUCCESS, answers[0].remark


@pytest.mark.parametrize("name", DUTIES)
def test_duties_that_go_through_a_table(large: SlowPathRig, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(function: Callable[..., object], *args: object) -> object:
        return function(*args)  # a thread would take turns of its own

    monkeypatch.setattr(trio.to_thread, "run_sync", here)
    (duty,) = (duty for duty in large.broker.duties() if duty.name == name)
    for file in large.broker._files:
        file.changed()
    assert turns_during(duty.run) >= TURNS_MIN


def test_announcing_lets_others_run(large: SlowPathRig) -> None:
    assert turns_during(large.services.topics.announce) >= TURNS_MIN
    assert turns_during(large.services.groups.announce) >= TURNS_MIN


def test_what_fits_no_frame_is_refused_in_words(large: SlowPathRig, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (steps, consume_stats):
        monkeypatch.setattr(module, "BODY_SIZE_MAX", 10_000)

    async def main() -> None:
        for code in (21, 43, 201, 317):
            answer = await large.ask(code, {"isOrder": "false"})
            assert answer.code == ResponseCode.SYSTEM_ERROR and "larger than 10000 bytes" in (answer.remark or "")

    trio.run(main)


def test_the_answer_about_all_groups_reads_as_before(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    for topic in ("A", "B"):
        rig.services.topics.update(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))
        rig.store.fill(topic, 0, 5)
    for group, topics in (("G", "AB"), ("H", "B"), ("none", "")):
        rig.services.groups.update(SubscriptionGroupConfig(group_name=group))
        for topic in topics:
            rig.services.offsets.commit(group, topic, 0, 2)

    async def main() -> None:
        body = body_of(await rig.ask(317, {"isOrder": "false"}))
        assert body["totalDiff"] == 9 and body["brokerAddr"] == "127.0.0.1:10911"
        assert [{name: len(topics) for name, topics in row.items()} for row in body["consumeStatsList"]] == [
            {"G": 2},
            {"H": 1},
        ]

    trio.run(main)


def test_the_document_of_filters_is_made_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Saving ten thousand filters blocked the manager for 60 ms."""
    rig = SlowPathRig(tmp_path, enable_property_filter=True)
    filters = rig.services.filters
    subscription = SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92", sub_version=1)
    for number in range(ENTRIES):
        filters.register(f"G{number}", {"T": subscription})
    made: list[object] = []
    evolve = consumer_filter.evolved

    def count(data: ConsumerFilterData, **changes: object) -> ConsumerFilterData:
        made.append(data)
        return evolve(data, **changes)

    monkeypatch.setattr(consumer_filter, "evolved", count)
    document = filters.document()
    assert made == []
    pieces = list(pretty_pieces(document))
    assert len(made) == ENTRIES and len(pieces) > TURNS_MIN
