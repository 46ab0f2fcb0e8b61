"""Hostile bytes on both ends of a stream with automatic failover: a lying follower, a lying master, strangers."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.native.core import lib
from rocketpy.replication.frames import MAGIC
from rocketpy.replication.handshake_messages import Extent, Hello, Membership
from rocketpy.replication.handshake_rules import read_challenge
from tests.support.member_pair import IMAGE, B, MemberFollower, MemberMaster, epochs
from tests.support.own_frames import ACK, DATA, WELCOME, ack, data_frame, fenced, frame, heartbeat, split
from tests.support.slave_rig import FILE_SIZE
from tests.support.waiting import wait_until
from tests.unit.replication.test_member_frames import HISTORY, Member

LOG, END = IMAGE.data, len(IMAGE.data)
EPOCHS = epochs((1, 0), (7, IMAGE.records[5]))
SECRET = b"0123456789abcdef"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MemberMaster]:
    master = MemberMaster(tmp_path / "a", EPOCHS, LOG, secret=SECRET)
    yield master
    master.close()


class Played:
    """A follower that knows the secret, on a raw socket."""

    def __init__(self, master: MemberMaster) -> None:
        self.socket = socket.create_connection(("127.0.0.1", master.listener.getsockname()[1]), 60)
        self._rest = b""

    def close(self) -> None:
        self.socket.close()

    def next(self) -> tuple[int, bytes]:
        while not (found := split(self._rest))[0]:
            data = self.socket.recv(65_536)
            assert data, "the master has closed the connection"
            self._rest += data
        kind, payload = found[0][0]
        self._rest = self._rest[5 + len(payload) :]
        return kind, payload

    def hello(self, **changes: Any) -> bytes:
        """The frame HELLO of an empty member b, once the master has sent its challenge."""
        self.socket.sendall(MAGIC)
        membership = Membership(*B)
        hello = Hello(
            2, "DefaultCluster", "broker-a", 2, FILE_SIZE, Extent(0, 0), None, "1" * 32, membership=membership
        )
        return attrs.evolve(hello, **changes).encode(SECRET, read_challenge(*self.next())[0])

    def join(self) -> None:
        self.socket.sendall(self.hello())
        assert self.next()[0] == WELCOME

    def is_closed(self) -> bool:
        """Wait until the master has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(1 << 20):
                pass
        return True


def sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def wait_until_alone(master: MemberMaster) -> None:
    wait_until(lambda: not master.table.slaves(0), "the master to close all connections")


def check_still_serves(master: MemberMaster, tmp_path: Path) -> None:
    b = MemberFollower(tmp_path / "b", secret=SECRET)
    try:
        b.follow(master)
        b.turn_until(lambda: master.confirmed == END, "a good follower to have all")
    finally:
        b.close()


def test_a_handshake_that_is_cut_at_any_byte(master: MemberMaster, tmp_path: Path) -> None:
    first = Played(master)
    size = len(first.hello())
    first.close()
    wait_until_alone(master)
    before = sockets()
    for end in [*range(9), *range(9, size, 7), size - 1]:
        with contextlib.closing(Played(master)) as cut:
            cut.socket.sendall(cut.hello()[:end])
    wait_until_alone(master)
    wait_until(lambda: sockets() == before, "the sockets to be closed")
    assert not master.confirmed and master.block.newest_epoch_seen == -1
    check_still_serves(master, tmp_path)


LIES = [
    *(ack(END, 7)[:size] for size in range(len(ack(END, 7)))),
    *(fenced(9)[:size] for size in range(len(fenced(9)))),
    ack(END + 1, 7),
    ack(-1, 7),
    ack(0, 6),
    ack(0, 8),
    ack(2**62, 7),
    fenced(7),
    fenced(-1),
    frame(ACK, bytes(11)),
    frame(ACK, bytes(13)),
    frame(DATA, bytes(24)),
    frame(9, bytes(5)),
    bytes(17),
    b"\xff" * 17,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.hex())
def test_an_acknowledgement_that_is_none_confirms_nothing(master: MemberMaster, lie: bytes) -> None:
    with contextlib.closing(Played(master)) as played:
        played.join()
        played.socket.sendall(lie)
        played.socket.shutdown(socket.SHUT_WR)
        assert played.is_closed()
    wait_until_alone(master)
    assert not master.confirmed and master.block.newest_epoch_seen == -1
    assert not master.block.pointer.proposed_phy_offset


