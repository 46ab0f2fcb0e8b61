"""Delay levels in the send worker: what it accepts, what it leaves to the manager, and deliveries of many together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.broker.fast_path.shared_memory import DeliveryMarks
from rocketpy.codes import ResponseCode
from rocketpy.message.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import CONNECTION_INTERNAL, decode_put_result, encode_deliver, encode_put
from rocketpy.remoting.fast_path import Delivery, DueMessages, MessageToPut, PutResult
from tests.support.fast_path import FastPath, drain
from tests.support.fast_path_requests import send_v2
from tests.support.half_messages import answers, stored

LEVELS = 3
DISK_FULL = 16
SUCCESS, SYSTEM_ERROR, SYSTEM_BUSY = 0, 1, 2
DIED = 9


class Rig(FastPath):
    """A broker of three levels, whose send worker has marks."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.marks = DeliveryMarks(LEVELS, lambda: lib.rp_control_header(self.block).published_phy_offset)
        super().__init__(root, marks=self.marks.pointer, **options)

    def send_all(self, *sends: tuple[bytes, str]) -> list[int]:
        """Send bodies with properties to queue 2 of T; the codes of the answers."""
        for number, (body, properties) in enumerate(sends):
            self.frame(send_v2(body=body, properties=properties, queue=2, opaque=number))
        self.turn()
        return [answer.code for answer in answers(self)]

    def delayed(self, level: int = 1) -> list[StoredRecord]:
        return [r for r in stored(self) if r.topic == SCHEDULE_TOPIC and r.queue_id == level - 1]

    def delivered(self, topic: str = "T") -> list[bytes]:
        return [bytes(record.body) for record in stored(self) if record.topic == topic]

    def deliver(self, level: int = 1, begin: int = 0, places: list[tuple[int, int]] | None = None) -> PutResult:
        """Deliver what is delayed in this level, from the offset on."""
        if places is None:
            places = [(record.phy_offset, record.size) for record in self.delayed(level)[begin:]]
        self.tell_send(lib.RP_MSG_DELIVER, encode_deliver(DueMessages(level, begin, places), 9))
        self.turn()
        (record,) = [record for kind, record in self.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
        token, result = decode_put_result(record, ("127.0.0.1", 10911))
        assert token == 9
        return result

    def restart_send(self) -> None:
        lib.rp_send_close(self.send)
        self.send = self.open_send()
        self.add_topic("T")
        self.tables_end()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    rig.add_topic("T")
    rig.add_topic(SCHEDULE_TOPIC, LEVELS)
    rig.tables_end()
    yield rig
    rig.close()


# --- accept


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ("DELAY\x012\x02", {}),
        ("KEYS\x01k\x02DELAY\x012", {"KEYS": "k"}),
        ("DELAY\x012\x02WAIT\x01false\x02", {"WAIT": "false"}),
        ("WAIT\x01true\x02DELAY\x011\x02DELAY\x012", {"WAIT": "true"}),  # of several the last one counts
        ("DELAY\x01+2", {"DELAY": "+2"}),
        ("DELAY\x0102", {"DELAY": "02"}),
    ],
)
def test_a_send_with_a_level_is_stored_in_its_queue(rig: Rig, properties: str, kept: dict[str, str]) -> None:
    assert rig.send_all((b"x", properties)) == [SUCCESS]
    (record,) = rig.delayed(2)
    expected = {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "2", "CLUSTER": "DefaultCluster"}
    assert decode_properties(record.properties.decode()) == expected | kept


def test_the_answer_names_the_queue_that_the_sender_chose(rig: Rig) -> None:
    rig.frame(send_v2(properties="DELAY\x011", queue=3))
    rig.turn()
    (answer,) = answers(rig)
    assert answer.ext_fields is not None and answer.ext_fields["queueId"] == "3"


