"""What anybody may send: names that are none create nothing, and tables take no more than their bound."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketpy.broker.sending.slow_send import Refusal
from rocketpy.errors import RequestRefused
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.schema import OBJECTS_MAX
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.work import result_of
from tests.support.cases import cases
from tests.support.slow_path import CREATE_TOPIC, FakeChannel, SlowPathRig, body_of, record

BAD_NAMES = ["", " ", "a b", "a\nb", "a/b", "\x01" * 1000, "\u4e2d", "g" * 256, "g" * 4_000_000, "\x00", "a@b", "a#b"]


def tables(rig: SlowPathRig) -> Any:
    services = rig.services
    return (
        set(services.topics.topics),
        set(services.groups.groups),
        len(services.offsets),
        set(services.producers.groups),
        {group for group in BAD_NAMES if services.consumers.group(group)},
        len(services.locks),
    )


def beat(group: str, **changes: Any) -> dict[str, Any]:
    subscription = {"topic": "T", "subString": "*", "subVersion": 1}
    consumer = {"groupName": group, "subscriptionDataSet": [subscription | changes]}
    return {"clientID": "10.0.0.1@7", "consumerDataSet": [consumer], "producerDataSet": []}


REQUESTS: dict[str, Any] = {
    "consumer": lambda name: (34, None, beat(name)),
    "producer": lambda name: (34, None, {"clientID": "c", "producerDataSet": [{"groupName": name}]}),
    "subscription": lambda name: (34, None, beat("G", topic=name)),
    "unregister": lambda name: (35, {"clientID": "c", "consumerGroup": name or " "}, None),
    "offset of group": lambda name: (15, OFFSET | {"consumerGroup": name}, None),
    "offset of topic": lambda name: (15, OFFSET | {"topic": name}, None),
    "send back": lambda name: (36, {"offset": "1000", "group": name, "delayLevel": "0"}, None),
    "lock": lambda name: (41, None, LOCK | {"consumerGroup": name}),
    "lock of topic": lambda name: (41, None, LOCK | {"mqSet": [QUEUE | {"topic": name}]}),
    "unlock": lambda name: (42, None, LOCK | {"consumerGroup": name}),
    "admin: topic": lambda name: (
        17,
        {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        },
        None,
    ),
    "admin: group": lambda name: (200, None, {"groupName": name}),
    "admin: clone": lambda name: (314, {"srcGroup": "G", "destGroup": name, "topic": "T"}, None),
}
OFFSET = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "5"}
QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
LOCK = {"consumerGroup": "G", "clientId": "c", "mqSet": [QUEUE]}


@pytest.mark.parametrize("request_of", REQUESTS)
@cases("name", BAD_NAMES)
def test_a_bad_name_is_refused_and_creates_nothing(tmp_path: Path, request_of: str, name: str) -> None:
    """Fault: Requests of anybody created groups and topics of any name and number, and the files kept them.
    Holds: trap, commits of any topic, queue and smaller offset."""
    rig = SlowPathRig(Path(tempfile.mkdtemp(dir=tmp_path)))
    rig.services.topics.update(TopicConfig(topic_name="T"))
    rig.services.groups.update(SubscriptionGroupConfig(group_name="G"))
    rig.store.records[1000] = record()
    before = tables(rig)
    code, fields, body = REQUESTS[request_of](name)
    response = trio.run(lambda: rig.ask(code, fields, body))
    assert response.code != 0 and len(response.remark or "") < 1000
    assert tables(rig) == before and rig.fast_path.puts == []


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:10]))
def test_pulls_and_sends_of_bad_names_create_nothing(tmp_path: Path, name: str) -> None:
    rig = SlowPathRig(tmp_path)
    before = tables(rig)
    refusal = rig.broker._slow_pull.admit(rig.pull(consumer_group=name))
    assert refusal is not None and len(refusal.remark) < 1000
    for topic in (name, "%RETRY%" + name):
        assert isinstance(rig.broker._slow_send.admit(rig.send(topic)), Refusal)
    assert tables(rig) == before


OFFICIAL = ["TOOLS_CONSUMER", "CLIENT_INNER_PRODUCER", "CID_RMQ_SYS_TRANS", "__MONITOR_CONSUMER", "ns%G", "g" * 255]


@pytest.mark.parametrize("name", OFFICIAL)
def test_names_of_official_clients_are_taken(tmp_path: Path, name: str) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        topics = {f"%RETRY%{name}": "*", "SCHEDULE_TOPIC_XXXX": "*", "%DLQ%G": "*", "RMQ_SYS_TRACE_TOPIC": "*"}
        answer = await rig.heartbeat("[fe80::1%eth0]@4711#98@unit", group=name, topics=topics, producer=name)
        assert answer.code == 0
        fields = {"consumerGroup": name, "topic": f"%RETRY%{name}", "queueId": "0", "commitOffset": "5"}
        assert (await rig.ask(15, fields)).code == 0

    trio.run(main)
    assert rig.services.consumers.group(name) is not None


def bounded(tmp_path: Path, **bounds: int) -> SlowPathRig:
    return SlowPathRig(tmp_path, rocketpy=bounds)


def test_no_more_topics_than_there_may_be(tmp_path: Path) -> None:
    rig = bounded(tmp_path, topics_max=12)
    topics = rig.services.topics
    while len(topics.topics) < 12:
        topics.update(TopicConfig(topic_name=f"T{len(topics.topics)}"))
    admit = rig.broker._slow_send.admit
    refusal = admit(rig.send("NEW"))
    assert refusal == Refusal(1, "there are 12 topics; 1 more would exceed topicsMax=12")
    with pytest.raises(RequestRefused, match="topicsMax"):
        topics.update(TopicConfig(topic_name="NEW"))
    assert trio.run(lambda: rig.heartbeat("c", group="G", topics={"T11": "*"})).code == 1
    assert len(topics.topics) == 12
    topics.update(TopicConfig(topic_name="T11", perm=2))  # one that is there can be changed
    assert not isinstance(admit(rig.send("T11")), Refusal)
    assert topics.create_if_missing("%DLQ%G", queue_nums=1).topic_name in topics.topics  # dead letters have a place
    assert topics.limit.refused == 3


def test_no_more_groups_than_there_may_be(tmp_path: Path) -> None:
    rig = bounded(tmp_path, groups_max=len(SlowPathRig(tmp_path / "x").services.groups.groups) + 1)
    rig.services.topics.update(TopicConfig(topic_name="T"))
    admit = rig.broker._slow_pull.admit
    assert admit(rig.pull(consumer_group="G1", sys_flag=4)) is None
    refusal = admit(rig.pull(consumer_group="G2", sys_flag=4))
    assert refusal is not None and refusal.code == 1 and "groupsMax" in refusal.remark
    assert admit(rig.pull(consumer_group="G1", sys_flag=4)) is None
    assert isinstance(admit(rig.pull(consumer_group="G2")), type(refusal))
    assert "G2" not in rig.services.groups.groups


def test_no_more_offsets_than_there_may_be(tmp_path: Path) -> None:
    rig = bounded(tmp_path, consumer_offsets_max=2)

    def commit(queue_id: int) -> tuple[int, str | None]:
        fields = {"consumerGroup": "G", "topic": "T", "queueId": str(queue_id), "commitOffset": "5"}
        answer = trio.run(lambda: rig.ask(15, fields))
        return answer.code, answer.remark

    assert [commit(0)[0], commit(1)[0], commit(1)[0], commit(-1)[0]] == [0, 0, 0, 1]
    assert commit(2) == (1, "there are 2 offsets; 1 more would exceed consumerOffsetsMax=2")
    rig.broker.commit_offset("G", "OTHER", 0, 5, 0)  # rides on a pull: the pull is served, the offset is not kept
    assert len(rig.services.offsets) == 2 and rig.services.offsets.groups_of("OTHER") == set()
    trio.run(rig.services.offsets.remove_group, "G")
    assert commit(2)[0] == 0


def test_a_connection_is_a_member_of_so_many_groups(tmp_path: Path) -> None:
    rig = bounded(tmp_path, client_groups_max=2, group_topics_max=2)

    async def main() -> None:
        assert (await rig.heartbeat("c", group="A", producer="A")).code == 0
        assert (await rig.heartbeat("c", group="B", producer="B")).code == 0
        for fields in ({"group": "C"}, {"producer": "C"}, {"group": "A", "topics": dict.fromkeys("XYZ", "*")}):
            answer = await rig.heartbeat("c", **fields)
            assert answer.code == 1 and "Max=2" in (answer.remark or "")
        assert (await rig.heartbeat("c", group="A", producer="B")).code == 0
        assert (await rig.heartbeat("d", group="C", channel=FakeChannel(2))).code == 0

    trio.run(main)
    assert set(rig.services.producers.groups) == {"A", "B"}


@pytest.mark.parametrize(
    "changes",
    [
        {"subString": "x" * 40_000},
        {"tagsSet": ["x"] * 5000},
        {"codeSet": [1] * 5000},
        {"expressionType": "x" * 300},
        {"tagsSet": ["x" * 40_000]},
    ],
)
def test_a_subscription_has_a_size(tmp_path: Path, changes: dict[str, Any]) -> None:
    rig = SlowPathRig(tmp_path)
    assert trio.run(lambda: rig.ask(34, None, beat("G", **changes))).code == 1
    assert rig.services.consumers.group("G") is None


def test_figures_by_name_are_bounded(tmp_path: Path) -> None:
    """Fault: Statistics by name could take 2 GB: 600 000 items of up to 3.6 KB."""
    rig = SlowPathRig(tmp_path, rocketpy={"stats_items_max": 1})
    for topic in ("T", "OTHER", "T"):
        rig.services.stats.count_send_back("G", topic)
    item = rig.services.stats.item("SNDBCK_PUT_NUMS", "T@G")
    assert item is not None and item.value == 2 and rig.services.stats.item("SNDBCK_PUT_NUMS", "OTHER@G") is None


def test_metrics_show_the_bounds(tmp_path: Path) -> None:
    sizes = {size.what: size for size in SlowPathRig(tmp_path).broker.table_sizes()}
    assert sizes["topics"].maximum == 100_000 and sizes["topics"].entries
    assert sizes["groups of one client"].entries is None


@pytest.mark.parametrize("code", [34, 41, 42, 46, 200])
def test_a_body_that_takes_long_to_read_is_refused(tmp_path: Path, code: int) -> None:
    """A heartbeat of 10 MB held the manager until it was killed for it.
    Fault: A heartbeat of 10 MB blocked the manager until the supervisor killed it."""
    body = b'{"mqSet":[' + b"{}," * OBJECTS_MAX + b"{}]}"
    response = trio.run(lambda: SlowPathRig(tmp_path).ask(code, None, body))
    assert response.code == 1 and "objects, at most" in (response.remark or "")


def test_an_account_has_locks_and_offsets_of_queues_that_exist(tmp_path: Path) -> None:
    """Fault: One account with one topic and one group used up the locks and offsets of all others."""
    rig = SlowPathRig(tmp_path)

    def lock(group: str, *queues: tuple[str, int], topic: str = "T") -> list[int]:
        named = [{"topic": topic, "brokerName": name, "queueId": queue_id} for name, queue_id in queues]
        answer = trio.run(lambda: rig.ask(41, None, {"consumerGroup": group, "clientId": "a", "mqSet": named}))
        assert answer.code == 0
        return [queue["queueId"] for queue in body_of(answer)["lockOKMQSet"]]

    def update(queue_id: int, topic: str = "T") -> str | None:
        fields = {"consumerGroup": "G", "topic": topic, "queueId": str(queue_id), "commitOffset": "0"}
        return trio.run(lambda: rig.ask(15, fields)).remark

    trio.run(lambda: rig.ask(17, CREATE_TOPIC | {"readQueueNums": "4", "writeQueueNums": "2"}))
    own = "broker-a"
    assert lock("F", ("b", 0), (own, 4)) == [0, 4] and update(7) is None, "without access control as ever"
    object.__setattr__(rig.services, "access", object())
    assert lock("G", ("b", 0), (own, 0), (own, 3), (own, 4), (own, -1)) == [0, 3]
    assert lock("G", (own, 0), topic="U") == []
    assert len(rig.services.locks) == 4
    assert update(3) is None and update(7) is None, "what is there is kept"
    assert update(4) == "topic T has no queue 4 here"
    assert update(0, "U") == "topic U has no queue 0 here"
    rig.broker.commit_offset("G", "T", 5, 0, rig.clock.monotonic_ms() + 1)
    assert len(rig.services.offsets) == 2


def test_queue_locks_are_bounded(tmp_path: Path) -> None:
    """Fault: One connection filled the manager's memory with 400 000 queue locks."""
    rig = bounded(tmp_path, queue_locks_max=2)

    def lock(client_id: str, *queue_ids: int) -> tuple[int, str | None]:
        queues = [{"topic": "T", "brokerName": "b", "queueId": queue_id} for queue_id in queue_ids]
        body = {"consumerGroup": "G", "clientId": client_id, "mqSet": queues}
        answer = trio.run(lambda: rig.ask(41, None, body))
        return answer.code, answer.remark

    assert lock("a", 0, 1) == (0, None)
    assert lock("a", 0, 1, 2) == (1, "there are 2 locks; 1 more would exceed queueLocksMax=2")
    assert lock("a", 0, 1) == (0, None), "who holds locks renews them"
    assert lock("b", 0, 1)[0] == 0, "what is known can be asked for"
    unlocked = {"consumerGroup": "G", "clientId": "a", "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}]}
    trio.run(lambda: rig.ask(42, None, unlocked))
    assert lock("a", 2) == (0, None)
    rig.clock.advance(120_000)
    result_of(rig.services.locks.sweep())
    assert len(rig.services.locks) == 0
    assert lock("c", 7, 8) == (0, None)


def test_subscriptions_of_one_connection_are_bounded_over_all_heartbeats(tmp_path: Path) -> None:
    """Fault: One connection could subscribe to 4 million topics and take 800 MB of the manager."""
    rig = SlowPathRig(tmp_path)

    def heartbeat(group: str, channel: FakeChannel | None = None) -> tuple[int, str | None]:
        topics = [{"topic": f"T{number}", "subString": "x" * 32_000} for number in range(4)]
        groups = [{"groupName": f"{group}-{number}", "subscriptionDataSet": topics} for number in range(15)]
        body = {"clientID": "c", "consumerDataSet": groups}
        answer = trio.run(lambda: rig.ask(34, None, body, channel=channel))
        return answer.code, answer.remark

    assert [heartbeat(f"G{number}")[0] for number in range(4)] == [0] * 4
    code, remark = heartbeat("G4")
    assert code == 1 and "the subscriptions of one client take" in (remark or "")
    assert rig.services.consumers.group("G4-0") is None
    assert heartbeat("G3")[0] == 0, "what it has, it can say again"
    assert heartbeat("G4", FakeChannel(2))[0] == 0
