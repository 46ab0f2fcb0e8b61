"""Timers in the send worker and the timer thread: which messages are timers, and what delivers them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.message.properties import decode_properties
from rocketpy.native.core import ffi, lib
from rocketpy.native.status import Status
from rocketpy.remoting.command import RemotingCommand
from tests.support.history import send_request
from tests.support.timer_rig import DEAD_LETTERS, MAX_DELAY_MS, START_MS, TIMER_TOPIC, TimerRig

DISK_FULL = 16


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    rig = TimerRig(tmp_path)
    rig.add_timer_topic()
    yield rig
    rig.close()


def code_of(answer: RemotingCommand | None) -> int:
    assert answer is not None
    return answer.code


@pytest.mark.parametrize(
    ("properties", "delay_ms"),
    [
        ("TIMER_DELAY_MS\x01700", 700),
        ("TIMER_DELAY_SEC\x013", 3000),
        (f"TIMER_DELIVER_MS\x01{START_MS + 77}", 77),
        (f"__STARTDELIVERTIME\x01{START_MS + 78}", 78),
        ("TIMER_DELAY_MS\x01700\x02TIMER_DELAY_SEC\x013", 3000),
        (f"TIMER_DELIVER_MS\x01{START_MS + 5}\x02TIMER_DELAY_MS\x01700", 700),
        (f"__STARTDELIVERTIME\x01{START_MS + 5}\x02TIMER_DELIVER_MS\x01{START_MS + 6}", 6),
        (f"TIMER_DELAY_MS\x01{MAX_DELAY_MS}", MAX_DELAY_MS),
        ("TIMER_DELAY_MS\x01+9", 9),
        ("KEYS\x01a\x02TIMER_DELAY_MS\x015\x02TAGS\x01b\x02", 5),
        ("REAL_TOPIC\x01other\x02TIMER_DELAY_MS\x015", 5),
    ],
)
def test_a_timer_comes_at_its_millisecond(rig: TimerRig, properties: str, delay_ms: int) -> None:
    assert code_of(rig.send(b"x", properties, queue_id=3)) == 0
    rig.run_until_idle()
    rig.advance(delay_ms - 1)
    rig.run_until_idle()
    assert rig.bodies() == [] and rig.header.pending == 1 and rig.header.next_due_ms == START_MS + delay_ms
    rig.advance(1)
    rig.run_until_idle()
    [record] = rig.records("T")
    assert record.queue_id == 3 and record.store_timestamp_ms == START_MS + delay_ms
    assert rig.header.pending == 0 and rig.header.next_due_ms == 0


@pytest.mark.parametrize(
    "properties",
    [
        "TIMER_DELAY_MS\x010",
        "TIMER_DELAY_MS\x01-5",
        f"TIMER_DELIVER_MS\x01{START_MS}",
        "TIMER_DELIVER_MS\x010",
        "TIMER_DELAY_MS\x01",
        "TIMER_DELAY_MSX\x015000",
        "TIMER_DELAY_MS\x015000\x02TIMER_OUT_MS\x0117",
    ],
)
def test_it_is_delivered_at_once(rig: TimerRig, properties: str) -> None:
    assert code_of(rig.send(b"x", properties)) == 0
    assert rig.bodies() == [b"x"] and rig.records(TIMER_TOPIC) == []


@pytest.mark.parametrize(
    "properties",
    [
        "TIMER_DELAY_MS\x01x",
        "TIMER_DELAY_MS\x011.5",
        f"TIMER_DELAY_MS\x01{1 << 63}",
        f"TIMER_DELAY_MS\x01{(1 << 63) - 1}",
        f"TIMER_DELAY_SEC\x01{(1 << 63) - 1}",
        f"TIMER_DELIVER_MS\x01{(1 << 63) - 1}",
        "TIMER_DELIVER_MS\x01-1",
        f"TIMER_DELAY_MS\x01{MAX_DELAY_MS + 1}",
    ],
)
def test_it_is_refused(rig: TimerRig, properties: str) -> None:
    answer = rig.send(b"x", properties)
    assert code_of(answer) == 13 and answer is not None and (answer.remark or "").startswith("timer message illegal")
    rig.advance(10)
    rig.run_until_idle()
    assert rig.bodies() == [] and rig.records(TIMER_TOPIC) == []


def test_a_batch_is_no_timer(rig: TimerRig) -> None:
    command = send_request("T", 0, [b"a", b"b"], 1)
    assert command.ext_fields is not None
    command.ext_fields["i"] = "TIMER_DELAY_MS\x0150"
    assert code_of(rig.ask(command)) == 13
    for inside in (b"TIMER_DELAY_MS\x0150", b"__STARTDELIVERTIME\x01%d" % (START_MS + 50)):
        assert code_of(rig.ask(batch_with(inside))) == 13
    assert rig.bodies() == []


def batch_with(inside: bytes) -> RemotingCommand:
    """A batch of two messages, one of which has these properties."""
    entry = (22 + 1 + len(inside)).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"a"
    batch = send_request("T", 0, [b"a", b"b"], 2)
    batch.body = entry + len(inside).to_bytes(2, "big") + inside
    return batch


@pytest.mark.parametrize("sys_flag", [4, 8, 12])
def test_a_sender_cannot_make_a_timer_part_of_a_transaction(rig: TimerRig, sys_flag: int) -> None:
    command = send_request("T", 0, [b"x"], 1)
    assert command.ext_fields is not None
    command.ext_fields |= {"i": "TIMER_DELAY_MS\x0150", "f": str(sys_flag)}
    assert code_of(rig.ask(command)) == 0
    rig.advance(50)
    rig.run_until_idle()
    rig.reboot()
    rig.run_until_idle()
    assert [record.sys_flag for record in rig.records("T")] == [0]


def test_the_first_timer_goes_to_the_manager_which_makes_the_topic(tmp_path: Path) -> None:
    rig = TimerRig(tmp_path)
    assert rig.send(b"x", "TIMER_DELAY_MS\x0150") is None
    [(kind, data)] = [record for record in rig.path.for_manager() if record[0] == lib.RP_MSG_SEND]
    rig.add_timer_topic()
    rig.path.hand_back(kind, data, lib.RP_REQUEST_RESOLVED)
    rig.path.turn()
    assert len(rig.records(TIMER_TOPIC)) == 1
    rig.advance(50)
    rig.run_until_idle()
    assert rig.bodies() == [b"x"]
    rig.close()


def test_it_keeps_its_own_properties(rig: TimerRig) -> None:
    assert code_of(rig.send(b"x", "KEYS\x01k\x02TIMER_DELAY_MS\x0150\x02TAGS\x01t")) == 0
    rig.advance(50)
    rig.run_until_idle()
    [record] = rig.records("T")
    assert decode_properties(record.properties.decode()) == {
        "KEYS": "k",
        "TIMER_DELAY_MS": "50",
        "TAGS": "t",
        "CLUSTER": "DefaultCluster",
        "TIMER_OUT_MS": str(START_MS + 50),
    }
    [timer] = rig.records(TIMER_TOPIC)
    assert record.prepared_transaction_offset == timer.phy_offset + 1
    assert (record.born_timestamp_ms, record.born_host) == (timer.born_timestamp_ms, timer.born_host)


def test_a_timer_whose_topic_is_gone_is_a_dead_letter(rig: TimerRig) -> None:
    rig.send_many([(b"x", "TIMER_DELAY_MS\x0150")])
    rig.path.tell_send(lib.RP_MSG_TOPIC, _removed("T"))
    rig.advance(50)
    rig.run_until_idle()
    assert rig.bodies() == [] and rig.bodies(DEAD_LETTERS) == [b"x"]
    assert rig.path.workers["send"].counters[lib.RP_COUNT_TIMERS_DEAD_LETTERS] == 1


def _removed(topic: str) -> bytes:
    from rocketpy.reactor.worker_messages import encode_topic

    return encode_topic(topic, flags=lib.RP_TABLE_REMOVE)


def test_what_a_full_disk_refuses_is_tried_again(rig: TimerRig) -> None:
    rig.send_many([(b"%d" % number, "TIMER_DELAY_MS\x0150") for number in range(10)])
    rig.control.running_flags = DISK_FULL
    rig.advance(60)
    for _ in range(3):
        rig.step()
        rig.path.turn()
    assert rig.bodies() == []
    rig.control.running_flags = 0
    rig.advance(2000)
    rig.run_until_idle()
    assert sorted(rig.bodies()) == [b"%d" % number for number in range(10)]


def test_what_is_refused_again_and_again_fills_no_disk(tmp_path: Path) -> None:
    """More timers are due than may be under way, and the disk is too full to deliver them."""
    rig = TimerRig(tmp_path, heap_max=500)
    rig.add_timer_topic()
    total = 4600
    for begin in range(0, total, 100):
        for number in range(begin, begin + 100):
            command = send_request("T", 0, [b"%d" % number], number)
            assert command.ext_fields is not None
            command.ext_fields["i"] = "TIMER_DELAY_MS\x01500"
            assert rig.path.frame(command) == lib.RP_OK
        rig.path.turn()
        assert {answer.code for _, answer in rig.path.answers()} == {0}
    while rig.step() == Status.OK:
        pass
    runs = tmp_path / "timer" / "runs"
    count = len(list(runs.iterdir()))
    assert count > 0
    rig.control.running_flags = DISK_FULL
    for _ in range(6):
        rig.advance(1100)
        for _ in range(12):
            rig.step()
            rig.path.turn()
    assert rig.bodies() == [] and rig.header.pending == total
    assert len(list(runs.iterdir())) == count
    rig.control.running_flags = 0
    for _ in range(2):
        rig.advance(1100)
        rig.run_until_idle()
    assert sorted(rig.bodies()) == sorted(b"%d" % number for number in range(total))
    assert rig.header.pending == 0
    rig.close()


def test_the_log_is_held_from_the_oldest_pending_timer_on(rig: TimerRig) -> None:
    rig.send_many([(b"short", "TIMER_DELAY_MS\x0150"), (b"long", "TIMER_DELAY_MS\x0199000"), (b"s", "")])
    rig.advance(2000)
    rig.run_until_idle()
    rig.advance(2000)
    rig.run_until_idle()
    pending = rig.records(TIMER_TOPIC)[1]
    assert rig.header.held_phy_offset == pending.phy_offset + 1
    rig.advance(100_000)
    rig.run_until_idle()
    rig.advance(2000)
    rig.run_until_idle()
    assert rig.bodies() == [b"s", b"short", b"long"]
    assert rig.header.held_phy_offset == rig.control.published_phy_offset + 1, "nothing before is needed"
    assert rig.path.workers["store"].counters[lib.RP_COUNT_TIMERS_OLDEST] == 0


def test_the_whole_log_is_held_until_it_was_read(rig: TimerRig) -> None:
    """The directory of the timers is lost: which files have pending timers is not known before the log was read."""
    rig.send_many([(b"%d" % delay_ms, f"TIMER_DELAY_MS\x01{delay_ms}") for delay_ms in (50, 99_000)])
    rig.advance(2000)
    rig.run_until_idle()
    rig.advance(2000)
    rig.run_until_idle()
    assert rig.header.held_phy_offset > 1
    rig.reboot(lost=True)
    assert rig.header.held_phy_offset <= 1, "nothing may be deleted"
    rig.run_until_idle()
    assert rig.header.held_phy_offset == rig.records(TIMER_TOPIC)[1].phy_offset + 1


def test_nothing_is_held_where_there_were_no_timers(tmp_path: Path) -> None:
    rig = TimerRig(tmp_path)
    assert rig.send(b"x", "") is not None
    assert rig.header.held_phy_offset == 0
    assert rig.step() == Status.EMPTY
    assert rig.header.held_phy_offset == rig.control.dispatched_phy_offset + 1
    rig.close()


def test_a_clock_that_is_set_back_makes_no_timer_early(rig: TimerRig) -> None:
    rig.send_many([(b"x", "TIMER_DELAY_MS\x011000")])
    rig.wall_ms -= 3_600_000
    rig.run_until_idle()
    rig.advance(1000)
    rig.run_until_idle()
    assert rig.bodies() == []  # the broker's clock runs at half speed (docs/adr/0090)
    rig.advance(1000)
    rig.run_until_idle()
    [record] = rig.records("T")
    assert record.store_timestamp_ms >= START_MS + 1000


def test_a_clock_that_is_set_ahead_delivers_what_is_due_by_it(rig: TimerRig) -> None:
    rig.send_many([(b"x", "TIMER_DELAY_MS\x011000")])
    rig.wall_ms += 3_600_000
    rig.run_until_idle()
    assert rig.bodies() == [b"x"]


def test_a_timer_whose_record_is_damaged_does_not_hold_up_the_others(rig: TimerRig) -> None:
    rig.send_many([(b"bad", "TIMER_DELAY_MS\x0150"), (b"good", "TIMER_DELAY_MS\x0150")])
    rig.run_until_idle()
    first = rig.records(TIMER_TOPIC)[0]
    with (rig.root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(first.phy_offset + 4)
        log.write(b"\xff\xff\xff\xff")
    rig.advance(60)
    rig.run_until_idle()
    assert rig.path.workers["send"].counters[lib.RP_COUNT_TIMERS_SKIPPED] == 1
    assert rig.header.pending == 0 and rig.path.workers["send"].counters[lib.RP_COUNT_TIMERS_DELIVERED] == 1


def test_a_fault_is_told_and_nothing_is_lost(rig: TimerRig) -> None:
    """The directory of the runs cannot be made: the step fails until it can."""
    (rig.root / "timer" / "runs").write_text("in the way")
    rig.send_many([(b"x", "TIMER_DELAY_MS\x0150")])
    assert rig.step() == Status.IO_ERROR
    (rig.root / "timer" / "runs").unlink()
    rig.advance(60)
    rig.run_until_idle()
    assert rig.bodies() == [b"x"]


def test_a_delivery_whose_record_was_not_published_does_not_count(rig: TimerRig) -> None:
    """The send worker dies between the journal and the publication, and the timer thread looks at the journal."""
    rig.send_many([(b"x", "TIMER_DELAY_MS\x0150")])
    rig.run_until_idle()
    rig.advance(60)
    rig.step()  # it is in the ring now
    published = rig.control.published_phy_offset
    lib.rp_timer_journal_add(rig.marks, ffi.new("rp_timer_end *", {"number": 0, "end_phy_offset": published + 1000}))
    rig.step()
    rig.control.durable_phy_offset = published + 2000  # what others have appended meanwhile
    rig.step()
    assert rig.header.journal_begin == 0 and rig.header.pending == 1
    rig.restart_send()
    rig.run_until_idle()
    assert rig.bodies() == [b"x"] and rig.header.pending == 0


@pytest.mark.parametrize("is_delivered", [False, True])
def test_numbers_that_a_power_failure_took_back_are_used_again(tmp_path: Path, is_delivered: bool) -> None:
    """The log was cut, and the queue grows past the lost numbers before the timer thread looks at its files: runs and
    bits of lost timers do not count for the new ones."""
    rig = TimerRig(tmp_path, heap_max=5)
    rig.add_timer_topic()
    rig.send_many([(b"kept%d" % number, "TIMER_DELAY_MS\x015000") for number in range(4)])
    end = rig.control.published_phy_offset
    rig.run_until_idle()
    rig.send_many([(b"lost%d" % number, "TIMER_DELAY_MS\x0150") for number in range(7)])
    rig.run_until_idle()
    if is_delivered:
        rig.advance(60)
        rig.run_until_idle()
    assert lib.rp_timers_sync(rig.timers) == Status.OK
    assert rig.header.filed_durable > 4
    rig.cut(end, 4)
    rig.reboot()
    new = [b"new%d" % number for number in range(12)]
    rig.send_many([(body, "TIMER_DELAY_MS\x016000") for body in new])
    rig.run_until_idle()
    assert rig.header.pending == 16
    rig.advance(7000)
    rig.run_until_idle()
    assert sorted(rig.bodies()) == sorted([b"kept%d" % number for number in range(4)] + new)
    assert rig.header.pending == 0
    rig.close()


@pytest.mark.parametrize("is_delivered", [False, True])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_two_power_failures_lose_no_timer(tmp_path: Path, is_delivered: bool, is_loaded: bool) -> None:
    """The second one comes before or after the timer thread has forgotten the numbers that the first one took back.
    Of the files of timers it leaves what the disk had when the store was opened the last time."""
    rig = TimerRig(tmp_path, heap_max=5)
    rig.add_timer_topic()
    rig.send_many([(b"kept%d" % number, "TIMER_DELAY_MS\x015000") for number in range(4)])
    end = rig.control.published_phy_offset
    rig.run_until_idle()
    rig.send_many([(b"lost%d" % number, "TIMER_DELAY_MS\x0150") for number in range(7)])
    rig.run_until_idle()
    if is_delivered:
        rig.advance(60)
        rig.run_until_idle()
    assert lib.rp_timers_sync(rig.timers) == Status.OK
    rig.cut(end, 4)
    rig.reboot()
    shutil.copytree(tmp_path / "timer", tmp_path / "disk")
    new = [b"new%d" % number for number in range(12)]
    rig.send_many([(body, "TIMER_DELAY_MS\x016000") for body in new])
    rig.flush()
    if is_loaded:
        rig.run_until_idle()
    rig.reboot(disk=tmp_path / "disk")
    rig.run_until_idle()
    rig.advance(7000)
    rig.run_until_idle()
    assert sorted(rig.bodies()) == sorted([b"kept%d" % number for number in range(4)] + new)
    rig.close()


@pytest.mark.parametrize("is_loaded", [False, True])
def test_runs_of_lost_timers_do_not_count_without_the_marks(tmp_path: Path, is_loaded: bool) -> None:
    """A run names numbers that a power failure took back. Others have got them when the file of marks is lost."""
    rig = TimerRig(tmp_path, heap_max=5)
    rig.add_timer_topic()
    rig.send_many([(b"kept%d" % number, "TIMER_DELAY_MS\x015000") for number in range(4)])
    end = rig.control.published_phy_offset
    rig.run_until_idle()
    rig.send_many([(b"lost%d" % number, "TIMER_DELAY_MS\x0150") for number in range(7)])
    rig.run_until_idle()
    runs = tmp_path / "timer" / "runs"
    assert any(runs.iterdir())
    shutil.copytree(tmp_path / "timer", tmp_path / "disk")
    (tmp_path / "disk" / "delivered").unlink()
    rig.cut(end, 4)
    rig.reboot()
    new = [b"new%d" % number for number in range(12)]
    rig.send_many([(body, "TIMER_DELAY_MS\x016000") for body in new])
    rig.flush()
    if is_loaded:
        rig.run_until_idle()
    rig.reboot(disk=tmp_path / "disk")
    rig.run_until_idle()
    rig.advance(7000)
    rig.run_until_idle()
    assert sorted(rig.bodies()) == sorted([b"kept%d" % number for number in range(4)] + new)
    rig.close()


def test_a_timer_counts_as_filed_on_the_disk_once_its_record_is(tmp_path: Path) -> None:
    rig = TimerRig(tmp_path, heap_max=5)
    rig.add_timer_topic()
    rig.send_many([(b"%d" % number, "TIMER_DELAY_MS\x015000") for number in range(12)])
    while rig.step() == Status.OK:
        pass
    assert rig.header.filed > 0
    assert lib.rp_timers_sync(rig.timers) == Status.OK and rig.header.filed_durable == 0
    rig.flush()
    assert lib.rp_timers_sync(rig.timers) == Status.OK and rig.header.filed_durable == rig.header.filed
    rig.close()