def test_what_was_not_sent_is_not_acknowledged(master: MemberMaster) -> None:
    """However far the log goes: what counts is what the kernel has taken for this connection."""
    with contextlib.closing(Played(master)) as played:
        played.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        played.join()
        kind, payload = played.next()
        assert kind == DATA
        played.socket.sendall(ack(len(payload) - 24, 7))
        wait_until(lambda: "b" in master.table.acknowledged(), "the true one to count")
        acked = master.table.acknowledged()["b"].position
        assert acked == len(payload) - 24
        played.socket.sendall(ack(acked - 1, 7))
        assert played.is_closed()


def test_a_thousand_connections_and_some_that_never_end_their_sentence(master: MemberMaster, tmp_path: Path) -> None:
    before, opened = sockets(), int(master.table.opened)
    lazy: list[socket.socket] = []
    for number in range(1000):
        stranger = socket.create_connection(("127.0.0.1", master.listener.getsockname()[1]), 60)
        lazy.append(stranger)
        with contextlib.suppress(ConnectionError):  # it may have had to go for a later one
            stranger.sendall((b"", MAGIC[:7], MAGIC, MAGIC + b"\0\1", b"\xff" * 9)[number % 5])
        if len(lazy) > 100:
            lazy.pop(0).close()
        if number == 500:
            check_still_serves(master, tmp_path)
    wait_until(lambda: master.table.opened + sum(master.table.closed().values()) >= opened + 1000, "all to be seen")
    assert len(master.table.slaves(0)) <= lib.RP_HANDSHAKES_MAX
    for stranger in lazy:
        stranger.close()
    wait_until_alone(master)
    wait_until(lambda: sockets() <= before, "the sockets to be closed")


# --- a lying master ---------------------------------------------------------------------------------------------------


STREAM = [
    heartbeat(0, confirmed=0, epoch=6),
    data_frame(0, b"a" * 60, epoch=1),
    data_frame(60, b"b" * 40, epoch=1),
    heartbeat(900, confirmed=70, epoch=6),
    data_frame(100, b"c" * 200, epoch=3),
    data_frame(300, b"d" * 50, epoch=6),
    fenced(9),
]
SENT = b"a" * 60 + b"b" * 40 + b"c" * 200 + b"d" * 50


def whole(size: int) -> int:
    """How many bytes of the log are in whole frames, of the first `size` bytes of STREAM."""
    frames = split(b"".join(STREAM)[:size])[0]
    return sum(len(payload) - 24 for kind, payload in frames if kind == DATA)


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Callable[[], Member]]:
    made: list[Member] = []

    def make() -> Member:
        root = tmp_path / str(len(made))
        root.mkdir()
        made.append(Member(root))
        return made[-1]

    yield make
    for one in made:
        one.close()


def cuts() -> list[int]:
    """Places in STREAM: inside and at the ends of each field, and where the log's bytes begin and end."""
    found, at = [], 0
    for one in STREAM:
        found += [at + i for i in range(len(one)) if i < 6 or i in (13, 21, 28, 29, 30, len(one) - 1)]
        at += len(one)
    return found


def test_a_stream_that_is_cut_anywhere(follower: Callable[[], Member]) -> None:
    stream = b"".join(STREAM)
    for end in cuts():
        rig = follower()
        rig.take(stream[:end])
        rig.master.shutdown(socket.SHUT_WR)
        assert rig.stream.turn(0) == lib.RP_STREAM_ENDED
        got = b"".join(data for _, _, data in rig.chunks())
        assert got == SENT[: whole(end)] and rig.member.newest_epoch_seen in (6, 9)
        assert not [entry for entry in rig.file.read().entries if entry not in HISTORY.entries]


@pytest.mark.parametrize("seed", range(60))
def test_a_byte_that_changes_on_the_way_is_never_in_the_log(follower: Callable[[], Member], seed: int) -> None:
    chooser, rig = random.Random(seed), follower()
    stream = bytearray(b"".join(STREAM))
    for _ in range(chooser.choice((1, 1, 3))):
        stream[chooser.randrange(len(stream))] ^= 1 << chooser.randrange(8)
    rig.publish(30)
    with contextlib.suppress(BrokenPipeError):
        rig.take(bytes(stream))
    got = b"".join(data for _, _, data in rig.chunks())
    assert SENT.startswith(got) and rig.confirmed <= 30
