"""A timer that is due much later than those after it: it is stored again, so that numbers do not run out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.native.core import lib
from tests.support.timer_rig import TIMER_TOPIC, TimerRig

SPAN, FAR_MS, SHORT_MS = 64, 900_000, 100


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    rig = TimerRig(tmp_path, span_max=SPAN)
    rig.add_timer_topic()
    rig.run_until_idle()
    yield rig
    rig.close()


def send(rig: TimerRig, count: int, delay_ms: int, body: bytes) -> None:
    rig.send_many((body, f"TIMER_DELAY_MS\x01{delay_ms}") for _ in range(count))
    rig.run_until_idle()


def deliver_short_ones(rig: TimerRig, count: int) -> None:
    send(rig, count, SHORT_MS, b"short")
    for advance_ms in (1001, 60_000, 1001, 1001):
        rig.advance(advance_ms)
        rig.run_until_idle()


def renewed(rig: TimerRig) -> int:
    return int(rig.path.workers["send"].counters[lib.RP_COUNT_TIMERS_RENEWED])


def test_one_far_timer_holds_no_numbers(rig: TimerRig) -> None:
    """Fault: One timer of days and 2^30 short ones after it kept any further timer from being taken."""
    send(rig, 1, FAR_MS, b"far")
    deliver_short_ones(rig, SPAN - 1)
    assert (renewed(rig), rig.header.floor) == (0, 0), "there is room"
    for round_number in range(1, 5):
        deliver_short_ones(rig, SPAN)
        assert renewed(rig) == round_number
        assert rig.header.floor >= round_number * SPAN, "numbers of all that have ended are free"
    assert rig.header.pending == 1
    rig.advance(FAR_MS)
    rig.run_until_idle()
    assert rig.bodies().count(b"far") == 1 and rig.bodies().count(b"short") == 5 * SPAN - 1
    assert len(rig.records(TIMER_TOPIC)) == 5 * SPAN + 4


def test_many_pending_timers_are_left_as_they_are(rig: TimerRig) -> None:
    send(rig, SPAN // 16, FAR_MS, b"far")
    deliver_short_ones(rig, SPAN)
    assert renewed(rig) == 0
    deliver_short_ones(rig, SPAN)
    assert renewed(rig) == SPAN // 16, "now they are few among all that have come"