@pytest.mark.parametrize(
    ("properties", "more"),
    [
        (f"DELAY\x01{LEVELS + 1}", {}),
        ("DELAY\x010", {}),
        ("DELAY\x01-1", {}),
        ("DELAY\x011x", {}),
        ("DELAY\x01" + "9" * 30, {}),
        ("DELAY\x011\x02REAL_TOPIC\x01other", {}),
        ("DELAY\x011\x02REAL_QID\x015", {}),
        ("DELAY\x011\x02TIMER_DELAY_MS\x0150", {}),
        ("TIMER_OUT_MS\x011\x02TIMER_DELAY_MS\x0150\x02DELAY\x011", {}),
        ("DELAY\x011\x02TIMER_DEL_UNIQKEY\x01k", {}),
        ("DELAY\x011\x02TRAN_MSG\x01true", {}),
        ("DELAY\x011", {"f": "4"}),  # of a sender's own making: prepared
        ("DELAY\x011", {"m": "true"}),  # a batch
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_manager(rig: Rig, properties: str, more: dict[str, str]) -> None:
    rig.frame(send_v2(properties=properties, **more))
    rig.turn()
    assert [kind for kind, _ in rig.for_manager()] == [lib.RP_MSG_SEND]
    assert answers(rig) == [] and stored(rig) == []


def test_a_send_that_the_manager_hands_back_is_stored_as_it_is(rig: Rig) -> None:
    """A level of zero means no delay."""
    rig.frame(send_v2(properties="DELAY\x010"))
    rig.turn()
    ((kind, record),) = rig.for_manager()
    rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    assert rig.delivered() == [b"hello"]


def test_without_the_queue_of_the_level_the_manager_decides(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send_v2(properties="DELAY\x011"))
    rig.turn()
    assert [kind for kind, _ in rig.for_manager()] == [lib.RP_MSG_SEND]
    rig.close()


# --- deliver


def test_messages_of_a_level_are_delivered_together_as_they_were(rig: Rig) -> None:
    rig.send_all(*((b"%d" % number, "TAGS\x01A\x02DELAY\x011") for number in range(5)))
    result = rig.deliver()
    assert (result.code, result.queue_offset) == (SUCCESS, 5)
    delivered = [record for record in stored(rig) if record.topic == "T"]
    for before, after in zip(rig.delayed(), delivered, strict=True):
        assert (after.queue_id, after.properties, after.body) == (2, before.properties, before.body)
        assert (after.born_host, after.born_timestamp_ms) == (before.born_host, before.born_timestamp_ms)
        assert (after.flag, after.sys_flag, after.prepared_transaction_offset) == (before.flag, before.sys_flag, 0)
    assert [record.queue_offset for record in delivered] == list(range(5))
    assert rig.marks.last(1) == Delivery(1, rig.delayed()[-1].phy_offset, 4)


def test_a_delivery_that_is_asked_for_again_stores_nothing(rig: Rig) -> None:
    rig.send_all(*((b"%d" % number, "DELAY\x011") for number in range(4)))
    places = [(record.phy_offset, record.size) for record in rig.delayed()]
    assert rig.deliver(places=places[:2]).queue_offset == 2
    assert rig.deliver().queue_offset == 4
    rig.restart_send()
    assert (result := rig.deliver()).queue_offset == 4 and result.code == SUCCESS
    assert rig.delivered() == [b"0", b"1", b"2", b"3"]


def test_a_put_of_the_manager_and_deliveries_share_their_marks(rig: Rig) -> None:
    rig.send_all(*((b"%d" % number, "DELAY\x011") for number in range(3)))
    second = rig.delayed()[1]
    message = MessageToPut("T", 0, b"1", b"", wait_store=False, delivery=Delivery(1, second.phy_offset, 1))
    assert rig.deliver(places=[(rig.delayed()[0].phy_offset, rig.delayed()[0].size)]).code == SUCCESS
    rig.put(encode_put(message, 1, 0))
    rig.turn()
    rig.for_manager()
    assert rig.deliver().queue_offset == 3
    assert rig.delivered() == [b"0", b"1", b"2"]


def with_three(rig: Rig, properties: str) -> None:
    """The second of three delayed messages has other properties; it was stored by the manager."""
    rig.send_all((b"0", "DELAY\x011"))
    rig.put(encode_put(MessageToPut(SCHEDULE_TOPIC, 0, b"1", properties.encode(), wait_store=False), 1, 0))
    rig.turn()
    rig.for_manager()
    rig.send_all((b"2", "DELAY\x011"))


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x011",
        "DELAY\x011\x02REAL_TOPIC\x01T",
        "DELAY\x011\x02REAL_TOPIC\x01gone\x02REAL_QID\x010",
        "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01-1",
        "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x",
        f"DELAY\x011\x02REAL_TOPIC\x01{TRANS_HALF_TOPIC}\x02REAL_QID\x010",
    ],
)
def test_deliveries_stop_before_what_needs_the_manager(rig: Rig, properties: str) -> None:
    rig.add_topic(TRANS_HALF_TOPIC, 1)
    with_three(rig, properties)
    assert ((result := rig.deliver()).code, result.queue_offset) == (SYSTEM_ERROR, 1)
    assert rig.delivered() == [b"0"]
    assert ((result := rig.deliver(begin=2)).code, result.queue_offset) == (SUCCESS, 3)
    assert rig.delivered() == [b"0", b"2"]


