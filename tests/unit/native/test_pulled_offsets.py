"""Offsets that pulls carry, while the manager reads more slowly than pulls come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import decode_commit_offset
from tests.support.fast_path import Clock, FastPath
from tests.support.fast_path_requests import pull, ready

QUEUES = 1000
OFFSETS_MAX, LEAST, INTERVAL_NS = 1 << 16, 16, 5_000_000  # csrc/workers/pull/commits.h
DEPTH_MAX = 1 << 14  # csrc/workers/shared/traffic.h
TURN_PULLS = 128  # that the pull worker takes from a ring in one turn


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rig(tmp_path: Path, clock: Clock) -> Iterator[FastPath]:
    rig = ready(FastPath(tmp_path, {"clock_ns": clock.pointer}))
    rig.add_topic("Many", QUEUES)
    yield rig
    rig.close()


def commit(rig: FastPath, group: str, offset: int, queues: range = range(QUEUES)) -> None:
    """A pull of each queue that carries this offset and wants no answer."""
    command = pull(flags=5, group=group, topic="Many", queue=9999, commit=offset)
    command.flag |= 2
    head, tail = command.encode()[4:].split(b'"9999"')
    for queue in queues:
        rig.raw_frame(head + b'"%04d"' % queue + tail)
        if queue % TURN_PULLS == TURN_PULLS - 1:
            rig.turn()
    rig.turn()


def offsets(rig: FastPath) -> list[tuple[str, int, int]]:
    """Group, queue and offset of the messages that the manager has now."""
    found = [decode_commit_offset(data) for kind, data in rig.for_manager() if kind == lib.RP_MSG_COMMIT_OFFSET]
    return [(group, queue, offset) for group, _topic, queue, offset, _received_ms in found]


def all_offsets(rig: FastPath, clock: Clock) -> list[tuple[str, int, int]]:
    """Of a manager that reads everything that waits."""
    found = offsets(rig)
    while True:
        clock.now_ns += INTERVAL_NS + 1
        rig.turn()
        if not (more := offsets(rig)):
            return found
        found += more


def test_offsets_that_wait_for_the_manager_are_bounded(rig: FastPath, clock: Clock) -> None:
    """Fault: Offsets in oneway pulls of many groups filled the memory of the pull worker."""
    groups = [f"group{number}" for number in range(OFFSETS_MAX // QUEUES + 1)]
    for group in groups:
        rig.add_group(group)
        commit(rig, group, 1)
    sent = [(group, queue, 1) for group in groups for queue in range(QUEUES)]
    found = all_offsets(rig, clock)
    assert OFFSETS_MAX <= len(found) <= OFFSETS_MAX + TURN_PULLS
    assert found == sent[: len(found)], "in the order of their arrival"
    assert rig.workers["pull"].counters[lib.RP_COUNT_COMMITS_DROPPED] == len(sent) - len(found)
    commit(rig, "G", 2)
    assert len(all_offsets(rig, clock)) == QUEUES, "there is room again"


def test_slow_pulls_do_not_wait_behind_offsets(rig: FastPath, clock: Clock) -> None:
    """Fault: Offsets in pulls filled the ring to the manager, in no order, and slow pulls waited behind them."""
    rig.add_group("H")
    for group in ("G", "H"):
        commit(rig, group, 1)
    for _ in range(3):
        clock.now_ns += INTERVAL_NS + 1
        rig.turn()
    assert DEPTH_MAX <= lib.rp_ring_depth(rig.pull_manager) < DEPTH_MAX + 3 * LEAST * 100
    found = offsets(rig)
    commit(rig, "H", 2)  # in place of those that wait
    found += all_offsets(rig, clock)
    assert found == [(group, queue, offset) for group, offset in (("G", 1), ("H", 2)) for queue in range(QUEUES)]


def test_some_offsets_go_while_slow_pulls_fill_the_ring(rig: FastPath) -> None:
    """So no client stops the offsets of others by pulls."""
    for _ in range(TURN_PULLS):
        rig.frame(pull(group="unknown"))
    rig.turn()
    assert lib.rp_ring_depth(rig.pull_manager) > DEPTH_MAX
    commit(rig, "G", 1, range(2 * LEAST))
    assert len(offsets(rig)) == LEAST
