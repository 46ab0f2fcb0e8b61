"""Every check of a send, in the reference's order and words; and what becomes of those that pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.broker import replies
from rocketpy.broker.sending.slow_send import Put, Refusal, Resend
from rocketpy.config import BrokerRole
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.bodies.topic import TopicConfig, TopicFilterType
from rocketpy.remoting.frame import SerializeType
from tests.support.slow_path import NOW_MS, SlowPathRig

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


@pytest.fixture
def rig(tmp_path: Path) -> SlowPathRig:
    return SlowPathRig(tmp_path)


def admit(rig: SlowPathRig, *args: Any, **changes: Any) -> Any:
    return rig.broker._slow_send.admit(rig.send(*args, **changes))


def props(message: Any) -> dict[str, str]:
    return decode_properties(message.properties.decode())


@pytest.mark.parametrize(
    ("settings", "send", "code", "remark"),
    [
        (
            {"start_accept_send_request_time_stamp": NOW_MS + 1},
            {"topic": ""},
            1,
            "broker unable to service, until 2023-11-",
        ),
        ({}, {"topic": " "}, 1, "The specified topic is blank."),
        (
            {},
            {"topic": "a/b" + "c" * 200},
            1,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ({}, {"topic": "t" * 128}, 1, "The specified topic is longer than topic max length."),
        (
            {},
            {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 99},
            16,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
        ({}, {"topic": "T", "default_topic": "none"}, 17, f"topic[T] not exist, apply first please!{FAQ}"),
        ({"auto_create_topic_enable": False}, {"topic": "T"}, 17, f"topic[T] not exist, apply first please!{FAQ}"),
        (
            {},
            {"topic": "T", "queue_id": 4},
            1,
            "request queueId[4] is illegal, TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=4, perm=RW-, "
            "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 10.0.0.1:4000",
        ),
        (
            {"auto_create_subscription_group": False},
            {"topic": "%RETRY%G"},
            26,
            f"subscription group not exist, G {FAQ}",
        ),
        (
            {},
            {"topic": "T", "body": b"x" * (4 * 1024 * 1024 + 1)},
            13,
            "the message is illegal, maybe msg body or properties length not matched. "
            "msg body length limit 4194304B, msg properties length limit 32KB.",
        ),
        ({}, {"topic": "T", "properties": b"a\x01" + b"b" * 32_767}, 13, "the message is illegal"),
        ({}, {"topic": "T", "properties": b"a\x01b\0\x02DELAY\x013"}, 13, "the message is illegal"),
        (
            {},
            {"topic": "%RETRY%G", "properties": b"a\x01\0", "reconsume_times": 16},
            13,
            "the message is illegal",
        ),
        (
            {},
            {"topic": "%RETRY%G", "body": b"x" * (4 * 1024 * 1024 + 1), "reconsume_times": 16},
            13,
            "the message is illegal",
        ),
        ({}, {"topic": "T", "is_batch": True, "sys_flag": 4}, 13, "the message is illegal"),
        ({}, {"topic": "T", "is_batch": True, "properties": b"DELAY\x013"}, 13, "the message is illegal"),
        (
            {"reject_transaction_message": True},
            {"topic": "T", "properties": b"TRAN_MSG\x01TRUE"},
            16,
            "the broker[127.0.0.1] sending transaction message is forbidden",
        ),
    ],
)
def test_refusals(tmp_path: Path, settings: dict[str, Any], send: dict[str, Any], code: int, remark: str) -> None:
    """Fault: A message whose properties ended in a zero byte ended the log after a power failure.
    Holds: answer, checks of a send (10, 310, 320)."""
    rig = SlowPathRig(tmp_path, **settings)
    verdict = admit(rig, **send)
    assert isinstance(verdict, Refusal)
    assert verdict.code == code
    assert verdict.remark == remark or (remark in verdict.remark and code in (1, 13))


@pytest.mark.parametrize("topic", ["ORDERED", "PLAIN", "%RETRY%G", "Unknown"])
def test_a_broker_without_write_permission_refuses_sends_and_creates_no_topic(tmp_path: Path, topic: str) -> None:
    """Holds: cluster, taking a broker out of service."""
    rig = SlowPathRig(tmp_path, broker_permission=4)
    rig.services.topics.update(TopicConfig(topic_name="ORDERED", order=True))
    rig.services.topics.update(TopicConfig(topic_name="PLAIN"))
    assert admit(rig, topic) == Refusal(16, "the broker[127.0.0.1] sending message is forbidden")
    assert rig.services.topics.select("Unknown") is None


@pytest.mark.parametrize("topic", ["Unknown", "%RETRY%G", "%RETRY%Unknown"])
@pytest.mark.parametrize("properties", [b"", b"DELAY\x013", b"TRAN_MSG\x01true"])
def test_a_slave_refuses_sends_and_creates_no_topic(tmp_path: Path, topic: str, properties: bytes) -> None:
    """Fault: A slave created topics and groups for sends that it refused."""
    rig = SlowPathRig(tmp_path, broker_id=1, broker_role=BrokerRole.SLAVE)
    topics, groups = rig.services.topics.topics, rig.services.groups.groups
    verdict = admit(rig, topic, properties=properties)
    assert isinstance(verdict, Refusal) and verdict.code == 14 and "this broker is a slave" in verdict.remark
    assert rig.services.topics.topics == topics and rig.services.groups.groups == groups


@pytest.mark.parametrize("properties", [b"", b"DELAY\x013", b"TRAN_MSG\x01true"])
def test_a_topic_without_write_permission_refuses_sends(rig: SlowPathRig, properties: bytes) -> None:
    """Holds: broker, permissions 2, 4 and 6; trap, sends hardly check permissions."""
    rig.services.topics.update(TopicConfig(topic_name="T", perm=4))
    refused = Refusal(16, "the topic[T] sending message is forbidden")
    assert admit(rig, "T", properties=properties) == refused
    assert admit(rig, "T", is_batch=True) == refused
    rig.services.topics.update(TopicConfig(topic_name="T", perm=2))
    assert admit(rig, "T") == Resend(0, 0)


def test_an_unknown_topic_is_created_from_its_template_and_told_before_the_resend(rig: SlowPathRig) -> None:
    """Holds: broker, creation of topics; answer, creation of topics by a send."""
    rig.services.topics.update(TopicConfig(topic_name="TEMPLATE", perm=7, write_queue_nums=2, read_queue_nums=2))
    assert admit(rig, "T", default_topic="TEMPLATE", unit_mode=True) == Resend(0, 0)
    created = rig.services.topics.select("T")
    assert created == TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=6, topic_sys_flag=1)
    name, told = rig.fast_path.named("topic_changed")[-1]
    assert name == "T" and told["write_queue_nums"] == 2 and told["perm"] == 6


def test_a_template_without_inherit_creates_nothing_but_retry_topics_are_made(rig: SlowPathRig) -> None:
    """Holds: answer, creation of topics by a send."""
    rig.services.topics.update(TopicConfig(topic_name="PLAIN", perm=6))
    assert admit(rig, "T", default_topic="PLAIN").code == 17
    assert isinstance(admit(rig, "%RETRY%G", default_topic="PLAIN"), Resend)
    retry = rig.services.topics.select("%RETRY%G")
    assert retry is not None and (retry.write_queue_nums, retry.perm) == (1, 6)
    assert rig.fast_path.named("topic_changed")[-1][1]["slow"] is True


def test_a_template_left_over_from_auto_creation_loses_inherit(tmp_path: Path) -> None:
    """Holds: answer, creation of topics by a send."""
    rig = SlowPathRig(tmp_path, auto_create_topic_enable=False)
    rig.services.topics.update(TopicConfig(topic_name="TBW102", perm=7))
    assert admit(rig, "T").code == 17
    template = rig.services.topics.select("TBW102")
    assert template is not None and template.perm == 6


def test_a_negative_queue_id_becomes_one_that_can_be_written(rig: SlowPathRig) -> None:
    chosen = {admit(rig, queue_id=-1).queue_id for _ in range(50)}
    assert chosen == {0, 1, 2, 3}


def test_a_queue_id_up_to_the_larger_number_is_legal(rig: SlowPathRig) -> None:
    """Holds: broker, read and write queue numbers; answer, checks of a send (10, 310, 320)."""
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=4))
    assert admit(rig, queue_id=7) == Resend(7, 0)
    assert admit(rig, queue_id=8).code == 1


def test_multi_tag_topics_mark_their_messages(rig: SlowPathRig) -> None:
    rig.services.topics.update(TopicConfig(topic_name="T", topic_filter_type=TopicFilterType.MULTI_TAG))
    assert admit(rig, sys_flag=1) == Resend(0, 3)


def test_a_delayed_message_is_stored_in_the_schedule_topic(rig: SlowPathRig) -> None:
    """Holds: broker, 18 delay levels."""
    verdict = admit(rig, queue_id=2, properties=b"KEYS\x01k\x02DELAY\x0199\x02", wait_store=False)
    assert isinstance(verdict, Put) and verdict.queue_id == 2
    message = verdict.message
    assert (message.topic, message.queue_id, message.wait_store) == ("SCHEDULE_TOPIC_XXXX", 17, False)
    assert props(message) == {
        "KEYS": "k",
        "DELAY": "18",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
        "CLUSTER": "DefaultCluster",
    }
    assert (message.born_host, message.born_timestamp_ms, message.message_flag) == (("10.0.0.1", 4000), 11, 3)


@pytest.mark.parametrize("properties", [b"DELAY\x013", b"TRAN_MSG\x01true"])
def test_delayed_and_half_messages_keep_wait_as_it_was_given(rig: SlowPathRig, properties: bytes) -> None:
    """Fault: WAIT was lost in delayed messages, half messages, retries and dead letters."""

    def stored(**changes: bool) -> str | None:
        verdict = admit(rig, properties=properties, **changes)
        assert isinstance(verdict, Put)
        return props(verdict.message).get("WAIT")

    assert stored() is None
    assert stored(has_wait=True) == "true"
    assert stored(has_wait=True, wait_store=False) == "false"


@pytest.mark.parametrize(
    "level", [b"0", b"-1", b"x", b"", b"\xc2\xb2", b"\xd9\xa3", b"9" * 4301, b"2147483648", b" 3", b"1_0"]
)
def test_no_level_is_no_delay(rig: SlowPathRig, level: bytes) -> None:
    """Fault: A DELAY property of 4301 digits raised during validation and held a place for pending sends for ever."""
    assert admit(rig, properties=b"DELAY\x01" + level) == Resend(0, 0)


def test_a_half_message_waits_in_the_half_topic_and_is_never_delayed(rig: SlowPathRig) -> None:
    verdict = admit(rig, queue_id=1, sys_flag=5, properties=b"TRAN_MSG\x01true\x02DELAY\x013\x02PGROUP\x01P")
    assert isinstance(verdict, Put) and verdict.queue_id == 1
    message = verdict.message
    assert (message.topic, message.queue_id, message.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    assert props(message)["REAL_TOPIC"] == "T" and props(message)["REAL_QID"] == "1"
    half = rig.services.topics.select("RMQ_SYS_TRANS_HALF_TOPIC")
    assert half is not None and half.write_queue_nums == 1


@pytest.mark.parametrize(
    ("changes", "is_dead"),
    [
        ({"reconsume_times": 15}, False),
        ({"reconsume_times": 16}, True),
        ({"reconsume_times": 3, "max_reconsume_times": 3}, True),
        ({"reconsume_times": 3, "max_reconsume_times": 3, "version": 120}, False),
    ],
)
def test_a_retry_that_was_tried_often_enough_goes_to_the_dead_letters(
    rig: SlowPathRig, changes: dict[str, Any], is_dead: bool
) -> None:
    """Holds: broker, dead letters; answer, retries and dead letters of a send."""
    verdict = admit(rig, "%RETRY%G", properties=b"DELAY\x015", **changes)
    assert isinstance(verdict, Put)
    assert verdict.message.topic == ("%DLQ%G" if is_dead else "SCHEDULE_TOPIC_XXXX")
    assert ("DELAY" in props(verdict.message)) is not is_dead
    assert verdict.queue_id == 0


def test_go_producers_send_a_limit_with_every_message_and_it_counts_for_retries_only(rig: SlowPathRig) -> None:
    """Holds: answer, retries and dead letters of a send."""
    assert admit(rig, max_reconsume_times=0) == Resend(0, 0)


def test_a_resend_is_completed_and_left_to_the_fast_path(rig: SlowPathRig) -> None:
    async def main() -> None:
        rig.services.topics.update(TopicConfig(topic_name="T"))
        await rig.services.topics.file.save()
        request = rig.send(queue_id=3)
        rig.broker.slow_send(request)
        assert rig.fast_path.calls[-2:] == [
            ("resend", (request, {"queue_id": 3, "sys_flag": 0})),
            ("complete", request),
        ]
        assert rig.channel.pushed == []

    rig.run(main)


def test_a_refusal_carries_region_and_trace_switch(rig: SlowPathRig) -> None:
    """Holds: trap, answers to sends have ext fields."""

    async def main() -> None:
        rig.broker.slow_send(rig.send("TBW102", queue_id=99, is_rocketmq=True))
        reply = rig.channel.last
        assert (reply.code, reply.opaque, reply.is_response) == (1, 7, True)
        assert reply.serialize_type is SerializeType.ROCKETMQ
        assert reply.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert len(rig.fast_path.named("complete")) == 1
        assert rig.refused == [1]

    rig.run(main)


def test_a_one_way_send_is_never_answered(rig: SlowPathRig) -> None:
    async def main() -> None:
        rig.broker.slow_send(rig.send("", is_oneway=True))
        rig.broker.slow_send(rig.send("TBW102", is_oneway=True, properties=b"DELAY\x011"))
        await trio.testing.wait_all_tasks_blocked()
        assert rig.channel.pushed == [] and len(rig.fast_path.puts) == 1
        assert len(rig.fast_path.named("complete")) == 2
        assert rig.refused == [1], "it is counted all the same"

    rig.run(main)


def test_the_answer_to_a_put_names_the_queue_that_was_asked_for(rig: SlowPathRig) -> None:
    async def main() -> None:
        rig.broker.slow_send(rig.send("TBW102", queue_id=5, properties=b"DELAY\x013"))
        await trio.testing.wait_all_tasks_blocked()
        reply = rig.channel.last
        assert reply.code == 0 and reply.remark is None
        assert reply.ext_fields == {
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "msgId": "7F00000100002A9F0000000000000384",
            "queueId": "5",
            "queueOffset": "7",
        }

    rig.run(main)


@pytest.mark.parametrize(
    ("code", "is_fenced", "remark"),
    [
        (14, False, "service not available now. It may"),
        (14, True, replies.PERHAPS_STORED),
        (13, False, "the message is illegal"),
    ],
)
def test_a_put_that_fails_is_a_refusal(rig: SlowPathRig, code: int, is_fenced: bool, remark: str) -> None:
    """Holds: answer, outcomes of the store for a send."""

    async def main() -> None:
        rig.fast_path.put_code, rig.fast_path.is_fenced = code, is_fenced
        rig.broker.slow_send(rig.send("TBW102", properties=b"DELAY\x013"))
        await trio.testing.wait_all_tasks_blocked()
        reply = rig.channel.last
        assert reply.code == code and (reply.remark or "").startswith(remark)
        assert "queueId" not in (reply.ext_fields or {})
        assert rig.refused == [], "the send worker, which refused to store it, has counted it"

    rig.run(main)