def test_a_queue_that_there_is_no_more_is_replaced_by_another(rig: Rig) -> None:
    rig.send_all((b"x", "DELAY\x011"))
    rig.add_topic("T", 2)
    assert rig.deliver().code == SUCCESS
    assert [record.queue_id for record in stored(rig) if record.topic == "T"] == [0]


@pytest.mark.parametrize(
    "damage",
    [
        (0, 0),
        (0, 20),
        (0, 1 << 31),
        (7, 200),
        (1 << 40, 100),
        ((1 << 64) - 1, (1 << 32) - 1),
    ],
)
def test_a_damaged_unit_harms_nothing(rig: Rig, damage: tuple[int, int]) -> None:
    rig.send_all((b"0", "DELAY\x011"), (b"1", "DELAY\x011"))
    first, second = [(record.phy_offset, record.size) for record in rig.delayed()]
    assert ((result := rig.deliver(places=[damage, second])).code, result.queue_offset) == (SYSTEM_ERROR, 0)
    assert ((result := rig.deliver(places=[second, first])).code, result.queue_offset) == (SYSTEM_ERROR, 0)
    assert rig.delivered() == []
    assert rig.deliver(places=[first, second]).code == SUCCESS


def test_a_unit_that_points_to_an_earlier_message_does_not_count_as_delivered(rig: Rig) -> None:
    """The manager reports the damage; a mark would hide it."""
    rig.send_all(*((b"%d" % number, "DELAY\x011") for number in range(4)))
    places = [(record.phy_offset, record.size) for record in rig.delayed()]
    assert rig.deliver(places=places[:2]).code == SUCCESS
    assert ((result := rig.deliver(begin=2, places=[places[0]])).code, result.queue_offset) == (SYSTEM_ERROR, 2)
    assert ((result := rig.deliver(begin=2, places=[(7, 200)])).code, result.queue_offset) == (SYSTEM_ERROR, 2)


def test_a_unit_that_points_to_a_later_message_takes_no_others_with_it(rig: Rig) -> None:
    """The manager delivers what such a unit points to. The messages in between were taken for delivered, and lost."""
    rig.send_all(*((b"%d" % number, "DELAY\x011") for number in range(4)))
    last = rig.delayed()[3]
    message = MessageToPut("T", 0, b"3", b"", wait_store=False, delivery=Delivery(1, last.phy_offset, 0))
    rig.put(encode_put(message, 1, 0))
    rig.turn()
    rig.for_manager()
    assert rig.deliver(begin=1).code == SUCCESS
    assert rig.delivered() == [b"3", b"1", b"2", b"3"]


@pytest.mark.parametrize("level", [0, 2, LEVELS + 1, 1 << 31])
def test_another_level_than_the_record_s_is_no_delivery(rig: Rig, level: int) -> None:
    rig.send_all((b"0", "DELAY\x011"))
    places = [(record.phy_offset, record.size) for record in rig.delayed()]
    assert rig.deliver(level, places=places).code == SYSTEM_ERROR and rig.delivered() == []


def test_a_full_disk_is_the_manager_s(rig: Rig) -> None:
    rig.send_all((b"0", "DELAY\x011"))
    lib.rp_control_header(rig.block).running_flags = DISK_FULL
    assert ((result := rig.deliver()).code, result.queue_offset) == (SYSTEM_ERROR, 0)
    lib.rp_control_header(rig.block).running_flags = 0
    assert rig.deliver().code == SUCCESS and rig.delivered() == [b"0"]


