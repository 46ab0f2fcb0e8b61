"""csrc/workers/selector/selector_output.c: answers go out whole, in order; a peer that reads nothing blocks none."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.selector_clients import ending, greet
from tests.support.selector_rig import SelectorRig, body_of, frame, lib

MIB = 1024 * 1024
RigMaker = Callable[..., SelectorRig]


# -- output


def test_replies_go_to_their_connections_in_order(rig: SelectorRig) -> None:
    (one, to_one), (two, to_two) = greet(rig), greet(rig)
    for n in range(500):
        assert rig.reply(to_one, b"1:%d;" % n)
        assert rig.reply(to_two, b"2:%d;" % n)
    rig.turn()
    assert rig.counter(lib.RP_COUNT_FRAMES_OUT) == 1000
    for client, name in ((one, b"1"), (two, b"2")):
        wanted = b"".join(b"%s:%d;" % (name, n) for n in range(500))
        assert rig.receive(client, len(wanted)) == wanted


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 300_000, 16 * MIB])
def test_replies_of_any_size(rig: SelectorRig, size: int) -> None:
    client, connection = greet(rig)
    content = random.Random(size).randbytes(size)
    assert rig.reply(connection, content)
    assert rig.receive(client, size) == content
    assert rig.counter(lib.RP_COUNT_BYTES_OUT) == size


def test_a_reply_to_a_connection_that_has_gone_is_dropped(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    client.close()
    assert rig.next().kind == lib.RP_MSG_CLOSED
    newcomer, number = greet(rig)
    assert number != connection and number >> 32 == connection >> 32  # the same slot
    rig.reply(connection, b"for nobody")
    rig.reply(connection & ~(0xFF << 56), b"of another selector")
    rig.reply(number, b"for the newcomer")
    assert rig.receive(newcomer, 16) == b"for the newcomer"


@pytest.mark.parametrize("record", [b"", b"\0" * 15])
def test_a_malformed_reply_harms_nobody(rig: SelectorRig, record: bytes) -> None:
    client, connection = greet(rig)
    rig.write(lib.RP_MSG_REPLY, record)
    rig.write(lib.RP_MSG_PULL_REPLY, record)
    rig.reply(connection, b"ok")
    assert rig.receive(client, 2) == b"ok"


def test_close_after_closes_behind_the_reply(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    rig.reply(connection, b"last words", lib.RP_REPLY_CLOSE_AFTER)
    assert rig.receive(client, 10) == b"last words"
    assert rig.is_closed(client)
    assert rig.next().kind == lib.RP_MSG_CLOSED


def test_an_empty_reply_with_close_after_closes_a_bad_connection(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    rig.reply(connection, b"", lib.RP_REPLY_CLOSE_AFTER)
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_FRAMES_BAD) == 1


def test_a_peer_that_never_reads_is_not_read_either_and_blocks_nobody(rig: SelectorRig) -> None:
    deaf, to_deaf = greet(rig, receive_buffer=4096)
    other, to_other = greet(rig)
    chunk = bytes(100_000)
    for _ in range(30):
        while not rig.reply(to_deaf, chunk):
            rig.turn()
    rig.turn()
    deaf.sendall(frame(b"not read"))
    other.sendall(frame(b"read"))
    assert body_of(rig.next().frame) == b"read"
    rig.reply(to_other, b"answered")
    assert rig.receive(other, 8) == b"answered"
    assert rig.read() is None
    assert lib.rp_ring_depth(rig.reply_ring) == 0  # the slow one holds no ring
    assert len(rig.receive(deaf, 30 * len(chunk))) == 30 * len(chunk)  # it reads at last
    assert body_of(rig.next().frame) == b"not read"


def test_a_peer_that_fetches_nothing_of_too_much_is_closed(rig: SelectorRig) -> None:
    deaf, to_deaf = greet(rig, receive_buffer=4096)
    chunk = bytes(8 * MIB)
    sent = 0
    while rig.open_count == 1:
        if rig.reply(to_deaf, chunk):
            sent += len(chunk)
        rig.turn()
        lib.rp_ring_pump(rig.replies)
        assert sent < 128 * MIB
    assert rig.next().kind == lib.RP_MSG_CLOSED
    deaf.close()


def test_pull_replies_carry_slices_of_the_log(make_rig: RigMaker, tmp_path: Path) -> None:
    """Holds: store, mapped files of fixed size."""
    log_bytes = random.Random(11).randbytes(4 * MIB)
    (tmp_path / "00000000000000000000").write_bytes(log_bytes)
    view = lib.rp_log_view_open(str(tmp_path).encode(), len(log_bytes), 4)
    rig = make_rig(log=view)
    (slow, to_slow), (fast, to_fast) = greet(rig, receive_buffer=4096), greet(rig)
    slices = [(100, 50), (3 * MIB, MIB), (0, 1), (8, 0)]
    wanted = b"head" + b"".join(log_bytes[at : at + size] for at, size in slices)
    for connection in (to_slow, to_fast):
        rig.reply(connection, b"before")
        rig.pull_reply(connection, b"head", slices)
        rig.pull_reply(connection, b"head", slices[:1])
        rig.reply(connection, b"after")
    everything = b"before" + wanted + wanted[:54] + b"after"
    assert rig.receive(fast, len(everything)) == everything
    assert rig.receive(slow, len(everything)) == everything
    rig.pull_reply(to_fast, b"head", [(100, 50), (8 * MIB, 10)])  # that file has been deleted
    assert rig.is_closed(fast)
    rig.close()
    lib.rp_log_view_close(view)


# -- how a connection ends


def test_an_orderly_close_is_a_fin_and_a_stop_a_reset_behind_the_answers(rig: SelectorRig) -> None:
    (leaver, to_leaver), (stayer, to_stayer) = greet(rig), greet(rig)
    rig.reply(to_leaver, b"bye", lib.RP_REPLY_CLOSE_AFTER)
    rig.reply(to_stayer, b"more")
    rig.turn_until(lambda: rig.open_count == 1)
    assert ending(leaver) == "FIN"
    rig.worker.stop = lib.RP_STOP_LEAVE
    assert rig.turn(10_000_000_000) == lib.RP_STOPPED
    assert rig.receive(stayer, 4) == b"more"
    rig.close(keep_clients=True)
    assert ending(stayer) == "reset"


def test_a_peer_that_is_not_sent_everything_gets_a_reset(rig: SelectorRig) -> None:
    """Fault: Oneway sends were lost if their client closed its connection with unread answers."""
    deaf, to_deaf = greet(rig, receive_buffer=4096)
    for _ in range(4):
        rig.reply(to_deaf, bytes(200_000))
        rig.turn()
    rig.reply(to_deaf, b"", lib.RP_REPLY_CLOSE_AFTER)
    rig.turn()
    rig.close(keep_clients=True)
    assert ending(deaf) == "reset"


def test_a_stop_waits_until_the_peer_has_what_was_written(rig: SelectorRig) -> None:
    """The socket has taken it all, but the peer has sent more, which nobody reads: to close it now is a reset.
    Fault: A stop reset connections with unread input, and the reset overtook answers on their way."""
    client, connection = greet(rig, receive_buffer=4096)
    rig.worker.stop = lib.RP_STOP_INTAKE
    rig.turn()
    client.sendall(frame(b"read by nobody"))
    content = random.Random(3).randbytes(60_000)
    rig.reply(connection, content)
    rig.worker.stop = lib.RP_STOP_LEAVE
    got = rig.receive(client, 100)
    while (status := rig.turn(0)) == lib.RP_OK and len(got) < len(content):
        with contextlib.suppress(BlockingIOError):
            got += client.recv(2000)
    while status == lib.RP_OK:
        status = rig.turn(10_000_000)
    rig.close(keep_clients=True)
    client.settimeout(10)
    with client, contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            got += piece
    assert got == content
