"""Pulls outside of a slave's range: its master may have what it lacks, so their consumers are not sent elsewhere, and
do not spin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import encode_group
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import pull, ready, send_v2
from tests.support.shared_memory import suspension_slots
from tests.unit.native.test_admission import Clock, S

SUSPEND, SUBSCRIPTION = 2, 4
GROUP_BROKER = 2
MIN, MAX = 2, 4  # the range of queue 0; queue 1 is empty
Make = Callable[..., tuple[FastPath, Clock]]
Told = list[tuple[int, str | None, str | None]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[FastPath] = []

    def rig(**options: int) -> tuple[FastPath, Clock]:
        clock = Clock()
        pull_options = {"is_slave": 1, "slave_read_enable": 0, "clock_ns": clock.pointer} | options
        rig = ready(FastPath(tmp_path, pull_options))
        made.append(rig)
        rig.tell_pull(lib.RP_MSG_GROUP, encode_group("G", flags=lib.RP_GROUP_CONSUME_ENABLE, broker_id=GROUP_BROKER))
        store(rig, MAX)
        lib.rp_control_find(rig.block, b"T", 1, 0).min_offset = MIN
        return rig, clock

    yield rig
    for each in made:
        each.close()


def store(rig: FastPath, count: int) -> None:
    for _ in range(count):
        rig.frame(send_v2())
    rig.turn()
    rig.answers()


def told(rig: FastPath) -> Told:
    """(code, next offset, suggested broker) of the answers since the last call."""
    return [
        (reply.code, reply.ext_field("nextBeginOffset"), reply.ext_field("suggestWhichBrokerId"))
        for _, reply in rig.answers()
    ]


@pytest.mark.parametrize(("offset", "queue"), [(MIN - 1, 0), (MAX + 1, 0), (7, 1)])
@pytest.mark.parametrize("flags", [SUBSCRIPTION, SUBSCRIPTION | SUSPEND])
def test_it_waits_for_a_second_and_is_told_to_ask_the_same_again(
    make: Make, offset: int, queue: int, flags: int
) -> None:
    rig, clock = make()
    rig.frame(pull(offset, queue, flags=flags))
    rig.turn()
    clock.now_ns += S - 1
    rig.turn()
    assert told(rig) == []
    clock.now_ns += S
    rig.turn()
    assert told(rig) == [(20, str(offset), str(GROUP_BROKER))]


def test_it_is_answered_as_soon_as_the_log_gets_there(make: Make) -> None:
    rig, _ = make()
    rig.frame(pull(MAX + 1, flags=SUBSCRIPTION | SUSPEND))
    rig.turn()
    store(rig, 1)
    assert told(rig) == []
    rig.frame(send_v2())
    rig.turn()
    assert [code for code, *_ in told(rig)] == [0, 0]


def test_beyond_the_bound_of_suspended_pulls_it_is_told_at_once(make: Make) -> None:
    rig, _ = make(suspended=suspension_slots(1))
    rig.frame(pull(0, 1, flags=SUBSCRIPTION | SUSPEND))
    rig.frame(pull(MAX + 1, flags=SUBSCRIPTION))
    rig.turn()
    assert told(rig) == [(20, str(MAX + 1), str(GROUP_BROKER))]


@pytest.mark.parametrize("options", [{"offset_check_in_slave": 1}, {"is_slave": 0}])
def test_a_master_and_a_slave_that_checks_tell_the_nearest_offset_at_once(make: Make, options: dict[str, int]) -> None:
    rig, _ = make(**options)
    for offset in (MIN - 1, MAX + 1):
        rig.frame(pull(offset, flags=SUBSCRIPTION))
    rig.turn()
    for kind, record in rig.for_manager():  # of a master: beyond the queue; the group has committed nothing
        rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    assert told(rig) == [(21, str(MIN), "0"), (21, str(MAX), "0")]
