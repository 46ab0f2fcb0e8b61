"""Pending timers that are stored again, so that cleaning can delete their log files: delivered once, at their time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.fast_path import TimerState
from tests.support.timer_rig import START_MS, TIMER_TOPIC, TimerRig

FILE_SIZE = 65_536
FILL = b"f" * 8_000
DISK_FULL, NOT_WRITEABLE = 16, 2
FAR_MS = 900_000


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    rig = TimerRig(tmp_path, file_size=FILE_SIZE)
    rig.add_timer_topic()
    rig.add_topic("F")
    rig.run_until_idle()
    yield rig
    rig.close()


def send(rig: TimerRig, *bodies: bytes, delay_ms: int = FAR_MS) -> None:
    rig.send_many((body, f"TIMER_DELAY_MS\x01{delay_ms}\x02TAGS\x01a") for body in bodies)


def fill(rig: TimerRig, files: int = 3) -> int:
    """Other messages, until so many log files are complete. Returns where they end."""
    end = rig.control.published_phy_offset // FILE_SIZE * FILE_SIZE + files * FILE_SIZE
    while rig.control.published_phy_offset <= end:
        assert rig.send(FILL, "", topic="F") is not None
    rig.run_until_idle()
    return end


def keep_house(rig: TimerRig) -> None:
    rig.advance(1001)
    rig.run_until_idle()


def deliver(rig: TimerRig) -> list[bytes]:
    rig.advance(FAR_MS)
    rig.run_until_idle()
    return rig.bodies()


def count(rig: TimerRig, counter: int) -> int:
    return int(rig.path.workers["send"].counters[counter])


def renew(rig: TimerRig, to: int) -> None:
    rig.ask_to_renew(to)
    rig.run_until_idle()
    keep_house(rig)


def test_a_far_timer_lets_its_file_go(rig: TimerRig) -> None:
    send(rig, b"a", b"b", b"c")
    end = fill(rig)
    keep_house(rig)
    assert rig.delete_files(end) == 0, "the timers hold them"
    renew(rig, end)
    assert rig.header.pending == 3 and count(rig, lib.RP_COUNT_TIMERS_RENEWED) == 3
    assert rig.header.held_phy_offset - 1 >= end and rig.delete_files(end) == 3
    old, new = rig.records(TIMER_TOPIC)[:3], rig.records(TIMER_TOPIC)[3:]
    assert [record.prepared_transaction_offset for record in new] == [record.phy_offset + 1 for record in old]
    for before, after in zip(old, new, strict=True):
        assert (before.properties, before.body, before.born_host) == (after.properties, after.body, after.born_host)
        assert before.born_timestamp_ms == after.born_timestamp_ms
    rig.advance(FAR_MS - 1 - (rig.wall_ms - START_MS))
    rig.run_until_idle()
    assert rig.bodies() == [], "early"
    rig.advance(1)
    rig.run_until_idle()
    assert rig.bodies() == [b"a", b"b", b"c"] and rig.header.pending == 0
    properties = decode_properties(rig.records("T")[0].properties.decode())
    assert properties == {
        "TIMER_DELAY_MS": str(FAR_MS),
        "TAGS": "a",
        "CLUSTER": "DefaultCluster",
        TIMER_OUT_MS: str(START_MS + FAR_MS),
    }


def test_only_those_before_the_position_are_renewed(rig: TimerRig) -> None:
    send(rig, b"a")
    end = fill(rig)
    send(rig, b"b")
    rig.run_until_idle()
    renew(rig, end)
    assert [bytes(record.body) for record in rig.records(TIMER_TOPIC)] == [b"a", b"b", b"a"]
    assert deliver(rig) == [b"b", b"a"]


def test_files_full_of_timers_are_left_as_they_are(rig: TimerRig) -> None:
    send(rig, *(b"%d" % number + FILL[:1500] for number in range(40)))
    end = rig.control.published_phy_offset // FILE_SIZE * FILE_SIZE
    assert end == FILE_SIZE
    rig.run_until_idle()
    renew(rig, end)
    assert count(rig, lib.RP_COUNT_TIMERS_RENEWED) == 0
    renew(rig, fill(rig, 2))
    assert count(rig, lib.RP_COUNT_TIMERS_RENEWED) == 40, "with the next files it is worth it"


def test_a_timer_that_becomes_due_is_delivered_instead(rig: TimerRig) -> None:
    send(rig, b"a", delay_ms=100)
    end = fill(rig)
    rig.ask_to_renew(end)
    while not lib.rp_ring_depth(rig.path.store_send):
        assert rig.step() == Status.OK
    rig.advance(100)
    rig.run_until_idle()
    assert rig.bodies() == [b"a"] and count(rig, lib.RP_COUNT_TIMERS_RENEWED) == 0 and rig.header.pending == 0


def test_what_is_refused_is_renewed_later(rig: TimerRig) -> None:
    send(rig, b"a", b"b")
    end = fill(rig)
    rig.control.running_flags = NOT_WRITEABLE
    renew(rig, end)
    assert len(rig.records(TIMER_TOPIC)) == 2
    rig.control.running_flags = 0
    keep_house(rig)
    keep_house(rig)
    assert len(rig.records(TIMER_TOPIC)) == 4 and rig.delete_files(end) == 3
    assert deliver(rig) == [b"a", b"b"]


def test_a_full_disk_does_not_refuse_what_frees_it(rig: TimerRig) -> None:
    send(rig, b"a")
    end = fill(rig)
    rig.control.running_flags = DISK_FULL
    renew(rig, end)
    assert rig.delete_files(end) == 3
    rig.control.running_flags = 0
    assert deliver(rig) == [b"a"]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("is_trimmed", [False, True])
def test_the_log_says_what_was_renewed(rig: TimerRig, lost: bool, is_trimmed: bool) -> None:
    """After a power failure, also without the directory of the timers, or before the units were deleted."""
    send(rig, b"a", b"b")
    end = fill(rig)
    renew(rig, end)
    assert rig.delete_files(end, is_trimmed=is_trimmed) == 3
    rig.reboot(lost=lost)
    assert deliver(rig) == [b"a", b"b"] and rig.header.pending == 0


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("what", ["timers", "send", "all", "power", "lost"])
def test_a_renewal_that_is_broken_off_loses_and_repeats_nothing(rig: TimerRig, steps: int, what: str) -> None:
    """After each step of the workers: the timer thread dies, the send worker, both, the machine."""
    bodies = [b"%d" % number for number in range(5)]
    send(rig, *bodies)
    end = fill(rig)
    rig.ask_to_renew(end)
    for step in range(steps):
        (rig.step, rig.path.turn, rig.step, rig.flush)[step % 4]()
    if what == "timers":
        rig.restart_timers()
    elif what == "send":
        rig.restart_send()
    elif what == "all":
        rig.restart_timers()
        rig.restart_send()
    else:
        rig.flush()
        rig.reboot(lost=what == "lost")
    rig.run_until_idle()
    keep_house(rig)
    renew(rig, end)
    assert rig.header.pending == 5 and rig.delete_files(end) == 3
    assert sorted(deliver(rig)) == bodies and rig.header.pending == 0


def test_a_renewal_that_was_not_published_does_not_count(rig: TimerRig) -> None:
    send(rig, b"a")
    end = fill(rig)
    entry = {"number": 0, "end_phy_offset": rig.control.published_phy_offset + 1000, "kind": lib.RP_TIMER_RENEWED}
    lib.rp_timer_journal_add(rig.marks, ffi.new("rp_timer_end *", entry))
    rig.step()
    rig.restart_send()
    renew(rig, end)
    assert deliver(rig) == [b"a"]


def test_a_renewed_timer_is_cancelled_by_its_new_number(rig: TimerRig) -> None:
    send(rig, b"a", b"b")
    end = fill(rig)
    renew(rig, end)
    assert rig.state(0) is TimerState.RENEWED, "look it up again"
    assert rig.change(2) == 0
    assert deliver(rig) == [b"b"]


def test_renewals_leave_the_journal_to_deliveries(rig: TimerRig) -> None:
    """While nothing reaches the disk, renewals fill a quarter of the journal, and what is due comes at its time."""
    journal = 1_000_000
    rig.send_many((b"%d" % number, f"TIMER_DELAY_MS\x01{FAR_MS}") for number in range(200))
    end = fill(rig)
    for number in range(lib.RP_TIMER_JOURNAL_MAX // 4 - 100):
        entry = {"number": journal + number, "end_phy_offset": 1}
        lib.rp_timer_journal_add(rig.marks, ffi.new("rp_timer_end *", entry))
    rig.control.durable_phy_offset = 0  # their bits are not set
    rig.ask_to_renew(end)
    for _ in range(20):
        rig.step()
        rig.path.turn()
    assert 0 < count(rig, lib.RP_COUNT_TIMERS_RENEWED) <= 100
    send(rig, b"due", delay_ms=10)
    rig.advance(10)
    for _ in range(4):
        rig.step()
        rig.path.turn()
    assert rig.bodies() == [b"due"]
