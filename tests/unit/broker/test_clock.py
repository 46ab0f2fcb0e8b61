"""A process that stood still drops nobody whose heartbeats wait for it; midnight is ahead."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.broker.clock import LATE_MS, ProcessPauses, seconds_to_midnight
from rocketpy.broker.managers.client_channel import CHANNEL_EXPIRED_MS
from rocketpy.broker.managers.rebalance_lock import LOCK_LIFE_MS
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.work import result_of
from tests.support.slow_path import FakeClock, SlowPathRig

QUEUE = MessageQueue("T", "broker-a", 0)


def test_silence_is_counted_while_the_process_runs() -> None:
    clock = FakeClock()
    pauses = ProcessPauses(clock)
    pauses.begin()
    heard_ms = clock.mono_ms
    for _ in range(3):
        clock.advance(2000)
        pauses.check()
    clock.advance(2000 + LATE_MS)
    pauses.check()
    assert pauses.silence_ms(heard_ms, clock.mono_ms) == 8000 + LATE_MS, "late, but not by much"
    clock.advance(602_000)
    pauses.check()
    assert pauses.silence_ms(heard_ms, clock.mono_ms) == 10_000 + LATE_MS
    assert pauses.silence_ms(clock.mono_ms, clock.mono_ms + 7) == 7


def run_for(rig: SlowPathRig, ms: int) -> None:
    for _ in range(ms // 1000):
        rig.clock.advance(1000)
        rig.broker._pauses.check()


def test_nobody_is_dropped_for_a_standstill(tmp_path: Path) -> None:
    """Fault: After a standstill of 120 s the manager dropped clients while their heartbeats waited in its rings."""
    rig = SlowPathRig(tmp_path)
    rig.broker._pauses.begin()
    trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"}, producer="P"))
    locks = rig.services.locks
    assert locks.lock("G", [QUEUE], "a") == [QUEUE]
    run_for(rig, 20_000)
    rig.clock.advance(600_000)
    trio.run(rig.broker._sweep_clients)
    assert locks.lock("G", [QUEUE], "b") == [], "its holder's renewal may wait"
    result_of(locks.sweep())
    assert rig.services.consumers.is_member("G", 1) and rig.services.producers.groups and not rig.channel.is_closed
    run_for(rig, LOCK_LIFE_MS)
    assert locks.lock("G", [QUEUE], "b") == [QUEUE]
    run_for(rig, CHANNEL_EXPIRED_MS)
    trio.run(rig.broker._sweep_clients)
    assert rig.services.consumers.group("G") is None and not rig.services.producers.groups and rig.channel.is_closed


def test_midnight() -> None:
    assert 1.0 <= seconds_to_midnight(1_700_000_000_000) <= 90_000.0
