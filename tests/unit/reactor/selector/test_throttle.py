"""Limits of peer addresses in a selector: who is over its rate waits unread, others notice nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.networks import parse_networks
from rocketpy.reactor.selector import network_array
from tests.support.selector_clients import greet, reset
from tests.support.selector_rig import SelectorRig, body_of, ffi, frame, lib

RigMaker = Callable[..., SelectorRig]
SELECTOR = 3  # the rig's
RATE = 1000
OTHER = "127.0.0.2"


def limits_of(**config: int) -> Any:
    return lib.rp_limits_create([config], 5, 7)


def host(*address: int) -> Any:
    return ffi.new("rp_host *", {"family": 4, "address": bytes(address).ljust(16, b"\0")})


def row_of(limits: Any) -> int:
    """The row of 127.0.0.1, as another selector has it."""
    row = ffi.new("uint32_t *")
    assert lib.rp_limits_join(limits, 0, host(127, 0, 0, 1), now_ns(), row) == lib.RP_OK
    return int(row[0])


def now_ns() -> int:
    return time.monotonic_ns()


def overdraw(limits: Any) -> None:
    """For longer than any test takes."""
    lib.rp_limits_spend(limits, row_of(limits), 3600 * RATE, 0, now_ns())


def words_of(limits: Any) -> Any:
    """The row of 127.0.0.1: its key, when each bucket will be full, refusals (row, csrc/ipc/limits.c)."""
    words = ffi.cast("uint64_t *", limits)
    image = bytes(ffi.buffer(words, 16 * 8 * lib.RP_LIMITS_ADDRESSES))
    return words + image.index((1 << 32 | 0x7F000001).to_bytes(8, "little")) // 8


def refill(limits: Any) -> None:
    """As if the time had passed for which the address has to wait."""
    words_of(limits)[1] = words_of(limits)[2] = 0


def test_a_connection_over_its_rate_waits_and_goes_on_in_order_while_another_address_is_served(
    make_rig: RigMaker,
) -> None:
    limits = limits_of(address_requests=RATE)
    rig = make_rig(limits=limits)
    flooding, other = rig.connect(), rig.connect(source=OTHER)
    overdraw(limits)
    for number in range(3):
        flooding.sendall(frame(b"%d" % number))
        rig.turn()
    assert rig.read() is None
    for _ in range(3):
        other.sendall(frame(b"other"))
        assert rig.next().peer[0] == OTHER
    assert rig.counter(lib.RP_COUNT_THROTTLED) >= 1
    refill(limits)
    assert [body_of(rig.next().frame) for _ in range(3)] == [b"0", b"1", b"2"]


PAUSE_S = 1.0  # at least; csrc/workers/selector/throttle.c


def read_in_pause(rig: SelectorRig) -> list[bytes]:
    """What a selector reads of a connection that it was told to pause, before the pause may end by itself."""
    while True:
        client, connection = greet(rig)
        paused_s = time.monotonic()
        rig.reply(connection, b"", lib.RP_REPLY_PAUSE)
        rig.turn()
        client.sendall(frame(b"later"))
        for _ in range(3):
            rig.turn()
        found = [body_of(record.frame) for record in rig.records()]
        if time.monotonic() - paused_s < PAUSE_S:
            return found
        client.close()  # this machine was busy: the pause may have ended


def test_a_paused_connection_is_read_again_when_it_is_resumed_and_others_are_read_meanwhile(rig: SelectorRig) -> None:
    assert read_in_pause(rig) == []
    client, connection = greet(rig)
    other, _ = greet(rig)
    for _ in range(3):  # neither order depends on the other
        rig.reply(connection, b"", lib.RP_REPLY_PAUSE)
        rig.reply(connection, b"", lib.RP_REPLY_PAUSE)
        rig.turn()
        other.sendall(frame(b"other"))
        client.sendall(frame(b"later"))
        rig.reply(connection, b"", lib.RP_REPLY_RESUME)
        rig.reply(connection, b"", lib.RP_REPLY_RESUME)
        assert sorted(body_of(rig.next().frame) for _ in range(2)) == [b"later", b"other"]
    assert rig.counter(lib.RP_COUNT_THROTTLED) == 0, "that counts waits for limits"


def test_a_pause_that_nobody_ends_ends_by_itself(rig: SelectorRig) -> None:
    """The send worker that would have ended it has died."""
    client, connection = greet(rig)
    leaver, of_leaver = greet(rig)
    for paused in (connection, of_leaver):
        rig.reply(paused, b"", lib.RP_REPLY_PAUSE)
    rig.turn()
    reset(leaver)
    client.sendall(frame(b"later"))
    assert body_of(rig.turn_until(lambda: next((one for one in rig.records() if one.frame), None)).frame) == b"later"
    rig.turn_until(lambda: rig.open_count == 1)


def test_what_a_selector_reads_is_taken_out_of_the_bucket(make_rig: RigMaker) -> None:
    limits = limits_of(address_requests=1, address_bytes=1_000_000)
    rig = make_rig(limits=limits)
    client = rig.connect()
    client.sendall(frame(b"x") * 600)
    assert len([rig.next() for _ in range(600)]) == 600
    row = row_of(limits)
    assert lib.rp_limits_wait(limits, row, now_ns()) > 0
    limits = limits_of(address_bytes=100)
    rig = make_rig(limits=limits)
    client = rig.connect()
    client.sendall((400_000).to_bytes(4, "big") + bytes(200_000))  # a frame that is not complete
    row = row_of(limits)
    rig.turn_until(lambda: lib.rp_limits_wait(limits, row, now_ns()) > 0)


def test_frames_before_a_bad_one_are_taken_too(make_rig: RigMaker) -> None:
    limits = limits_of(address_requests=1)
    rig = make_rig(limits=limits)
    client = rig.connect()
    client.sendall(frame(b"x") * 600 + b"bad")
    assert rig.is_closed(client)
    assert lib.rp_limits_wait(limits, row_of(limits), now_ns()) > 0


def test_waiting_costs_no_turns_and_connections_that_end_meanwhile_leave_the_counts(make_rig: RigMaker) -> None:
    limits = limits_of(address_requests=RATE, address_connections=21)
    rig = make_rig(limits=limits)
    overdraw(limits)  # which has a connection
    clients = [rig.connect() for _ in range(20)]
    for client in clients:
        client.sendall(frame(b"first"))
    rig.turn_until(lambda: rig.counter(lib.RP_COUNT_THROTTLED) >= 20)
    loops = rig.counter(lib.RP_COUNT_LOOPS)
    rig.turn(200_000_000)
    assert rig.counter(lib.RP_COUNT_LOOPS) - loops < 10
    assert rig.records() == []
    for client in clients[5:15]:
        reset(client)
    refill(limits)
    rig.turn_until(lambda: rig.counter(lib.RP_COUNT_CONNECTIONS_CLOSED) == 10)
    for client in (*clients[:5], *clients[15:]):
        client.close()
    rig.turn_until(lambda: rig.open_count == 0)
    assert all(row_of(limits) for _ in range(20))
    row = ffi.new("uint32_t *")
    assert lib.rp_limits_join(limits, 0, host(127, 0, 0, 1), now_ns(), row) == lib.RP_FULL


def test_connections_of_one_address_are_bounded_and_their_ends_count(make_rig: RigMaker) -> None:
    limits = limits_of(address_connections=2)
    rig = make_rig(limits=limits)
    first, _second, third = rig.connect(), rig.connect(), rig.connect()
    assert rig.is_closed(third)
    assert rig.counter(lib.RP_COUNT_ADDRESS_REFUSED) == 1
    assert rig.counter(lib.RP_COUNT_CONNECTIONS_OPENED) == 2
    other = rig.connect(source=OTHER)
    first.close()
    rig.turn_until(lambda: rig.open_count == 2)
    fourth = rig.connect()
    for client in (other, fourth):
        client.sendall(frame(b"room"))
        assert body_of(rig.next().frame) == b"room"


def test_a_new_process_of_a_selector_begins_without_connections(make_rig: RigMaker) -> None:
    limits = limits_of(address_connections=1)
    make_rig(limits=limits, epoch=1).connect()  # and it is killed: nobody counts the end
    rig = make_rig(limits=limits, epoch=2)
    client = rig.connect()
    client.sendall(frame(b"in"))
    assert body_of(rig.next().frame) == b"in"
    assert rig.is_closed(rig.connect())


def test_behind_a_proxy_the_client_counts_and_not_the_proxy(make_rig: RigMaker) -> None:
    limits = limits_of(address_connections=1)
    rig = make_rig(limits=limits, proxies=network_array(parse_networks("127.0.0.1")), proxy_count=1)
    waiting = [rig.connect() for _ in range(3)]  # their headers have not come
    waiting[0].sendall(b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\n" + frame(b"a"))
    assert rig.next().peer[0] == "192.0.2.7"
    waiting[1].sendall(b"PROXY TCP4 192.0.2.8 10.0.0.1 51234 10911\r\n" + frame(b"b"))
    assert rig.next().peer[0] == "192.0.2.8"
    waiting[2].sendall(b"PROXY TCP4 192.0.2.7 10.0.0.1 51235 10911\r\n" + frame(b"c"))
    assert rig.is_closed(waiting[2])
    assert rig.counter(lib.RP_COUNT_ADDRESS_CLOSED) == 1
    waiting[0].close()
    rig.turn_until(lambda: rig.open_count == 1)
    again = rig.connect()
    again.sendall(b"PROXY TCP4 192.0.2.7 10.0.0.1 51236 10911\r\n" + frame(b"d"))
    rig.turn_until(lambda: any(body_of(record.frame) == b"d" for record in rig.records() if record.frame))


def test_a_blocked_address_is_disconnected_when_it_sends_and_is_refused(make_rig: RigMaker) -> None:
    limits = limits_of(failures=2)
    rig = make_rig(limits=limits)
    client, other = rig.connect(), rig.connect(source=OTHER)
    for _ in range(2):
        lib.rp_limits_failed(limits, host(127, 0, 0, 1), now_ns())
    client.sendall(frame(b"again"))
    assert rig.is_closed(client)
    assert rig.is_closed(rig.connect())
    assert rig.counter(lib.RP_COUNT_ADDRESS_CLOSED) == rig.counter(lib.RP_COUNT_ADDRESS_REFUSED) == 1
    other.sendall(frame(b"fine"))
    assert body_of(rig.next().frame) == b"fine"


def test_a_blocked_address_is_let_in_when_the_minute_is_over(make_rig: RigMaker) -> None:
    limits = limits_of(failures=1)
    rig = make_rig(limits=limits)
    lib.rp_limits_failed(limits, host(127, 0, 0, 1), now_ns())
    assert rig.is_closed(rig.connect())
    words_of(limits)[3] -= lib.RP_LIMITS_FAILURES_S << 32  # the second of the first refusal

    def is_let_in() -> bool:
        rig.connect().sendall(frame(b"in"))
        rig.turn()
        return rig.read() is not None

    rig.turn_until(is_let_in)
