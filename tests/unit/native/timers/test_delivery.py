"""Timers in the send worker and the timer thread: which messages are timers, and what delivers them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.message.properties import decode_properties
from rocketpy.native import Status
from rocketpy.native.core import lib
from rocketpy.remoting.command import RemotingCommand
from tests.support.history import send_request
from tests.support.timer_rig import DEAD_LETTERS, MAX_DELAY_MS, START_MS, TIMER_TOPIC, TimerRig


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
    """Fault: A timer inside a batch was delivered at once."""
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
    """Fault: A timer marked by its sender as part of a transaction was acknowledged and never delivered."""
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
    """The directory of the timers is lost: which files have pending timers is not known before the log was read.
    Fault: While a lost `timer/` was rebuilt, cleaning could delete log files of pending timers."""
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
