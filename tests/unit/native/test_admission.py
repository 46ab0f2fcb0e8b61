"""Which requests the fast path refuses because of their age, or because the disk is busy. The clock is the test's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import FLAG_ONEWAY, RemotingCommand
from tests.support.fast_path import TURN_NS, FastPath
from tests.support.fast_path_requests import pull, send_v2

MS = 1_000_000
S = 1000 * MS
START = 100 * S


class Clock:
    """Stands still but for what the test adds; `then` happens at a certain reading of it."""

    def __init__(self) -> None:
        self.now_ns = START
        self.readings = 0
        self.stalls: dict[int, int] = {}  # reading -> how long the stall before it was
        self.then: Callable[[], None] | None = None
        self.pointer = ffi.callback("uint64_t(void)", self._read)

    def _read(self) -> int:
        self.readings += 1
        self.now_ns += self.stalls.pop(self.readings, 0)
        if self.then is not None:
            self.then()
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def open_rig(root: Path, clock: Clock, **options: Any) -> FastPath:
    """It serves since a while, by the clock."""
    clock.now_ns -= 50 * S
    pull_options = {"fast_failure": 1, "wait_time_in_queue_ms": 5000, "clock_ns": clock.pointer}
    rig = FastPath(
        root, pull_options, **({"fast_failure": 1, "page_cache_busy_ms": 1000, "clock_ns": clock.pointer} | options)
    )
    rig.add_topic("T")
    rig.add_group("G")
    rig.subscribe("G", "T")
    rig.tables_end()
    clock.now_ns += 50 * S
    return rig


def oneway(command: RemotingCommand) -> RemotingCommand:
    return attrs.evolve(command, flag=FLAG_ONEWAY)


def outcomes(rig: FastPath) -> list[tuple[int, int, str]]:
    """(opaque, code, first word of the remark) of what went out."""
    return [(r.opaque, r.code, (r.remark or "").partition("]")[0].lstrip("[")) for _, r in rig.answers()]


@pytest.mark.parametrize(
    ("age_ns", "limit_ms", "is_refused"),
    [(200 * MS, 200, False), (200 * MS + 1, 200, True), (201 * MS, 500, False), (501 * MS, 500, True)],
)
def test_sends_are_refused_by_age(tmp_path: Path, clock: Clock, age_ns: int, limit_ms: int, is_refused: bool) -> None:
    rig = open_rig(tmp_path, clock, wait_time_in_queue_ms=limit_ms)
    rig.frame(send_v2(), received_ns=START - age_ns)
    rig.turn()
    assert outcomes(rig) == ([(7, 2, "TIMEOUT_CLEAN_QUEUE")] if is_refused else [(7, 0, "")])


def test_oneway_sends_are_not_refused_by_age(tmp_path: Path, clock: Clock) -> None:
    """Fault: Oneway sends were refused, unseen by their senders, after 200 ms or a stalled append."""
    rig = open_rig(tmp_path, clock)
    rig.frame(oneway(send_v2()), received_ns=START - 60 * S)
    rig.frame(send_v2(opaque=8), received_ns=START)
    rig.turn()
    [(opaque, code, _)] = outcomes(rig)
    assert (opaque, code) == (8, 0)
    assert rig.workers["send"].counters[lib.RP_COUNT_MESSAGES_PUT] == 2


def test_the_words_are_the_references(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    for opaque in range(3):
        rig.frame(send_v2(opaque=opaque), received_ns=START - 250 * MS)
    rig.turn()
    assert [reply.remark for _, reply in rig.answers()] == [
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, "
        f"size of queue: {waiting}"
        for waiting in (3, 2, 1)
    ]


def test_without_fast_failure_old_sends_are_served(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock, fast_failure=0)
    rig.frame(send_v2(), received_ns=START - 60 * S)
    rig.turn()
    assert outcomes(rig) == [(7, 0, "")]


def test_what_is_left_to_the_manager_is_not_left_there_too_late(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    rig.frame(send_v2(topic="Unknown"), received_ns=START - 250 * MS)
    rig.turn()
    assert outcomes(rig) == [(7, 2, "TIMEOUT_CLEAN_QUEUE")] and rig.for_manager() == []
    rig.frame(send_v2(topic="Unknown"), received_ns=START)
    rig.turn()
    [(kind, record)] = rig.for_manager()
    clock.now_ns += 10 * S  # what the manager needs for a new topic is its own business
    rig.add_topic("Unknown")
    rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    assert outcomes(rig) == [(7, 0, "")]


def test_pulls_are_refused_by_age(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    rig.frame(pull(), received_ns=START - 5 * S - MS)
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 2 and reply.remark is not None
    assert reply.remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
    ) and reply.remark.endswith("ms, size of queue: 1")


def test_sends_that_waited_behind_a_stalled_append_are_refused(tmp_path: Path, clock: Clock) -> None:
    """The clock is looked at once in eight requests: so many may follow the one that stalled. Then all are refused
    that had come before it was over, as if it had been known when they came; and none that comes later."""
    rig = open_rig(tmp_path, clock, wait_time_in_queue_ms=60_000)
    for opaque in range(24):
        rig.frame(send_v2(opaque=opaque), received_ns=START)
    clock.stalls[clock.readings + 4] = 1500 * MS  # start of the run, of the pass, after 8 requests, after 16
    rig.turn()
    served = [(opaque, 0, "") for opaque in range(15)]
    assert outcomes(rig) == served + [(opaque, 2, "PCBUSY_CLEAN_QUEUE") for opaque in range(15, 24)]
    rig.frame(send_v2(opaque=90), received_ns=clock.now_ns - 1)
    rig.frame(send_v2(opaque=91), received_ns=clock.now_ns)
    rig.turn()
    assert outcomes(rig) == [(90, 2, "PCBUSY_CLEAN_QUEUE"), (91, 0, "")]


@pytest.mark.parametrize(
    ("stall_ms", "limit_ms", "is_busy"), [(1000, 1000, False), (1001, 1000, True), (999, 500, True)]
)
def test_a_stall_is_one_from_its_limit_on(
    tmp_path: Path, clock: Clock, stall_ms: int, limit_ms: int, is_busy: bool
) -> None:
    rig = open_rig(tmp_path, clock, page_cache_busy_ms=limit_ms, wait_time_in_queue_ms=60_000)
    rig.frame(send_v2(opaque=1), received_ns=START)
    clock.stalls[clock.readings + 3] = stall_ms * MS  # in the append of the one
    rig.turn()
    rig.frame(send_v2(opaque=2), received_ns=START + 1)
    rig.turn()
    assert outcomes(rig) == [(1, 0, ""), (2, 2, "PCBUSY_CLEAN_QUEUE") if is_busy else (2, 0, "")]


def test_being_asleep_is_no_stall(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    rig.frame(send_v2(opaque=1), received_ns=START)
    rig.turn()
    clock.now_ns += 60 * S
    rig.frame(send_v2(opaque=2), received_ns=clock.now_ns)
    rig.turn()
    assert outcomes(rig) == [(1, 0, ""), (2, 0, "")]
    assert rig.workers["send"].busy_since_ns == 0


def reopened(rig: FastPath, clock: Clock, away_ns: int) -> None:
    """Send and pull were killed, and are restarted so much later."""
    clock.now_ns += away_ns
    rig.send, rig.pull = rig.open_send(), rig.open_pull()
    rig.add_topic("T")
    rig.add_group("G")
    clock.now_ns += away_ns  # the manager has been away as well
    rig.tell_tables_end()


def test_what_came_while_there_was_no_worker_has_not_waited_for_it(tmp_path: Path, clock: Clock) -> None:
    """Fault: A worker that had been away answered waiting requests with TIMEOUT_CLEAN_QUEUE."""
    rig = open_rig(tmp_path, clock)
    rig.frame(send_v2(opaque=1), received_ns=START)
    rig.frame(send_v2(opaque=2), received_ns=START)
    rig.frame(pull(queue=1, opaque=3), received_ns=START)
    lib.rp_codec_wake(rig.codec)
    reopened(rig, clock, 30 * S)
    lib.rp_send_run(rig.send, 0)
    lib.rp_pull_run(rig.pull, 0)
    assert outcomes(rig) == [(1, 0, ""), (2, 0, ""), (3, 19, "NO_MESSAGE_IN_QUEUE")]
    clock.now_ns += 10 * S  # it is there, and others had their turn: that is overload
    for opaque, age_ms in ((4, 201), (5, 199)):
        rig.frame(send_v2(opaque=opaque), received_ns=clock.now_ns - age_ms * MS)
    rig.turn()
    assert outcomes(rig) == [(4, 2, "TIMEOUT_CLEAN_QUEUE"), (5, 0, "")]


def test_a_worker_that_is_woken_late_was_not_there(tmp_path: Path, clock: Clock) -> None:
    """It had nothing to do and slept; then everything stood still for a while, requests were there when it woke."""
    rig = open_rig(tmp_path, clock)

    def stands_still(opaque: int, readings: int) -> Callable[[], None]:
        def then() -> None:
            if clock.readings == readings:
                rig.frame(send_v2(opaque=opaque), received_ns=clock.now_ns)
                lib.rp_codec_wake(rig.codec)
                clock.now_ns += 20 * S

        return then

    # Read at the start of the run, for a pass, for one more before it sleeps, and when it wakes.
    clock.then = stands_still(1, clock.readings + 4)
    lib.rp_send_run(rig.send, MS)
    clock.then = None
    assert outcomes(rig) == [(1, 0, "")]


def test_a_worker_that_waits_for_room_is_there(tmp_path: Path, clock: Clock) -> None:
    """The replies' ring is full, and requests have waited when there is room again."""
    rig = open_rig(tmp_path, clock, wait_time_in_queue_ms=200)
    served = 0
    while lib.rp_ring_depth(rig.send_replies) < lib.rp_ring_capacity(rig.send_replies) - 2000:
        rig.frame(send_v2(opaque=1), received_ns=clock.now_ns)
        rig.turn()
        served += 1
    for _ in range(20):
        rig.frame(send_v2(opaque=2), received_ns=clock.now_ns)
    lib.rp_codec_wake(rig.codec)
    start = clock.readings

    def later() -> None:
        if clock.readings == start + 8:  # it has slept by then
            clock.now_ns += S

    clock.then = later
    lib.rp_send_run(rig.send, 100 * MS)
    clock.then = None
    rig.answers()
    rig.turn()
    assert {(opaque, code) for opaque, code, _ in outcomes(rig)} == {(2, 2)}


