"""RESUME_CHECK_HALF_MESSAGE (323)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.message import names
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.remoting.command import RemotingCommand
from tests.support.fake_store import Unit
from tests.support.slow_path import NOW_MS, SlowPathRig, record


def resume(rig: SlowPathRig, message_id: str) -> RemotingCommand:
    async def main() -> RemotingCommand:
        return await rig.ask(323, {"msgId": message_id})

    return trio.run(main)


def keep(rig: SlowPathRig, topic: str, properties: bytes = b"", *, is_in_queue: bool = True) -> None:
    """Put a record at 1000 of the log, and its unit into its queue."""
    image = record(topic=topic, properties=properties)
    rig.store.records[1000] = image
    unit = Unit(1000 if is_in_queue else 900, len(image))
    rig.store.queues[topic, 1] = [*[(Unit(0, 1), NOW_MS)] * 4, (unit, NOW_MS)]


def id_of(phy_offset: int) -> str:
    return encode_offset_message_id(("127.0.0.1", 10911), phy_offset)


def test_an_open_half_message_is_counted_anew(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    keep(rig, names.TRANS_HALF_TOPIC)
    rig.services.transactions.questions.checks[4] = 9
    assert resume(rig, id_of(1000)).code == 0
    assert rig.services.transactions.questions.checks == {4: 0}
    assert rig.fast_path.puts == []


def test_one_that_has_ended_is_not_delivered_again(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    keep(rig, names.TRANS_HALF_TOPIC)
    rig.fast_path.half_states.ended = {4}
    answer = resume(rig, id_of(1000))
    assert answer.code == 1 and "give the id of its copy in TRANS_CHECK_MAX_TIME_TOPIC" in (answer.remark or "")
    assert rig.fast_path.puts == []


def test_a_discarded_one_becomes_a_half_message_again(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    properties = b"REAL_TOPIC\x01T\x02TRANSACTION_CHECK_TIMES\x0115"
    keep(rig, names.TRANS_CHECK_MAX_TIME_TOPIC, properties)
    assert resume(rig, id_of(1000)).code == 0
    (put,) = rig.fast_path.puts
    assert (put.topic, put.queue_id, put.body) == (names.TRANS_HALF_TOPIC, 0, b"body")
    assert put.properties == b"REAL_TOPIC\x01T\x02TRANSACTION_CHECK_TIMES\x010"
    assert rig.services.topics.select(names.TRANS_OP_HALF_TOPIC) is not None


@pytest.mark.parametrize("message_id", ["", "xyz", id_of(1000), id_of(5)])
def test_other_messages_are_refused(tmp_path: Path, message_id: str) -> None:
    rig = SlowPathRig(tmp_path)
    keep(rig, "T")
    assert resume(rig, message_id).code == 1
    assert rig.fast_path.puts == []


def test_what_looks_like_a_record_inside_of_a_body_is_refused(tmp_path: Path) -> None:
    """Fault: A forged record in a body became a half message, with zero bytes at which a recovery ends the log."""
    rig = SlowPathRig(tmp_path)
    keep(rig, names.TRANS_CHECK_MAX_TIME_TOPIC, b"REAL_TOPIC\x01T\x02A\x01\0", is_in_queue=False)
    answer = resume(rig, id_of(1000))
    assert answer.code == 1 and "no half message" in (answer.remark or "")
    assert rig.fast_path.puts == []
