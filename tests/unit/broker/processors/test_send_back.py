"""A message that a consumer could not handle: again later, or with the dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from rocketpy.config import BrokerRole
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import NOW_MS, SlowPathRig, record

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
BACK = {"offset": "1000", "group": "G", "delayLevel": "0", "originMsgId": "x", "originTopic": "T"}


def send_back(rig: SlowPathRig, **changes: Any) -> tuple[int, str | None]:
    version = changes.pop("version", 409)
    response = trio.run(lambda: rig.ask(36, BACK | changes, version=version))
    return response.code, response.remark


def stored(rig: SlowPathRig) -> tuple[str, int, dict[str, str]]:
    message = rig.fast_path.puts[-1]
    return message.topic, message.queue_id, decode_properties(message.properties.decode())


def test_a_first_retry_waits_at_level_three(tmp_path: Path) -> None:
    """Fault: WAIT was lost in delayed messages, half messages, retries and dead letters.
    Holds: broker, retries with growing intervals."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record(properties=b"KEYS\x01k\x02TAGS\x01a")
    assert send_back(rig) == (0, None)
    assert stored(rig) == (
        "SCHEDULE_TOPIC_XXXX",
        2,
        {
            "KEYS": "k",
            "TAGS": "a",
            "WAIT": "false",
            "RETRY_TOPIC": "T",
            "DELAY": "3",
            "REAL_TOPIC": "%RETRY%G",
            "REAL_QID": "0",
            "ORIGIN_MESSAGE_ID": encode_offset_message_id(("127.0.0.1", 10911), 1000),
        },
    )
    message = rig.fast_path.puts[-1]
    assert message.reconsume_times == 1 and message.body == b"body" and not message.wait_store
    assert (message.born_host, message.born_timestamp_ms, message.message_flag) == (("10.1.1.1", 99), NOW_MS - 5, 2)
    item = rig.services.stats.item("SNDBCK_PUT_NUMS", "T@G")
    assert item is not None and item.value == 1
    assert '"%RETRY%G"' in (tmp_path / "config" / "topics.json").read_text()


def test_a_slave_refuses_and_creates_nothing(tmp_path: Path) -> None:
    """Fault: A slave created topics and groups for sends that it refused."""
    rig = SlowPathRig(tmp_path, broker_id=1, broker_role=BrokerRole.SLAVE)
    rig.store.records[1000] = record()
    topics, groups = rig.services.topics.topics, rig.services.groups.groups
    code, remark = send_back(rig)
    assert code == 14 and remark is not None and "this broker is a slave" in remark
    assert rig.services.topics.topics == topics and rig.services.groups.groups == groups


@pytest.mark.parametrize("properties", [b"a\x01b\0", b"RETRY_TOPIC\x01T\0\0", b"ORIGIN_MESSAGE_ID\x01\0"])
def test_zero_bytes_are_not_stored_again(tmp_path: Path, properties: bytes) -> None:
    """The offset is the sender's: what is there may be part of a body, and was never checked.
    Fault: A retry stored with zero bytes in its properties ended the log after a power failure."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record(properties=properties)
    assert send_back(rig) == (0, None)
    assert b"\0" not in rig.fast_path.puts[-1].properties


def test_a_count_of_attempts_that_its_sender_made_up_stays_in_its_field(tmp_path: Path) -> None:
    """Fault: A message with the highest 32-bit count of attempts could not be sent back."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record(reconsume_times=(1 << 31) - 1)
    assert send_back(rig) == (0, None)
    assert rig.fast_path.puts[-1].reconsume_times == (1 << 31) - 1


