"""A manager that does not read for a while: what is for it may wait or be refused, within bounds and in order; all
others are served. The manager is the test, and reads when it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.native.core import ffi, lib
from rocketpy.reactor import worker_messages
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import MessageToPut
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import pull, send_v2
from tests.unit.native.test_admission import MS, START, Clock, oneway, open_rig

FLOODER, ORDINARY, OTHER = 3, 4, 5
SHARE = 16 << 20  # half of the room: as much as is left free
BODY = 3000


@pytest.fixture
def rig(tmp_path: Path, clock: Clock) -> Iterator[FastPath]:
    rig = open_rig(tmp_path, clock)
    yield rig
    rig.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


SLOW: dict[str, dict[str, str]] = {
    "unknown topic": {"topic": "new"},
    "delayed": {"properties": "DELAY\x013\x02"},
    "retry": {"topic": "%RETRY%G"},
    "half message": {"properties": "TRAN_MSG\x01true\x02"},
}


def numbered(number: int) -> bytes:
    return number.to_bytes(4, "big").ljust(BODY, b"x")


def flood(rig: FastPath, frames: Callable[[int], RemotingCommand], count: int) -> list[int]:
    """FLOODER sends `count` requests, ORDINARY a send beside every 50th; each of those is served in its turn. Returns
    the numbers of FLOODER's that were refused."""
    refused = []
    for number in range(count):
        command = frames(number)
        command.opaque = number
        assert rig.frame(command, FLOODER, received_ns=START) == lib.RP_OK
        if number % 50 == 49:
            assert rig.frame(send_v2(opaque=10**6 + number), ORDINARY, received_ns=START) == lib.RP_OK
            rig.turn()
            answers = rig.answers()
            assert [(r.opaque, r.code) for c, r in answers if c == ORDINARY] == [(10**6 + number, 0)]
            assert all(r.code == 2 and (r.remark or "").startswith("[OVERLOAD]") for c, r in answers if c == FLOODER)
            refused += [r.opaque for c, r in answers if c == FLOODER]
    return refused


def read_all(rig: FastPath) -> list[tuple[int, bytes]]:
    """What the manager gets once it reads again."""
    found: list[tuple[int, bytes]] = []
    for _ in range(400):
        found += rig.for_manager()
        rig.turn()
    return found


@pytest.mark.parametrize("kind", SLOW)
def test_a_flood_of_slow_sends_waits_or_is_refused_and_others_are_served(rig: FastPath, kind: str) -> None:
    """Fault: One client's delayed sends filled the ring to the manager, and all other requests waited."""
    count = 8000  # 24 MB: the ring, what a connection alone may have, and more
    refused = flood(rig, lambda number: send_v2(body=numbered(number), **SLOW[kind]), count)
    assert len(refused) > 500
    rig.frame(send_v2(topic="new", body=numbered(count)), OTHER, received_ns=START)
    rig.turn()
    assert rig.answers() == [], "it waits: the flooder has not taken its place"
    sends = [data for got, data in read_all(rig) if got == lib.RP_MSG_SEND]
    numbers = [int.from_bytes(data[-BODY:][:4], "big") for data in sends]
    assert numbers == [*sorted(set(range(count)) - set(refused)), count]
    assert 0.9 * SHARE < (len(numbers) - 1) * BODY < SHARE + (1 << 18), "what waited filled the share, and no more"
    tokens = [worker_messages.token_of(data) for data in sends]
    assert tokens == sorted(set(tokens))


def test_what_follows_a_waiting_send_does_not_overtake_it(rig: FastPath) -> None:
    flood(rig, lambda number: send_v2(topic="new", body=numbered(number)), 300)
    for connection in (FLOODER, ORDINARY):
        rig.frame(send_v2(body=numbered(300)), connection, received_ns=START)
    rig.turn()
    assert [connection for connection, _ in rig.answers()] == [ORDINARY]
    records = [data for kind, data in read_all(rig) if kind == lib.RP_MSG_SEND]
    assert [int.from_bytes(data[-BODY:][:4], "big") for data in records] == list(range(301))
    rig.add_topic("new")
    for data in records:
        rig.hand_back(lib.RP_MSG_SEND, data, lib.RP_REQUEST_RESOLVED)
        rig.turn()
    rig.complete(records[-2])
    rig.frame(send_v2(body=numbered(301)), FLOODER, received_ns=START)
    rig.turn()
    assert len([kind for kind, _ in rig.for_manager() if kind == lib.RP_MSG_SEND]) == 1  # one is not completed yet
    rig.complete(records[-1])
    rig.answers()


