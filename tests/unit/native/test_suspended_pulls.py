"""Suspended pulls: what is kept, how many a connection may have, when they end, and that none holds the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull processor has no Python twin")

from rocketpy.native.core import lib
from tests.support.hot_lane import TURN_NS, HotLane
from tests.unit.native.test_hot_lane import pull, ready, records_of, send_v2

WAIT = 6  # sysFlag: SUSPEND, SUBSCRIPTION
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SWEPT_NS = 600_000_000  # a run of this length looks at every deadline


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Callable[..., HotLane]]:
    """Makes lanes with a topic T and a group G."""
    made: list[HotLane] = []

    def make(capacity: int = 100, **options: Any) -> HotLane:
        lane = ready(HotLane(tmp_path, {"held": lib.rp_held_slots_create(capacity)}, **options))
        made.append(lane)
        return lane

    yield make
    for lane in made:
        lane.close()


def counter(lane: HotLane, number: int) -> int:
    return int(lane.workers["pull"].counters[number])


def held(lane: HotLane) -> int:
    return counter(lane, lib.RP_COUNT_HELD)


def store(lane: HotLane, tag: str, count: int) -> None:
    """Messages that are stored and not dispatched yet."""
    for _ in range(count):
        lane.frame(send_v2(properties=f"TAGS\x01{tag}"))
        lib.rp_send_run(lane.send, TURN_NS)
        lane.answers()


def dispatch(lane: HotLane) -> None:
    while lib.rp_dispatch_run(lane.dispatch, 1 << 30) == lib.RP_OK:
        pass


def test_of_a_large_request_little_is_kept_and_its_filter_holds(lanes: Callable[..., HotLane]) -> None:
    lane = lanes()
    expression = " || " * 10_000 + "TagA"
    lane.frame(pull(0, flags=WAIT, expression=expression, opaque=77))
    lane.turn()
    assert held(lane) == 1
    assert counter(lane, lib.RP_COUNT_SUSPENDED_BYTES) < 1024
    for tag, answered in (("TagB", [7]), ("TagA", [7, 77])):
        lane.frame(send_v2(properties=f"TAGS\x01{tag}"))
        lane.turn()
        assert sorted(reply.opaque for _, reply in lane.answers()) == answered
    assert counter(lane, lib.RP_COUNT_SUSPENDED_BYTES) == 0


def test_one_connection_has_an_eighth_and_the_others_wait_all_the_same(lanes: Callable[..., HotLane]) -> None:
    lane = lanes(400)
    for opaque in range(100):
        lane.frame(pull(0, flags=WAIT, opaque=opaque), connection=8)
    lane.frame(pull(0, flags=WAIT, opaque=1000), connection=9)
    lane.turn()
    answers = lane.answers()
    assert [(connection, reply.code) for connection, reply in answers] == [(8, 19)] * 50
    assert held(lane) == 51 and counter(lane, lib.RP_COUNT_SUSPEND_REFUSED) == 50
    lane.closed(8)
    lane.turn()
    assert held(lane) == 1
    lane.frame(pull(0, flags=WAIT), connection=8)
    lane.turn()
    assert held(lane) == 2 and lane.answers() == []


def test_the_bytes_of_one_connection_are_bounded(lanes: Callable[..., HotLane]) -> None:
    lane = lanes(100)
    group = "g" * 20_000
    lane.add_group(group)
    for opaque in range(5):
        lane.frame(pull(0, flags=WAIT, group=group, opaque=opaque))
    lane.turn()
    assert [reply.code for _, reply in lane.answers()] == [19] * 2
    assert counter(lane, lib.RP_COUNT_SUSPENDED_BYTES) <= 65_536


def test_all_together_are_bounded(lanes: Callable[..., HotLane]) -> None:
    lane = lanes(100)
    for connection in range(1, 11):
        for opaque in range(12):
            lane.frame(pull(0, flags=WAIT, opaque=opaque), connection=connection)
    lane.turn()
    assert held(lane) == 100 and len(lane.answers()) == 20


@pytest.mark.parametrize(("suspend", "waits"), [(LONG_MAX, 1), (10**13, 1), (0, 0), (-1, 0), (-LONG_MAX - 1, 0)])
def test_a_time_of_any_size_is_a_time(lanes: Callable[..., HotLane], suspend: int, waits: int) -> None:
    lane = lanes()
    lane.frame(pull(0, flags=WAIT, suspend=suspend))
    lib.rp_codec_wake(lane.codec)
    lib.rp_pull_run(lane.pull, SWEPT_NS)
    assert held(lane) == waits
    assert [reply.code for _, reply in lane.answers()] == [19] * (1 - waits)


def test_a_pull_that_is_no_longer_allowed_asks_again_with_its_whole_request(lanes: Callable[..., HotLane]) -> None:
    lane = lanes()
    store(lane, "TagB", 1)
    lane.turn()
    lane.frame(pull(1, flags=WAIT, expression="TagA", opaque=77))
    lane.turn()
    lane.add_topic("T", perm=2)
    store(lane, "TagB", 1)
    lane.turn()
    [(_, reply)] = lane.answers()
    assert (reply.opaque, reply.code, reply.ext_field("nextBeginOffset")) == (77, 20, "1")
    assert held(lane) == 0 and lane.for_manager() == []


@pytest.mark.parametrize(
    ("maximum", "examined"), [(INT_MAX, 1024), (5000, 1024), (900, 900), (0, 800), (-1, 800), (-INT_MAX - 1, 800)]
)
def test_a_look_examines_a_bounded_number_of_units(lanes: Callable[..., HotLane], maximum: int, examined: int) -> None:
    lane = lanes(cq_file_size=200_000)
    store(lane, "TagB", 5000)
    store(lane, "TagA", 2)
    lane.turn()
    lane.frame(pull(0, maximum=maximum, expression="TagA"))
    lane.frame(pull(4900, maximum=maximum, expression="TagA", opaque=10))
    lane.turn()
    (_, missed), (_, found) = lane.answers()
    assert (missed.code, missed.ext_field("nextBeginOffset")) == (20, str(examined))
    assert [record.queue_offset for record in records_of(found)] == [5000, 5001][: 2 if maximum > 0 else 1]


def test_many_that_wait_for_one_queue_do_not_hold_up_other_pulls(lanes: Callable[..., HotLane]) -> None:
    lane = lanes(400, cq_file_size=200_000)
    for connection in range(1, 9):
        for opaque in range(50):
            lane.frame(pull(0, flags=WAIT, expression="TagA", opaque=opaque), connection=connection)
        lane.turn()
    assert held(lane) == 400
    store(lane, "TagB", 800)
    dispatch(lane)
    lane.frame(pull(0, opaque=1000), connection=20)
    lib.rp_codec_wake(lane.codec)
    lib.rp_pull_run(lane.pull, TURN_NS)
    assert [reply.opaque for _, reply in lane.answers()] == [1000]
    assert lib.rp_ring_depth(lane.store_pull) > 0, "there are suspended pulls that have not had their look"
    for _ in range(20):
        lib.rp_pull_run(lane.pull, TURN_NS)
    assert lib.rp_ring_depth(lane.store_pull) == 0
    assert held(lane) == 400
    store(lane, "TagA", 1)
    for _ in range(20):
        lane.turn()
    connections = Counter(connection for connection, reply in lane.answers() if records_of(reply))
    assert connections == Counter(dict.fromkeys(range(1, 9), 50))


def test_pulls_of_a_dead_selector_are_forgotten_and_those_of_its_successor_wait(lanes: Callable[..., HotLane]) -> None:
    lane = lanes()
    for slot in range(3):
        lane.frame(pull(0, flags=WAIT, opaque=slot), slot << 32 | 1)
    lane.turn()
    assert held(lane) == 3
    lane.workers["selector"].epoch += 1
    lane.frame(pull(0, flags=WAIT, opaque=8), 3 << 32 | 2)  # was on its way when the selector died
    lane.frame(pull(0, flags=WAIT, opaque=9), 1 << 32 | 1 << 20 | 1)
    lane.turn()
    lib.rp_pull_run(lane.pull, SWEPT_NS)
    assert held(lane) == 1
    lane.frame(send_v2(), 1 << 32 | 1 << 20 | 1)
    lane.turn()
    assert sorted(reply.opaque for _, reply in lane.answers()) == [7, 9]
