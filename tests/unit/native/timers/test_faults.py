"""Timers when disks are full, records are not published and power fails: none is lost, and none comes twice."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.broker.fast_path.shared_memory import DeliveryMarks
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import CONNECTION_TIMER
from tests.support.history import send_request
from tests.support.timer_rig import TimerRig

DISK_FULL = 16


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
    """More timers are due than may be under way, and the disk is too full to deliver them.
    Fault: Timers refused by a nearly full disk were filed as new runs again and again, without a bound."""
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
    """The send worker dies between the journal and the publication, and the timer thread looks at the journal.
    Fault: A send worker killed between journal and publication of a timer stopped the delivery of all timers."""
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


def with_timers_to_lose(tmp_path: Path, is_delivered: bool) -> tuple[TimerRig, int]:
    """Four timers that are kept, and behind them seven that a cut takes back; the position between them."""
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
    return rig, end


@pytest.mark.parametrize("is_delivered", [False, True])
@pytest.mark.parametrize("same_kernel", [False, True])
def test_numbers_that_a_power_failure_or_a_cut_took_back_are_used_again(
    tmp_path: Path, is_delivered: bool, same_kernel: bool
) -> None:
    """The log was cut, and the queue grows past the lost numbers before the timer thread looks at its files: runs and
    bits of lost timers do not count for the new ones.
    Fault: After a power failure, new timers took the numbers of lost ones and came at wrong times or never."""
    rig, end = with_timers_to_lose(tmp_path, is_delivered)
    assert rig.header.filed_durable > 4
    rig.cut(end, 4)
    rig.reboot(same_kernel=same_kernel)
    new = [b"new%d" % number for number in range(12)]
    rig.send_many([(body, "TIMER_DELAY_MS\x016000") for body in new])
    rig.run_until_idle()
    assert rig.header.pending == 16
    rig.advance(7000)
    rig.run_until_idle()
    assert sorted(rig.bodies()) == sorted([b"kept%d" % number for number in range(4)] + new)
    assert rig.header.pending == 0
    rig.close()


def test_a_delivery_that_a_cut_may_take_back_has_no_mark(tmp_path: Path) -> None:
    """It is on the disk, but not confirmed.
    Fault: A synchronous group marked a timer as delivered before confirmation, so a cut lost it."""
    rig = TimerRig(tmp_path)
    rig.add_timer_topic()
    rig.control.stops_at_confirmed = 1
    rig.send_many([(b"x", "TIMER_DELAY_MS\x0150")])
    confirmed = rig.control.confirmed_phy_offset = rig.control.published_phy_offset
    rig.run_until_idle()
    rig.advance(60)
    while not rig.bodies():
        rig.step()
        rig.path.turn()
    rig.flush()
    rig.step()
    assert not lib.rp_timer_has_ended(rig.marks, 0)
    assert rig.header.journal_begin < rig.header.journal_end and rig.header.marked_phy_offset <= confirmed
    rig.control.confirmed_phy_offset = rig.control.published_phy_offset
    rig.run_until_idle()
    assert lib.rp_timer_has_ended(rig.marks, 0) and rig.bodies() == [b"x"]
    rig.close()


def test_deliveries_of_a_former_master_count_once_they_are_confirmed(tmp_path: Path) -> None:
    rig = TimerRig(tmp_path)
    rig.add_timer_topic()
    rig.send_many([(b"x", "TIMER_DELAY_MS\x0150")])
    confirmed = rig.control.published_phy_offset
    rig.run_until_idle()
    rig.advance(60)
    rig.run_until_idle()
    rig.control.stops_at_confirmed, rig.control.confirmed_phy_offset = 1, confirmed
    rig.reboot(lost=True)
    assert rig.step() == Status.EMPTY and rig.header.must_scan == 1
    assert not lib.rp_timer_has_ended(rig.marks, 0)
    rig.control.confirmed_phy_offset = rig.control.published_phy_offset
    rig.run_until_idle()
    assert rig.header.must_scan == 0 and rig.bodies() == [b"x"]
    rig.close()


@pytest.mark.parametrize("is_delivered", [False, True])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_two_power_failures_lose_no_timer(tmp_path: Path, is_delivered: bool, is_loaded: bool) -> None:
    """The second one comes before or after the timer thread has forgotten the numbers that the first one took back.
    Of the files of timers it leaves what the disk had when the store was opened the last time.
    Fault: Two power failures in a row lost acknowledged timers."""
    rig, end = with_timers_to_lose(tmp_path, is_delivered)
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
    """A run names numbers that a power failure took back. Others have got them when the file of marks is lost.
    Fault: With `timer/delivered` lost, old files of pending timers counted for other messages."""
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


LAYOUT_VERSION_AT, FLOOR_AT, WORDS_AT = 8, 48, 4096 + 65_536 * 16  # in timer/delivered
OF_LAYOUT_1 = {LAYOUT_VERSION_AT: b"\1", WORDS_AT: b"\2" + bytes(7)}  # a bit of 64 numbers in each word, no check


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({WORDS_AT: b"\3"}, id="a pending timer has ended"),
        pytest.param({WORDS_AT: b"\0"}, id="a timer that has ended is pending"),
        pytest.param({WORDS_AT + 7: b"\xff"}, id="the check of a word"),
        pytest.param({WORDS_AT + 100_000: b"\1"}, id="far behind"),
        pytest.param({FLOOR_AT: b"\2"}, id="the floor"),
        pytest.param(OF_LAYOUT_1, id="a file of the layout before"),
    ],
)
def test_damaged_marks_lose_and_repeat_no_timer(tmp_path: Path, change: dict[int, bytes]) -> None:
    """The log says what has ended.
    Fault: A changed bit in `timer/delivered` lost an acknowledged timer, or delivered one twice."""
    rig = TimerRig(tmp_path)
    rig.add_timer_topic()
    rig.send_many([(b"%d" % delay, f"TIMER_DELAY_MS\x01{delay}") for delay in (5000, 50, 6000)])
    rig.run_until_idle()
    rig.advance(60)
    rig.run_until_idle()
    assert rig.bodies() == [b"50"]
    assert lib.rp_timers_sync(rig.timers) == Status.OK
    shutil.copytree(tmp_path / "timer", tmp_path / "disk")
    with open(tmp_path / "disk" / "delivered", "r+b") as file:
        for place, data in change.items():
            file.seek(place)
            file.write(data)
    rig.reboot(disk=tmp_path / "disk")
    rig.run_until_idle()
    assert rig.header.pending == 2 and lib.rp_timer_has_ended(rig.marks, 1)
    rig.advance(7000)
    rig.run_until_idle()
    assert rig.bodies() == [b"50", b"5000", b"6000"]
    rig.close()


def test_a_word_of_marks_that_changes_later_ends_no_timer(rig: TimerRig) -> None:
    rig.send_many([(b"x", "TIMER_DELAY_MS\x0150")])
    rig.run_until_idle()
    with open(rig.root / "timer" / "delivered", "r+b") as file:
        file.seek(WORDS_AT)
        file.write(b"\1")
    rig.advance(60)
    rig.run_until_idle()
    assert rig.bodies() == [b"x"] and rig.header.pending == 0


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


def die_of_delivery(rig: TimerRig, *, has_crashed: bool) -> None:
    """The send worker crashes when it is about to end the first timer of its ring; the next one is to read tables."""
    if (pid := os.fork()) == 0:
        faulthandler.disable()
        page = ctypes.c_void_p(int(ffi.cast("uintptr_t", rig.header)))
        assert ctypes.CDLL(None).mprotect(page, mmap.PAGESIZE, mmap.PROT_READ) == 0
        rig.path.turn()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV
    assert rig.path.workers["send"].serving == CONNECTION_TIMER
    rig.path.workers["send"].has_crashed = has_crashed  # as the supervisor does
    rig.restart_send(takes_turn=False)


@pytest.mark.parametrize(("crashes", "kills", "is_tried"), [(2, 0, True), (3, 0, False), (0, 4, True), (2, 1, True)])
def test_a_timer_that_crashes_the_send_worker_is_not_tried_for_ever(
    tmp_path: Path, crashes: int, kills: int, is_tried: bool
) -> None:
    """A kill ends the count: a disk that hangs says nothing of the message.
    Fault: A timer whose delivery crashed the send worker ended the broker after ten restarts."""
    rig = TimerRig(tmp_path, marks=DeliveryMarks(1, lambda: 0).pointer)
    rig.add_timer_topic()
    rig.send_many([(b"deadly", "TIMER_DELAY_MS\x0150"), (b"next", "TIMER_DELAY_MS\x0160")])
    rig.run_until_idle()
    rig.advance(60)
    while rig.step() == Status.OK:
        pass
    assert lib.rp_ring_depth(rig.path.store_send)
    for number in range(crashes + kills):
        die_of_delivery(rig, has_crashed=number < crashes)
    rig.run_until_idle()
    assert rig.bodies() == [*([b"deadly"] if is_tried else []), b"next"]
    assert rig.path.workers["send"].counters[lib.RP_COUNT_TIMERS_SKIPPED] == (not is_tried)
    assert rig.header.pending == 0
    rig.close()