def test_what_waits_too_long_is_refused_and_its_connection_goes_on(rig: FastPath, clock: Clock) -> None:
    flood(rig, lambda number: send_v2(topic="new", body=numbered(number)), 300)
    clock.now_ns += 201 * MS
    rig.frame(send_v2(opaque=1000), ORDINARY, received_ns=clock.now_ns)
    rig.turn()
    answers = rig.answers()
    assert [reply.opaque for connection, reply in answers if connection == ORDINARY] == [1000]
    refused = [reply.opaque for connection, reply in answers if connection == FLOODER and reply.code == 2]
    sends = [data for kind, data in read_all(rig) if kind == lib.RP_MSG_SEND]
    in_ring = [int.from_bytes(data[-BODY:][:4], "big") for data in sends]
    assert len(refused) > 100 and in_ring + refused == list(range(300))
    rig.complete(sends[-1])
    rig.frame(send_v2(opaque=1001), FLOODER, received_ns=clock.now_ns)
    rig.turn()
    assert [(reply.opaque, reply.code) for _, reply in rig.answers()] == [(1001, 0)]


def test_oneway_sends_wait_as_long_as_it_takes(rig: FastPath, clock: Clock) -> None:
    """Fault: Oneway sends were refused, unseen by their senders, after 200 ms or a stalled append."""
    flood(rig, lambda number: oneway(send_v2(topic="new", body=numbered(number))), 300)
    clock.now_ns += 60_000 * MS
    rig.turn()
    records = [data for kind, data in read_all(rig) if kind == lib.RP_MSG_SEND]
    assert [int.from_bytes(data[-BODY:][:4], "big") for data in records] == list(range(300))


def test_a_worker_that_leaves_answers_what_waits(rig: FastPath) -> None:
    flood(rig, lambda number: send_v2(topic="new", body=numbered(number)), 300)
    rig.workers["send"].stop = lib.RP_STOP_LEAVE
    assert lib.rp_send_run(rig.send, MS) == lib.RP_STOPPED
    assert {(connection, reply.code) for connection, reply in rig.answers()} == {(FLOODER, 2)}


def test_a_large_slow_send_is_taken_while_another_crosses(rig: FastPath) -> None:
    body = bytes(3 << 20)
    for connection in (FLOODER, OTHER):
        for _ in range(30):  # the ring to send is small as well
            if rig.frame(send_v2(topic="new", body=body), connection, received_ns=START) == lib.RP_OK:
                break
            rig.turn()
        else:
            raise AssertionError("not taken")
    for _ in range(60):
        rig.turn()
    rig.frame(send_v2(opaque=1), ORDINARY, received_ns=START)
    rig.turn()
    assert [(connection, reply.code) for connection, reply in rig.answers()] == [(ORDINARY, 0)]
    assert [len(data) > len(body) for kind, data in read_all(rig) if kind == lib.RP_MSG_SEND] == [True, True]


def command(number: int) -> RemotingCommand:
    return RemotingCommand.request(34, body=numbered(number))


def test_a_flood_of_commands_waits_or_is_refused_and_others_are_served(rig: FastPath) -> None:
    count = 8000
    refused = flood(rig, command, count)
    assert len(refused) > 500
    rig.frame(command(count), OTHER)
    rig.closed(FLOODER)
    rig.closed(OTHER)
    assert rig.answers() == []
    found = []
    for _ in range(400):
        found += rig.for_manager()
        lib.rp_codec_wake(rig.codec)
    numbers = [int.from_bytes(data[-BODY:][:4], "big") for kind, data in found if kind == lib.RP_MSG_HEARTBEAT]
    assert numbers == [*sorted(set(range(count)) - set(refused)), count]
    closed = [worker_messages.connection_of(data) for kind, data in found if kind == lib.RP_MSG_CLOSED]
    assert closed == [FLOODER, OTHER]
    assert [kind for kind, _ in found][-2:] == [lib.RP_MSG_CLOSED] * 2, "behind their commands"