def test_a_codec_that_was_away_passes_on_the_time_of_its_return(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    writer = lib.rp_ring_writer_open(rig.frames)
    origin = ffi.new("rp_origin *", {"connection": 1, "received_ns": START})
    frame = send_v2().encode()[4:]
    spans = ffi.new("rp_span[2]", [(origin, ffi.sizeof("rp_origin")), (ffi.from_buffer(frame), len(frame))])
    assert lib.rp_ring_write(writer, lib.RP_MSG_FRAME, spans, 2) == lib.RP_OK
    clock.now_ns += 30 * S
    rig.codec_options = {"clock_ns": clock.pointer}
    rig.codec = rig.open_codec(rig.frames)
    lib.rp_codec_run(rig.codec, 0)
    rig.turn()
    assert outcomes(rig) == [(7, 0, "")]


def open_codec(rig: FastPath, clock: Clock, limit_ms: int = 1000) -> None:
    rig.codec_options = {"send_stall_ms": limit_ms, "clock_ns": clock.pointer}
    rig.codec = rig.open_codec()


def test_new_sends_are_refused_while_an_append_stalls(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    open_codec(rig, clock)
    worker = rig.workers["send"]
    worker.busy_since_ns = START
    for opaque, age_ms in ((1, 999), (2, 1000), (3, 1002), (4, 1003)):
        clock.now_ns = START + age_ms * MS
        rig.frame(send_v2(opaque=opaque), received_ns=clock.now_ns)
    rig.frame(pull(opaque=9), received_ns=clock.now_ns)  # others are served
    answers = {reply.opaque: reply for _, reply in rig.answers()}
    assert sorted(answers) == [3, 4]
    assert {reply.code for reply in answers.values()} == {2}
    assert answers[3].remark == "[REJECTREQUEST]system busy, start flow control for a while"
    clock.now_ns += 10 * MS
    worker.busy_since_ns = clock.now_ns  # it is over
    rig.frame(send_v2(opaque=5), received_ns=clock.now_ns)
    rig.turn()
    assert sorted(opaque for opaque, code, _ in outcomes(rig) if code == 0) == [1, 2, 5, 9]


def test_a_stalled_append_loses_oneway_sends_only_when_there_is_no_room(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    open_codec(rig, clock)
    rig.workers["send"].busy_since_ns = START
    clock.now_ns = START + 1500 * MS
    body, refused = bytes(50_000), rig.workers["selector"].counters[lib.RP_COUNT_BUSY]
    for _ in range(8):
        assert rig.frame(oneway(send_v2(body=body)), received_ns=clock.now_ns) == lib.RP_OK
    refused = rig.workers["selector"].counters[lib.RP_COUNT_BUSY] - refused
    rig.turn()
    stored = rig.workers["send"].counters[lib.RP_COUNT_MESSAGES_PUT]
    assert stored >= 4 and stored + refused == 8


def test_a_send_that_waits_for_room_behind_a_stall_lets_others_pass(tmp_path: Path, clock: Clock) -> None:
    """Else the pulls behind it, of all connections of the codec, would wait with it."""
    rig = open_rig(tmp_path, clock)
    open_codec(rig, clock)
    rig.workers["send"].busy_since_ns = START
    body = bytes(50_000)
    statuses = [rig.frame(send_v2(body=body, opaque=i), received_ns=START) for i in range(8)]
    assert statuses[-1] == lib.RP_FULL and rig.answers() == []
    clock.now_ns = START + 1001 * MS
    assert rig.frame(send_v2(body=body, opaque=77), received_ns=START) == lib.RP_OK
    assert outcomes(rig) == [(77, 2, "REJECTREQUEST")]


def test_no_limit_no_refusal(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    open_codec(rig, clock, limit_ms=0)
    rig.workers["send"].busy_since_ns = 1
    assert rig.frame(send_v2(), received_ns=START) == lib.RP_OK and rig.answers() == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [(16, "the disk is full"), (2, "cannot be brought to the disk"), (4, "consume queues"), (8, "or index"), (1, "")],
)
def test_why_the_store_takes_nothing(tmp_path: Path, clock: Clock, flags: int, words: str) -> None:
    """Fault: Sends were acknowledged though the log could not be synced or the queues could not be written."""
    rig = open_rig(tmp_path, clock)
    lib.rp_control_header(rig.block).running_flags = flags
    rig.frame(send_v2(), received_ns=START)
    rig.turn()
    [(_, reply)] = rig.answers()
    if words:
        assert reply.code == 14 and words in (reply.remark or "")
        lib.rp_control_header(rig.block).running_flags = 0
        rig.frame(send_v2(opaque=8), received_ns=START)
        rig.turn()
        assert outcomes(rig) == [(8, 0, "")]
    else:
        assert reply.code == 0


def test_the_largest_body_changes_at_run_time(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock)
    rig.tell_broker(6, 100)
    rig.turn()
    for opaque, size in ((1, 100), (2, 101)):
        rig.frame(send_v2(body=bytes(size), opaque=opaque), received_ns=START)
    rig.turn()
    assert outcomes(rig) == [(1, 0, "")]
    assert len(rig.for_manager()) == 1  # it says so in the reference's words
    rig.tell_broker(6, 0)  # of an older manager: as it was
    rig.tell_broker(6, 200)
    rig.complete(bytes(1000))
    rig.turn()
    rig.frame(send_v2(body=bytes(101), opaque=3), 2, received_ns=START)
    rig.turn()
    assert outcomes(rig) == [(3, 0, "")]


def test_a_worker_says_whose_request_it_is_at(tmp_path: Path, clock: Clock) -> None:
    """The clock is read in the middle of a batch: that is where this looks."""
    rig = open_rig(tmp_path, clock)
    seen: list[int] = []
    clock.then = lambda: seen.append(rig.workers["send"].serving)
    for connection in range(1, 25):
        rig.frame(send_v2(), connection, received_ns=START)
    rig.turn()
    assert [one for one in seen if one] == [7, 15, 23]  # of the request before, once in eight
    assert rig.workers["send"].serving == 0 == rig.workers["pull"].serving


@pytest.mark.parametrize("fast_failure", [0, 1])
def test_sends_wait_for_dispatch_that_does_not_keep_up(tmp_path: Path, clock: Clock, fast_failure: int) -> None:
    """It is one batch that may pass the bound, no more; what is dispatched makes room again.
    Fault: Messages were accepted faster than very many consume queues were written, without a bound."""
    rig = open_rig(tmp_path, clock, fast_failure=fast_failure, dispatch_lag_max=2_000)

    def turn() -> None:
        """Nothing is dispatched."""
        lib.rp_codec_wake(rig.codec)
        lib.rp_send_run(rig.send, TURN_NS)

    for _ in range(30):
        rig.frame(send_v2(body=b"x" * 100), received_ns=START)
        turn()
    found = outcomes(rig)
    stored = found.count((7, 0, ""))
    assert found == [(7, 0, "")] * stored + [(7, 2, "PCBUSY_CLEAN_QUEUE")] * (30 - stored)
    header = lib.rp_control_header(rig.block)
    assert 2_000 < header.published_phy_offset <= 2_000 + header.published_phy_offset // stored
    header.dispatched_phy_offset = header.published_phy_offset - 2_000
    rig.frame(send_v2(), received_ns=START)
    turn()
    assert outcomes(rig) == [(7, 0, "")]
