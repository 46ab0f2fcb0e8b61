"""Timers that are cancelled or moved, in the send worker and the timer thread: delivered or not, never both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.codes import ResponseCode
from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.message.sys_flag import TRANSACTION_ROLLBACK
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.fast_path import TimerState
from tests.support.history import send_request
from tests.support.timer_rig import START_MS, TIMER_TOPIC, TimerRig

GONE, CHANGED = TimerState.GONE, TimerState.CHANGED


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    rig = TimerRig(tmp_path)
    rig.add_timer_topic()
    rig.run_until_idle()
    yield rig
    rig.close()


def send(rig: TimerRig, *delays_ms: int) -> None:
    rig.send_many((b"%d" % delay_ms, f"TIMER_DELAY_MS\x01{delay_ms}") for delay_ms in delays_ms)


def deliver(rig: TimerRig, ms: int = 1_000_000) -> list[bytes]:
    rig.advance(ms)
    rig.run_until_idle()
    return rig.bodies()


def test_a_cancelled_timer_does_not_come(rig: TimerRig) -> None:
    send(rig, 50, 60)
    rig.run_until_idle()
    assert rig.change(0) == 0
    rig.run_until_idle()
    assert rig.header.pending == 1 and rig.header.next_due_ms == START_MS + 60
    assert deliver(rig) == [b"60"] and rig.header.pending == 0
    [cancellation] = [record for record in rig.records(TIMER_TOPIC) if record.sys_flag == TRANSACTION_ROLLBACK]
    assert cancellation.prepared_transaction_offset == rig.records(TIMER_TOPIC)[0].phy_offset + 1


def test_a_cancellation_has_no_unit(rig: TimerRig) -> None:
    send(rig, 50)
    assert rig.change(0) == 0
    send(rig, 60)
    numbers = [record.queue_offset for record in rig.records(TIMER_TOPIC) if not record.sys_flag]
    assert numbers == [0, 1] and deliver(rig) == [b"60"]


def test_a_timer_is_cancelled_before_the_timer_thread_has_seen_it(rig: TimerRig) -> None:
    send(rig, 50)
    assert rig.change(0) == 0
    assert deliver(rig) == [] and rig.header.pending == 0


@pytest.mark.parametrize("victims", [[0], [1], [2], [0, 1, 2], [2, 0]])
def test_a_timer_is_cancelled_while_it_is_in_the_ring(rig: TimerRig, victims: list[int]) -> None:
    send(rig, 50, 51, 52)
    rig.run_until_idle()
    rig.advance(100)
    rig.step()  # all three are given away
    codes = [rig.change(number) for number in victims]
    assert codes[0] == 0
    remaining = {b"50", b"51", b"52"} - {b"%d" % (50 + number) for number in victims[:1]}
    # The first change is served before the ring of timers; then the send worker has delivered the others.
    rig.run_until_idle()
    assert set(rig.bodies()) == remaining and len(rig.bodies()) == len(remaining)
    assert sorted(deliver(rig)) == sorted(remaining) and rig.header.pending == 0


@pytest.mark.parametrize("delay_ms", [10, 49, 51, 5000])
def test_a_moved_timer_comes_once_at_its_new_time(rig: TimerRig, delay_ms: int) -> None:
    rig.send(b"x", "TAGS\x01a\x02TIMER_DELAY_MS\x0150\x02UNIQ_KEY\x01key", queue_id=3)
    rig.run_until_idle()
    assert rig.change(0, START_MS + delay_ms) == 0
    rig.run_until_idle()
    assert rig.header.pending == 1 and rig.header.next_due_ms == START_MS + delay_ms
    assert deliver(rig, delay_ms - 1) == [] and deliver(rig, 1) == [b"x"]
    [record] = rig.records("T")
    properties = decode_properties(record.properties.decode())
    assert properties[TIMER_OUT_MS] == str(START_MS + delay_ms) and properties["TAGS"] == "a"
    assert properties["UNIQ_KEY"] == "key" and "REAL_TOPIC" not in properties and record.queue_id == 3
    assert deliver(rig) == [b"x"]


def test_a_timer_that_has_ended_is_not_changed(rig: TimerRig) -> None:
    send(rig, 50, 60, 70)
    assert rig.change(1) == 0 and rig.change(2, START_MS + 80) == 0
    assert rig.state(1) is CHANGED and rig.state(1, START_MS + 90) is CHANGED and rig.state(2) is CHANGED
    assert sorted(deliver(rig)) == [b"50", b"70"]
    size = rig.control.published_phy_offset
    assert rig.state(0) is GONE and rig.state(3) is GONE and rig.state(0, START_MS) is GONE
    assert rig.control.published_phy_offset == size, "nothing is stored"


def test_what_a_restarted_send_worker_finds_in_the_journal_has_ended(rig: TimerRig) -> None:
    send(rig, 50, 60)
    rig.run_until_idle()
    assert rig.change(0) == 0
    rig.advance(100)
    rig.step()
    rig.restart_send()
    assert rig.state(0) is CHANGED
    assert deliver(rig) == [b"60"]


def test_a_timer_that_was_refused_is_cancelled(rig: TimerRig) -> None:
    send(rig, 50, 60)
    rig.run_until_idle()
    rig.control.running_flags |= 16  # the disk is full
    assert deliver(rig, 100) == []
    rig.control.running_flags = 0
    assert rig.change(0) == 0
    assert deliver(rig, 500) == [] and deliver(rig, 1000) == [b"60"] and rig.header.pending == 0
    size = rig.control.published_phy_offset
    assert deliver(rig) == [b"60"] and rig.control.published_phy_offset == size


def test_a_cancellation_that_was_not_published_does_not_count(rig: TimerRig) -> None:
    send(rig, 50)
    rig.run_until_idle()
    end = {"number": 0, "end_phy_offset": rig.control.published_phy_offset + 1000, "kind": lib.RP_TIMER_CHANGED}
    lib.rp_timer_journal_add(rig.marks, ffi.new("rp_timer_end *", end))
    rig.step()
    rig.restart_send()
    assert deliver(rig) == [b"50"]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("is_settled", [False, True])
def test_the_log_says_which_timers_were_changed(rig: TimerRig, lost: bool, is_settled: bool) -> None:
    """After a power failure, also without the directory of the timers."""
    send(rig, 50, 60, 70, 80)
    if is_settled:
        rig.run_until_idle()
    assert rig.change(1) == 0 and rig.change(2, START_MS + 500) == 0
    rig.flush()
    rig.reboot(lost=lost)
    assert sorted(deliver(rig, 499)) == [b"50", b"80"]
    assert sorted(deliver(rig)) == [b"50", b"70", b"80"]


def test_nothing_is_changed_before_the_log_was_read(rig: TimerRig) -> None:
    """After a power failure the send worker does not know what was delivered."""
    send(rig, 50, 60)
    assert deliver(rig, 55) == [b"50"]
    rig.reboot()
    assert rig.change(1) == ResponseCode.SYSTEM_BUSY
    rig.run_until_idle()
    assert rig.state(0) is GONE and rig.change(1) == 0 and deliver(rig) == [b"50"]


def test_a_full_journal_refuses_changes_for_a_while(rig: TimerRig) -> None:
    send(rig, 50)
    rig.run_until_idle()
    for number in range(lib.RP_TIMER_JOURNAL_MAX):
        lib.rp_timer_journal_add(rig.marks, ffi.new("rp_timer_end *", {"number": 1000 + number, "end_phy_offset": 0}))
    assert rig.change(0) == ResponseCode.SYSTEM_BUSY
    rig.header.journal_begin = rig.header.journal_end
    assert rig.change(0) == 0


@pytest.mark.parametrize("name", ["TIMER_DEL_UNIQKEY", "TIMER_MOVE_UNIQKEY"])
def test_a_change_goes_to_the_manager(rig: TimerRig, name: str) -> None:
    assert rig.send(b"", f"{name}\x01key") is None
    assert rig.send(b"", f"TIMER_DELAY_MS\x0150\x02{name}\x01key") is None
    assert [kind for kind, _ in rig.path.for_manager() if kind == lib.RP_MSG_SEND] == [lib.RP_MSG_SEND] * 2


@pytest.mark.parametrize("inside", [b"TIMER_DEL_UNIQKEY\x01k", b"TIMER_MOVE_UNIQKEY\x01k", b"__STARTDELIVERTIME\x0199"])
def test_a_message_of_a_batch_changes_no_timer(rig: TimerRig, inside: bytes) -> None:
    plain = send_request("T", 0, [b"a", b"b"], 2)
    entry = (22 + 1 + len(inside)).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"a"
    plain.body = entry + len(inside).to_bytes(2, "big") + inside
    answer = rig.ask(plain)
    assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL and rig.bodies() == []