@pytest.mark.parametrize("attempts", [-1, -3, -(1 << 31)])
def test_a_negative_count_of_attempts_is_none(tmp_path: Path, attempts: int) -> None:
    """Fault: A message of -2^31 attempts that a handler refused was stored again at once, and never a dead letter."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record(properties=b"KEYS\x01k", reconsume_times=attempts)
    assert send_back(rig) == (0, None)
    topic, queue_id, properties = stored(rig)
    assert (topic, queue_id, properties["DELAY"]) == ("SCHEDULE_TOPIC_XXXX", 2, "3")
    assert rig.fast_path.puts[-1].reconsume_times == 1


def test_later_retries_wait_longer_and_remember_where_they_come_from(tmp_path: Path) -> None:
    """Holds: broker, retries with growing intervals."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record(
        topic="%RETRY%G", properties=b"RETRY_TOPIC\x01T\x02ORIGIN_MESSAGE_ID\x01FIRST\x02DELAY\x013", reconsume_times=4
    )
    assert send_back(rig) == (0, None)
    topic, queue_id, properties = stored(rig)
    assert (topic, queue_id, properties["DELAY"]) == ("SCHEDULE_TOPIC_XXXX", 6, "7")
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", "FIRST")
    assert send_back(rig, delayLevel="99") == (0, None)
    assert stored(rig)[1] == 17


@pytest.mark.parametrize(
    ("reconsume_times", "changes", "is_dead"),
    [
        (15, {}, False),
        (16, {}, True),
        (0, {"delayLevel": "-1"}, True),
        (2, {"maxReconsumeTimes": "2"}, True),
        (2, {"maxReconsumeTimes": "2", "version": 120}, False),
        (20, {"maxReconsumeTimes": "99"}, False),
    ],
)
def test_dead_letters(tmp_path: Path, reconsume_times: int, changes: dict[str, Any], is_dead: bool) -> None:
    """Holds: broker, dead letters; answer, send-back (36); trap, retry and dead letter topics are made where they
    are needed."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record(properties=b"DELAY\x013", reconsume_times=reconsume_times)
    assert send_back(rig, **changes) == (0, None)
    topic, queue_id, properties = stored(rig)
    if is_dead:
        assert (topic, queue_id) == ("%DLQ%G", 0) and "DELAY" not in properties
        assert properties["WAIT"] == "false"
        dead_letters = rig.services.topics.select("%DLQ%G")
        assert dead_letters is not None and (dead_letters.perm, dead_letters.write_queue_nums) == (6, 1)
    else:
        assert topic == "SCHEDULE_TOPIC_XXXX"


def test_refusals_in_order(tmp_path: Path) -> None:
    """Holds: answer, send-back (36)."""
    closed = SlowPathRig(tmp_path, auto_create_subscription_group=False, broker_permission=4)
    assert send_back(closed) == (26, f"subscription group not exist, G {FAQ}")
    assert send_back(closed, group="TOOLS_CONSUMER") == (16, "the broker[127.0.0.1] sending message is forbidden")
    rig = SlowPathRig(tmp_path / "2")
    rig.services.groups.update(SubscriptionGroupConfig(group_name="NONE", retry_queue_nums=0))
    assert send_back(rig, group="NONE") == (0, None)
    assert rig.fast_path.puts == [] and rig.services.topics.select("%RETRY%NONE") is None
    rig.services.topics.update(TopicConfig(topic_name="%RETRY%R", perm=4))
    assert send_back(rig, group="R") == (16, "the topic[%RETRY%R] sending message is forbidden")
    assert send_back(rig) == (1, "look message by offset failed, 1000")
    rig.store.records[1000] = b"\0" * 100
    assert send_back(rig) == (1, "look message by offset failed, 1000")
    rig.store.records[1000] = b"\x01" * 100
    assert send_back(rig) == (1, "look message by offset failed, 1000")


@pytest.mark.parametrize(
    ("code", "name"),
    [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT"), (1, "UNKNOWN_ERROR")],
)
def test_anything_but_success_is_a_failure(tmp_path: Path, code: int, name: str) -> None:
    """Holds: answer, send-back (36); trap, FLUSH_DISK_TIMEOUT is a success of a send only."""
    rig = SlowPathRig(tmp_path)
    rig.store.records[1000] = record()
    rig.fast_path.put_code = code
    assert send_back(rig) == (1, name)