def test_the_send_worker_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    away: set[int] = set()

    @ffi.callback("int(*)(const uint8_t *, uint64_t)")  # type: ignore[untyped-decorator]
    def in_memory(at: Any, size: int) -> int:
        return int(size not in away)

    rig = Rig(tmp_path, in_memory=in_memory)
    rig.add_topic("T")
    rig.add_topic(SCHEDULE_TOPIC, LEVELS)
    rig.tables_end()
    rig.send_all((b"0", "DELAY\x011"), (b"long", "DELAY\x011"))
    away.add(rig.delayed()[1].size)
    assert ((result := rig.deliver()).code, result.queue_offset) == (SYSTEM_BUSY, 1)
    away.clear()
    assert ((result := rig.deliver()).code, result.queue_offset) == (SUCCESS, 2)
    assert rig.delivered() == [b"0", b"long"]
    rig.close()


def die_of_delivery(rig: Rig, deadly: set[int], *, has_crashed: bool) -> None:
    """The send worker dies of the second of three messages; the next one has tables, but not the DELIVER."""
    second = rig.delayed()[1]
    places = [(record.phy_offset, record.size) for record in rig.delayed()]
    rig.tell_send(lib.RP_MSG_DELIVER, encode_deliver(DueMessages(1, 0, places), 9))
    if (pid := os.fork()) == 0:
        deadly.add(second.size)
        rig.turn()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == DIED
    reader = lib.rp_ring_reader_open(rig.manager_send)
    assert [kind for kind, _ in drain(reader)] == [lib.RP_MSG_DELIVER]
    lib.rp_ring_reader_close(reader)
    rig.workers["send"].has_crashed = has_crashed  # as the supervisor does
    rig.restart_send()
    rig.turn()


@pytest.mark.parametrize(("crashes", "kills", "is_tried"), [(2, 0, True), (3, 0, False), (0, 4, True), (2, 1, True)])
def test_a_delivery_that_crashes_the_send_worker_is_not_tried_for_ever(
    tmp_path: Path, crashes: int, kills: int, is_tried: bool
) -> None:
    """A kill ends the count: a disk that hangs says nothing of the message.
    Fault: A delayed message whose delivery crashed the send worker ended the broker after ten restarts, or was tried
    again each second for ever."""
    deadly, served = set[int](), set[int]()

    @ffi.callback("int(*)(const uint8_t *, uint64_t)")  # type: ignore[untyped-decorator]
    def in_memory(at: Any, size: int) -> int:
        served.add(rig.workers["send"].serving)
        if size in deadly:
            os._exit(DIED)
        return 1

    rig = Rig(tmp_path, in_memory=in_memory)
    rig.add_topic("T")
    rig.add_topic(SCHEDULE_TOPIC, LEVELS)
    rig.tables_end()
    rig.send_all((b"0", "DELAY\x011"), (b"deadly", "DELAY\x011"), (b"2", "DELAY\x011"), (b"3", "DELAY\x012"))
    for number in range(crashes + kills):
        die_of_delivery(rig, deadly, has_crashed=number < crashes)
        assert rig.deliver(2).code == SUCCESS, "deliveries of another level do not end the count"
    second = rig.delayed()[1]
    message = MessageToPut("T", 0, b"deadly", b"", wait_store=False, delivery=Delivery(1, second.phy_offset, 1))
    for _ in range(2):
        if not is_tried:
            assert ((result := rig.deliver()).code, result.queue_offset) == (SYSTEM_ERROR, 1)
        rig.put(encode_put(message, 1, 0))
        rig.turn()
        (record,) = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
        _, result = decode_put_result(record, ("127.0.0.1", 10911))
        assert result.code == (SUCCESS if is_tried else ResponseCode.MESSAGE_ILLEGAL)
    assert rig.deliver(begin=2).code == SUCCESS
    assert rig.delivered() == [b"0", b"3", *([b"deadly"] if is_tried else []), b"2"]
    assert served == {CONNECTION_INTERNAL}
    rig.close()


@pytest.mark.parametrize("count", [1, 2, 1 << 28, (1 << 32) - 1])
def test_a_message_whose_sizes_do_not_add_up_is_dropped(rig: Rig, count: int) -> None:
    record = bytearray(encode_deliver(DueMessages(1, 0, [(0, 100)]), 9))
    ffi.cast("rp_msg_deliver *", ffi.from_buffer(record)).count = count
    rig.tell_send(lib.RP_MSG_DELIVER, bytes(record[:-1]))
    rig.turn()
    assert rig.for_manager() == []
