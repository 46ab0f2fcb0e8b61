"""Suspended pulls: what is kept, how many a connection may have, when they end, and that none holds the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.native.core import ffi, lib
from tests.support.fast_path import TURN_NS, FastPath
from tests.support.fast_path_requests import pull, ready, records_of, send_v2
from tests.support.shared_memory import suspension_slots
from tests.unit.native.test_admission import Clock, S

WAIT = 6  # sysFlag: SUSPEND, SUBSCRIPTION
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SWEPT_NS = 600_000_000  # a run of this length looks at every deadline


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[Callable[..., FastPath]]:
    """Makes rigs with a topic T and a group G."""
    made: list[FastPath] = []

    def make(capacity: int = 100, clock: Clock | None = None, **options: Any) -> FastPath:
        pull_options = {
            "suspended": suspension_slots(capacity),
            "clock_ns": clock.pointer if clock else ffi.NULL,
        }
        rig = ready(FastPath(tmp_path, pull_options, **options))
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


def counter(rig: FastPath, number: int) -> int:
    return int(rig.workers["pull"].counters[number])


def suspended(rig: FastPath) -> int:
    return counter(rig, lib.RP_COUNT_SUSPENDED)


def store(rig: FastPath, tag: str, count: int, queue: int = 0) -> None:
    """Messages that are stored and not dispatched yet."""
    for _ in range(count):
        rig.frame(send_v2(properties=f"TAGS\x01{tag}", queue=queue))
        lib.rp_send_run(rig.send, TURN_NS)
        rig.answers()


def dispatch(rig: FastPath) -> None:
    while lib.rp_dispatch_run(rig.dispatch, 1 << 30) == lib.RP_OK:
        pass


def test_of_a_large_request_little_is_kept_and_its_filter_holds(rigs: Callable[..., FastPath]) -> None:
    """Fault: A suspended pull kept its whole request of up to 16 MiB."""
    rig = rigs()
    expression = " || " * 10_000 + "TagA"
    rig.frame(pull(0, flags=WAIT, expression=expression, opaque=77))
    rig.turn()
    assert suspended(rig) == 1
    assert counter(rig, lib.RP_COUNT_SUSPENDED_BYTES) < 1024
    for tag, answered in (("TagB", [7]), ("TagA", [7, 77])):
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
        rig.turn()
        assert sorted(reply.opaque for _, reply in rig.answers()) == answered
    assert counter(rig, lib.RP_COUNT_SUSPENDED_BYTES) == 0


def wait_often(rig: FastPath, connection: int, pulls: int) -> None:
    """Send pulls that wait for messages, in turns that the ring has room for."""
    for opaque in range(pulls):
        rig.frame(pull(0, flags=WAIT, opaque=opaque), connection=connection)
        if opaque % 50 == 49:
            rig.turn()


def test_one_connection_has_an_eighth_of_what_is_free_and_others_wait(rigs: Callable[..., FastPath]) -> None:
    """Fault: One client could occupy every place for suspended pulls."""
    rig = rigs(400)
    for opaque in range(100):
        rig.frame(pull(0, flags=WAIT, opaque=opaque), connection=8)
    rig.frame(pull(0, flags=WAIT, opaque=1000), connection=9)
    rig.turn()
    answers = rig.answers()
    assert [(connection, reply.code) for connection, reply in answers] == [(8, 19)] * 56
    assert suspended(rig) == 45 and counter(rig, lib.RP_COUNT_SUSPEND_REFUSED) == 56
    rig.closed(8)
    rig.turn()
    assert suspended(rig) == 1
    rig.frame(pull(0, flags=WAIT), connection=8)
    rig.turn()
    assert suspended(rig) == 2 and rig.answers() == []


def test_many_connections_that_take_all_they_can_leave_room(rigs: Callable[..., FastPath]) -> None:
    """Fault: Nine connections occupied every place, and the pulls of all other clients were answered at once."""
    rig = rigs(4000)
    for connection in range(1, 11):
        wait_often(rig, connection, 600)
        rig.answers()
    assert 2000 < suspended(rig) < 3000
    for opaque in range(100):
        rig.frame(pull(0, flags=WAIT, opaque=opaque), connection=20)
    rig.turn()
    assert rig.answers() == []


def test_the_bytes_of_one_connection_are_bounded(rigs: Callable[..., FastPath]) -> None:
    rig = rigs(100)
    group = "g" * 20_000
    rig.add_group(group)
    for opaque in range(5):
        rig.frame(pull(0, flags=WAIT, group=group, opaque=opaque))
    rig.turn()
    assert [reply.code for _, reply in rig.answers()] == [19] * 2
    assert counter(rig, lib.RP_COUNT_SUSPENDED_BYTES) <= 65_536


def test_all_together_are_bounded(rigs: Callable[..., FastPath]) -> None:
    rig = rigs(100)
    for connection in range(1, 11):
        for opaque in range(12):
            rig.frame(pull(0, flags=WAIT, opaque=opaque), connection=connection)
    rig.turn()
    assert suspended(rig) == 100 and len(rig.answers()) == 20


@pytest.mark.parametrize(
    ("flags", "commit", "expression", "is_early"),
    [
        (WAIT | 1, 1, "TagA", True),  # it has consumed 0, and 1 and 2 were not for it
        (WAIT, 0, "TagA", True),  # it has consumed nothing yet, as after a reset of its offset
        (WAIT | 1, 3, "TagA", False),
        (WAIT | 1, 1, "*", False),
    ],
)
def test_a_pull_behind_messages_of_others_is_answered_soon_so_that_its_client_commits_them(
    rigs: Callable[..., FastPath], flags: int, commit: int, expression: str, is_early: bool
) -> None:
    """They were passed by the pull before, which found a message. Otherwise the group seems to be behind until the
    suspension ends.
    Fault: A tag-filtered group seemed behind for 15 s after a reset, or by messages of others."""
    clock = Clock()
    rig = rigs(clock=clock)
    for tag in ("TagA", "TagB", "TagB"):
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
    rig.turn()
    rig.answers()
    rig.frame(pull(3, flags=flags, commit=commit, expression=expression, opaque=1))
    rig.turn()
    assert rig.answers() == []
    for _ in range(11):
        clock.now_ns += S // 2
        rig.turn()
    answers = [(reply.code, (reply.ext_fields or {})["nextBeginOffset"]) for _, reply in rig.answers()]
    assert answers == ([(19, "3")] if is_early else [])


def test_a_pull_that_has_passed_messages_of_others_is_told_of_its_progress(rigs: Callable[..., FastPath]) -> None:
    """After five seconds, as by the sweep of the reference: its client commits what it has passed.
    Fault: A group with a tag filter seemed behind for half a minute by messages of others.
    Holds: trap, a woken pull that finds nothing answers at once."""
    clock = Clock()
    rig = rigs(clock=clock)
    rig.frame(pull(0, flags=WAIT, expression="TagA", opaque=1))
    rig.frame(pull(0, queue=1, flags=WAIT, expression="TagA", opaque=2))
    rig.turn()
    rig.frame(send_v2(properties="TAGS\x01TagB"))
    rig.turn()
    rig.answers()
    for _ in range(9):
        clock.now_ns += S // 2
        rig.turn()
        assert rig.answers() == [] and suspended(rig) == 2
    clock.now_ns += S
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.opaque, reply.code) == (1, 20) and (reply.ext_fields or {})["nextBeginOffset"] == "1"
    assert suspended(rig) == 1, "one that has passed nothing waits for its deadline"


@pytest.mark.parametrize(("suspend", "waits"), [(LONG_MAX, 1), (10**13, 1), (0, 0), (-1, 0), (-LONG_MAX - 1, 0)])
def test_a_time_of_any_size_is_a_time(rigs: Callable[..., FastPath], suspend: int, waits: int) -> None:
    """Fault: A suspendTimeoutMillis of 2^63 - 1 expired at once.
    Holds: answer, suspending and waking of a pull."""
    clock = Clock()
    rig = rigs(clock=clock)
    rig.frame(pull(0, flags=WAIT, suspend=suspend))
    rig.turn()
    clock.now_ns += S
    rig.turn()
    assert suspended(rig) == waits
    assert [reply.code for _, reply in rig.answers()] == [19] * (1 - waits)


@pytest.mark.parametrize(
    "restrict",
    [
        lambda rig: rig.remove_topic("T"),
        lambda rig: rig.add_topic("T", perm=2),
        lambda rig: rig.add_topic("T", queues=1),
        lambda rig: rig.add_group("G", enabled=False),
        lambda rig: rig.tell_broker(permission=2, max_message_size=0),
    ],
    ids=["topic-deleted", "topic-not-readable", "fewer-queues", "group-switched-off", "broker-not-readable"],
)
def test_a_pull_whose_queue_it_may_no_longer_read_does_not_wait_for_its_deadline(
    rigs: Callable[..., FastPath], restrict: Callable[[FastPath], None]
) -> None:
    """Fault: Consumers waited until their deadline for messages of a deleted or forbidden topic."""
    clock = Clock()
    rig = rigs(clock=clock)

    def sweep() -> None:
        clock.now_ns += S
        rig.turn()

    rig.frame(pull(0, queue=1, flags=WAIT, opaque=77))
    rig.turn()
    rig.add_topic("U")  # concerns no pull
    sweep()
    assert suspended(rig) == 1 and rig.answers() == []
    restrict(rig)
    sweep()
    [(_, reply)] = rig.answers()
    assert (reply.opaque, reply.code, reply.ext_field("nextBeginOffset")) == (77, 20, "0")
    assert suspended(rig) == 0


def test_a_pull_that_is_no_longer_allowed_asks_again_with_its_whole_request(rigs: Callable[..., FastPath]) -> None:
    rig = rigs()
    store(rig, "TagB", 1)
    rig.turn()
    rig.frame(pull(1, flags=WAIT, expression="TagA", opaque=77))
    rig.turn()
    rig.add_topic("T", perm=2)
    store(rig, "TagB", 1)
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.opaque, reply.code, reply.ext_field("nextBeginOffset")) == (77, 20, "1")
    assert suspended(rig) == 0 and rig.for_manager() == []


@pytest.mark.parametrize(
    ("maximum", "examined"), [(INT_MAX, 1024), (5000, 1024), (900, 900), (0, 800), (-1, 800), (-INT_MAX - 1, 800)]
)
def test_a_look_examines_a_bounded_number_of_units(rigs: Callable[..., FastPath], maximum: int, examined: int) -> None:
    """Fault: A tag pull with a huge maxMsgNums examined a whole queue file."""
    rig = rigs(cq_file_size=200_000)
    store(rig, "TagB", 5000)
    store(rig, "TagA", 2)
    rig.turn()
    rig.frame(pull(0, maximum=maximum, expression="TagA"))
    rig.frame(pull(4900, maximum=maximum, expression="TagA", opaque=10))
    rig.turn()
    (_, missed), (_, found) = rig.answers()
    assert (missed.code, missed.ext_field("nextBeginOffset")) == (20, str(examined))
    assert [record.queue_offset for record in records_of(found)] == [5000, 5001][: 2 if maximum > 0 else 1]


def test_many_that_wait_for_one_queue_do_not_hold_up_other_pulls(rigs: Callable[..., FastPath]) -> None:
    """Fault: Thousands of pulls suspended at one queue were examined before any other pull was served."""
    rig = rigs(800, Clock(), cq_file_size=200_000)  # it stands: a sweep would count steps, too
    for connection in range(1, 9):
        for opaque in range(50):
            rig.frame(pull(0, flags=WAIT, expression="TagA", opaque=opaque), connection=connection)
        rig.turn()
    assert suspended(rig) == 400
    store(rig, "TagB", 800)
    dispatch(rig)
    rig.frame(pull(0, opaque=1000), connection=20)
    lib.rp_codec_wake(rig.codec)
    lib.rp_pull_run(rig.pull, TURN_NS)
    assert [reply.opaque for _, reply in rig.answers()] == [1000]
    assert counter(rig, lib.RP_COUNT_SUSPENDED_STEPS) < 400, "there are suspended pulls that have not had their look"
    for _ in range(20):
        lib.rp_pull_run(rig.pull, TURN_NS)
    assert counter(rig, lib.RP_COUNT_SUSPENDED_STEPS) >= 400
    assert suspended(rig) == 400
    store(rig, "TagA", 1)
    for _ in range(20):
        rig.turn()
    connections = Counter(connection for connection, reply in rig.answers() if records_of(reply))
    assert connections == Counter(dict.fromkeys(range(1, 9), 50))


MANY = 2000  # suspended pulls that never match, all on queue 0


@pytest.fixture
def crowded(rigs: Callable[..., FastPath]) -> tuple[FastPath, Clock]:
    """A rig where MANY wait, 1000 messages have arrived for them, and their looks have begun; the clock stands."""
    clock = Clock()
    rig = rigs(2 * MANY, clock, cq_file_size=200_000)
    for connection in range(1, 9):
        for opaque in range(MANY // 8):
            rig.frame(pull(0, flags=WAIT, expression="TagA", opaque=opaque, suspend=10**9), connection=connection)
            if opaque % 50 == 49:
                rig.turn()
    assert suspended(rig) == MANY
    store(rig, "TagB", 1000)
    dispatch(rig)
    lib.rp_pull_run(rig.pull, TURN_NS)
    return rig, clock


def one_more(rig: FastPath) -> None:
    """A message for queue 0 and a turn of the pull worker."""
    store(rig, "TagB", 1)
    dispatch(rig)
    lib.rp_pull_run(rig.pull, TURN_NS)


def test_looks_of_many_do_not_keep_a_pull_of_another_queue_waiting(crowded: tuple[FastPath, Clock]) -> None:
    """Fault: With 100 000 pulls suspended on one queue, other pulls and deadlines waited for seconds."""
    rig, _ = crowded
    rig.frame(pull(0, 1, flags=WAIT, opaque=1000), connection=20)
    rig.turn()
    one_more(rig)
    assert counter(rig, lib.RP_COUNT_SUSPENDED_STEPS) < MANY / 2
    store(rig, "TagA", 1, queue=1)
    one_more(rig)
    assert [reply.opaque for _, reply in rig.answers()] == [1000]
    assert counter(rig, lib.RP_COUNT_SUSPENDED_STEPS) < MANY / 2, "the others' looks are still under way"


def test_looks_of_many_do_not_keep_deadlines_of_other_queues_waiting(crowded: tuple[FastPath, Clock]) -> None:
    rig, clock = crowded
    rig.frame(pull(0, 1, flags=WAIT, opaque=1000, suspend=1000), connection=20)
    rig.turn()
    assert suspended(rig) == MANY + 1
    for _ in range(6):
        clock.now_ns += S // 2
        store(rig, "TagB", 100)
        one_more(rig)
    assert suspended(rig) == MANY, "the one whose deadline has passed is answered"


def test_each_arrival_costs_one_look_of_each_pull(crowded: tuple[FastPath, Clock]) -> None:
    rig, _ = crowded
    for _ in range(5):
        one_more(rig)
    for _ in range(100):
        lib.rp_pull_run(rig.pull, TURN_NS)
    assert MANY <= counter(rig, lib.RP_COUNT_SUSPENDED_STEPS) <= 2 * MANY, "arrivals during a look share the next one"
    store(rig, "TagA", 1)
    for _ in range(100):
        rig.turn()
        rig.answers()
    assert suspended(rig) == 0


def test_pulls_may_go_and_come_while_looks_are_under_way(crowded: tuple[FastPath, Clock]) -> None:
    rig, _ = crowded
    for connection in (8, 1, 4):
        rig.closed(connection)
        rig.frame(pull(1000, flags=WAIT, expression="TagC", opaque=connection), connection=30 + connection)
        rig.turn()
    store(rig, "TagA", 1)
    store(rig, "TagC", 1)
    found: Counter[int] = Counter()
    for _ in range(100):
        rig.turn()
        found.update(connection for connection, reply in rig.answers() if records_of(reply))
    assert found == Counter(dict.fromkeys((2, 3, 5, 6, 7), MANY // 8) | dict.fromkeys((31, 34, 38), 1))
    assert suspended(rig) == 0


def test_looks_that_find_no_room_for_answers_go_on_later_and_none_is_lost(rigs: Callable[..., FastPath]) -> None:
    rig = rigs(16_000)
    for connection in range(1, 9):
        wait_often(rig, connection, 250)
    rig.frame(pull(0, 1, flags=WAIT, opaque=1000), connection=20)
    rig.turn()
    store(rig, "TagA", 1)
    dispatch(rig)
    for _ in range(3):
        lib.rp_pull_run(rig.pull, TURN_NS)
    assert 0 < suspended(rig) < 2001 and counter(rig, lib.RP_COUNT_STALLS) > 0
    answered = Counter(connection for connection, _ in rig.answers())
    store(rig, "TagA", 1, queue=1)
    for _ in range(20):
        dispatch(rig)
        lib.rp_pull_run(rig.pull, TURN_NS)
        answered.update(connection for connection, _ in rig.answers())
    assert suspended(rig) == 0
    assert [answered[connection] for connection in (*range(1, 9), 20)] == [250] * 8 + [1]


def test_pulls_of_a_dead_selector_are_forgotten_and_those_of_the_restarted_one_wait(
    rigs: Callable[..., FastPath],
) -> None:
    """Fault: Suspended pulls of a killed selector stayed until their deadlines and counted against the bounds."""
    rig = rigs()
    for slot in range(3):
        rig.frame(pull(0, flags=WAIT, opaque=slot), slot << 32 | 1)
    rig.turn()
    assert suspended(rig) == 3
    rig.workers["selector"].epoch += 1
    rig.frame(pull(0, flags=WAIT, opaque=8), 3 << 32 | 2)  # was on its way when the selector died
    rig.frame(pull(0, flags=WAIT, opaque=9), 1 << 32 | 1 << 20 | 1)
    rig.turn()
    lib.rp_pull_run(rig.pull, SWEPT_NS)
    assert suspended(rig) == 1
    rig.frame(send_v2(), 1 << 32 | 1 << 20 | 1)
    rig.turn()
    assert sorted(reply.opaque for _, reply in rig.answers()) == [7, 9]