def test_connections_that_come_and_go_do_not_stop_the_codec(rig: FastPath) -> None:
    flood(rig, command, 500)
    for connection in range(1000, 6000):
        rig.closed(connection)
        if connection % 100 == 0:
            rig.turn()  # so that the pull worker hears of it
    rig.frame(send_v2(), ORDINARY, received_ns=START)
    rig.turn()
    assert [(connection, reply.code) for connection, reply in rig.answers()] == [(ORDINARY, 0)]


def test_a_flood_of_slow_pulls_leaves_room_for_those_of_others(rig: FastPath) -> None:
    answered = set()
    for number in range(8000):
        rig.frame(pull(topic="unknown", group="g" * BODY, opaque=number), FLOODER, received_ns=START)
        if number % 50 == 49:
            rig.turn()
            answered |= {(c, r.code) for c, r in rig.answers()}
    assert answered == {(FLOODER, 2)}
    rig.frame(pull(topic="unknown", group="g" * BODY, opaque=10**6), OTHER, received_ns=START)
    rig.turn()
    assert rig.answers() == []
    pulls = [data for kind, data in read_all(rig) if kind == lib.RP_MSG_PULL]
    assert worker_messages.connection_of(pulls[-1]) == OTHER


def test_the_results_of_the_managers_own_puts_hold_up_nobodys_answer(tmp_path: Path, clock: Clock) -> None:
    rig = open_rig(tmp_path, clock, sync_flush=1)
    for number in range(300):  # its ring is full
        rig.frame(send_v2(topic="new", body=numbered(number)), FLOODER, received_ns=START)
        if number % 50 == 49:
            rig.turn()
    message = MessageToPut("T", 0, b"", b"ours", born_timestamp_ms=1, born_host=("127.0.0.1", 1))
    rig.tell_send(lib.RP_MSG_SEND, worker_messages.encode_put(message, 77, START))
    rig.turn()
    rig.frame(send_v2(opaque=1), ORDINARY, received_ns=START)
    rig.turn()
    header: Any = lib.rp_control_header(rig.block)
    header.durable_phy_offset = header.published_phy_offset
    rig.turn()
    assert [(c, r.opaque, r.code) for c, r in rig.answers() if c != FLOODER] == [(ORDINARY, 1, 0)]
    results = [data for kind, data in read_all(rig) if kind == lib.RP_MSG_PUT_RESULT]
    assert [ffi.from_buffer("rp_msg_put_result *", data).token for data in results] == [77]
    rig.close()


def test_a_flood_of_pulls_lets_the_requests_of_others_pass(rig: FastPath) -> None:
    """The pull worker is busy: what one connection asks of it keeps nobody from sending.
    Fault: One connection with more pulls than are served blocked all other sends and pulls for seconds."""
    count, refused = 5000, []
    for number in range(count):
        assert rig.frame(pull(opaque=number), FLOODER, received_ns=START) == lib.RP_OK
        if number % 100 == 99:
            assert rig.frame(send_v2(opaque=10**6 + number), ORDINARY, received_ns=START) == lib.RP_OK
            lib.rp_send_run(rig.send, 0)
            answers = rig.answers()
            assert [(r.opaque, r.code) for c, r in answers if c == ORDINARY] == [(10**6 + number, 0)]
            refused += [r.opaque for c, r in answers if c == FLOODER and r.code == 2]
    rig.frame(pull(opaque=10**6, offset=-1), OTHER, received_ns=START)
    assert rig.answers() == [], "it waits: the flooder has not taken its place"
    served = []
    while not served or served[-1][0] == FLOODER:
        rig.turn()
        served += [(connection, reply.opaque) for connection, reply in rig.answers()]
    assert served[-1] == (OTHER, 10**6)
    assert [opaque for _, opaque in served[:-1]] == sorted(set(range(count)) - set(refused))


def test_the_end_of_a_connection_comes_behind_its_waiting_pulls(rig: FastPath) -> None:
    for number in range(2500):
        rig.frame(pull(queue=1, flags=6, opaque=number), number % 100, received_ns=START)
    for connection in range(100):
        rig.closed(connection)
    for _ in range(100):
        rig.turn()
        rig.answers()
    assert rig.workers["pull"].counters[lib.RP_COUNT_PULLS] > 1000
    assert rig.workers["pull"].counters[lib.RP_COUNT_SUSPENDED] == 0
