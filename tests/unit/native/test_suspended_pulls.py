"""Suspended pulls: what is kept, how many a connection may have, when they end, and that none holds the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull processor is C")

from rocketpy.native.core import ffi, lib
from tests.support.fast_path import TURN_NS, FastPath
from tests.unit.native.test_admission import Clock, S
from tests.unit.native.test_fast_path import pull, ready, records_of, send_v2

WAIT = 6  # sysFlag: SUSPEND, SUBSCRIPTION
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SWEPT_NS = 600_000_000  # a run of this length looks at every deadline


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Callable[..., FastPath]]:
    """Makes lanes with a topic T and a group G."""
    made: list[FastPath] = []

    def make(capacity: int = 100, clock: Clock | None = None, **options: Any) -> FastPath:
        pull_options = {
            "suspended": lib.rp_suspension_slots_create(capacity),
            "clock_ns": clock.pointer if clock else ffi.NULL,
        }
        lane = ready(FastPath(tmp_path, pull_options, **options))
        made.append(lane)
        return lane

    yield make
    for lane in made:
        lane.close()


def counter(lane: FastPath, number: int) -> int:
    return int(lane.workers["pull"].counters[number])


def held(lane: FastPath) -> int:
    return counter(lane, lib.RP_COUNT_SUSPENDED)


def store(lane: FastPath, tag: str, count: int, queue: int = 0) -> None:
    """Messages that are stored and not dispatched yet."""
    for _ in range(count):
        lane.frame(send_v2(properties=f"TAGS\x01{tag}", queue=queue))
        lib.rp_send_run(lane.send, TURN_NS)
        lane.answers()


def dispatch(lane: FastPath) -> None:
    while lib.rp_dispatch_run(lane.dispatch, 1 << 30) == lib.RP_OK:
        pass


def test_of_a_large_request_little_is_kept_and_its_filter_holds(lanes: Callable[..., FastPath]) -> None:
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


def test_one_connection_has_an_eighth_and_the_others_wait_all_the_same(lanes: Callable[..., FastPath]) -> None:
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


def test_the_bytes_of_one_connection_are_bounded(lanes: Callable[..., FastPath]) -> None:
    lane = lanes(100)
    group = "g" * 20_000
    lane.add_group(group)
    for opaque in range(5):
        lane.frame(pull(0, flags=WAIT, group=group, opaque=opaque))
    lane.turn()
    assert [reply.code for _, reply in lane.answers()] == [19] * 2
    assert counter(lane, lib.RP_COUNT_SUSPENDED_BYTES) <= 65_536


def test_all_together_are_bounded(lanes: Callable[..., FastPath]) -> None:
    lane = lanes(100)
    for connection in range(1, 11):
        for opaque in range(12):
            lane.frame(pull(0, flags=WAIT, opaque=opaque), connection=connection)
    lane.turn()
    assert held(lane) == 100 and len(lane.answers()) == 20


@pytest.mark.parametrize(("suspend", "waits"), [(LONG_MAX, 1), (10**13, 1), (0, 0), (-1, 0), (-LONG_MAX - 1, 0)])
def test_a_time_of_any_size_is_a_time(lanes: Callable[..., FastPath], suspend: int, waits: int) -> None:
    lane = lanes()
    lane.frame(pull(0, flags=WAIT, suspend=suspend))
    lib.rp_codec_wake(lane.codec)
    lib.rp_pull_run(lane.pull, SWEPT_NS)
    assert held(lane) == waits
    assert [reply.code for _, reply in lane.answers()] == [19] * (1 - waits)


def test_a_pull_that_is_no_longer_allowed_asks_again_with_its_whole_request(lanes: Callable[..., FastPath]) -> None:
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
def test_a_look_examines_a_bounded_number_of_units(lanes: Callable[..., FastPath], maximum: int, examined: int) -> None:
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


def test_many_that_wait_for_one_queue_do_not_hold_up_other_pulls(lanes: Callable[..., FastPath]) -> None:
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
    assert counter(lane, lib.RP_COUNT_SUSPENDED_STEPS) < 400, "there are suspended pulls that have not had their look"
    for _ in range(20):
        lib.rp_pull_run(lane.pull, TURN_NS)
    assert counter(lane, lib.RP_COUNT_SUSPENDED_STEPS) >= 400
    assert held(lane) == 400
    store(lane, "TagA", 1)
    for _ in range(20):
        lane.turn()
    connections = Counter(connection for connection, reply in lane.answers() if records_of(reply))
    assert connections == Counter(dict.fromkeys(range(1, 9), 50))


MANY = 2000  # suspended pulls that never match, all on queue 0


@pytest.fixture
def crowded(lanes: Callable[..., FastPath]) -> tuple[FastPath, Clock]:
    """A lane where MANY wait, 1000 messages have arrived for them, and their looks have begun; the clock stands."""
    clock = Clock()
    lane = lanes(2 * MANY, clock, cq_file_size=200_000)
    for connection in range(1, 9):
        for opaque in range(MANY // 8):
            lane.frame(pull(0, flags=WAIT, expression="TagA", opaque=opaque, suspend=10**9), connection=connection)
            if opaque % 50 == 49:
                lane.turn()
    assert held(lane) == MANY
    store(lane, "TagB", 1000)
    dispatch(lane)
    lib.rp_pull_run(lane.pull, TURN_NS)
    return lane, clock


def one_more(lane: FastPath) -> None:
    """A message for queue 0 and a turn of the pull processor."""
    store(lane, "TagB", 1)
    dispatch(lane)
    lib.rp_pull_run(lane.pull, TURN_NS)


def test_looks_of_many_do_not_keep_a_pull_of_another_queue_waiting(crowded: tuple[FastPath, Clock]) -> None:
    lane, _ = crowded
    lane.frame(pull(0, 1, flags=WAIT, opaque=1000), connection=20)
    lane.turn()
    one_more(lane)
    assert counter(lane, lib.RP_COUNT_SUSPENDED_STEPS) < MANY / 2
    store(lane, "TagA", 1, queue=1)
    one_more(lane)
    assert [reply.opaque for _, reply in lane.answers()] == [1000]
    assert counter(lane, lib.RP_COUNT_SUSPENDED_STEPS) < MANY / 2, "the others' looks are still under way"


def test_looks_of_many_do_not_keep_deadlines_of_other_queues_waiting(crowded: tuple[FastPath, Clock]) -> None:
    lane, clock = crowded
    lane.frame(pull(0, 1, flags=WAIT, opaque=1000, suspend=1000), connection=20)
    lane.turn()
    assert held(lane) == MANY + 1
    for _ in range(6):
        clock.now_ns += S // 2
        store(lane, "TagB", 100)
        one_more(lane)
    assert held(lane) == MANY, "the one whose deadline has passed is answered"


def test_each_arrival_costs_one_look_of_each_pull(crowded: tuple[FastPath, Clock]) -> None:
    lane, _ = crowded
    for _ in range(5):
        one_more(lane)
    for _ in range(100):
        lib.rp_pull_run(lane.pull, TURN_NS)
    assert MANY <= counter(lane, lib.RP_COUNT_SUSPENDED_STEPS) <= 2 * MANY, "arrivals during a look share the next one"
    store(lane, "TagA", 1)
    for _ in range(100):
        lane.turn()
        lane.answers()
    assert held(lane) == 0


def test_pulls_may_go_and_come_while_looks_are_under_way(crowded: tuple[FastPath, Clock]) -> None:
    lane, _ = crowded
    for connection in (8, 1, 4):
        lane.closed(connection)
        lane.frame(pull(1000, flags=WAIT, expression="TagC", opaque=connection), connection=30 + connection)
        lane.turn()
    store(lane, "TagA", 1)
    store(lane, "TagC", 1)
    found: Counter[int] = Counter()
    for _ in range(100):
        lane.turn()
        found.update(connection for connection, reply in lane.answers() if records_of(reply))
    assert found == Counter(dict.fromkeys((2, 3, 5, 6, 7), MANY // 8) | dict.fromkeys((31, 34, 38), 1))
    assert held(lane) == 0


def test_looks_that_find_no_room_for_answers_go_on_later_and_none_is_lost(lanes: Callable[..., FastPath]) -> None:
    lane = lanes(16_000)
    for connection in range(1, 9):
        for opaque in range(250):
            lane.frame(pull(0, flags=WAIT, opaque=opaque), connection=connection)
            if opaque % 50 == 49:
                lane.turn()
    lane.frame(pull(0, 1, flags=WAIT, opaque=1000), connection=20)
    lane.turn()
    store(lane, "TagA", 1)
    dispatch(lane)
    for _ in range(3):
        lib.rp_pull_run(lane.pull, TURN_NS)
    assert 0 < held(lane) < 2001 and counter(lane, lib.RP_COUNT_STALLS) > 0
    answered = Counter(connection for connection, _ in lane.answers())
    store(lane, "TagA", 1, queue=1)
    for _ in range(20):
        dispatch(lane)
        lib.rp_pull_run(lane.pull, TURN_NS)
        answered.update(connection for connection, _ in lane.answers())
    assert held(lane) == 0
    assert [answered[connection] for connection in (*range(1, 9), 20)] == [250] * 8 + [1]


def test_pulls_of_a_dead_selector_are_forgotten_and_those_of_its_successor_wait(lanes: Callable[..., FastPath]) -> None:
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
