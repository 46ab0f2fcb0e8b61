"""Connections to the HA port that do not replicate yet: in the handshake, or of 4.9 and before their first report.

    accepted -> row of the slave table -> first 8 bytes: a position of 4.9, or the magic -> CHALLENGE -> HELLO
                                          csrc/replication/master.c takes the connection over

A connection whose first byte begins a TLS handshake goes to a TLS worker, and the plain end of a socket pair stays in
its place.

These connections take no place of a slave. When there are RP_HANDSHAKES_MAX and another one comes, one is closed: the
oldest of the host that has most. So one host cannot keep the others out, however many connections it opens. All IPv6
addresses of a /64 count as one host, because one owner has them all. No handshake may take longer than
haHousekeepingInterval.

Nothing here waits: the C loop polls the descriptor of `Newcomers` beside its slaves.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import Counter
from collections.abc import Callable, Sequence

import attrs

from rocketpy.message.host import format_host
from rocketpy.native.core import lib
from rocketpy.networks import Network, is_in, parse_address
from rocketpy.reactor.handoff import pass_to_tls
from rocketpy.remoting.abc import Peer

from .frames import FRAME, JSON_MAX, MAGIC, TLS_HANDSHAKE
from .slave_table import SlaveTable

REPORT_BYTES = int(lib.RP_HA_SIZE_REPORT)
NETWORK_BYTES = 8  # of an IPv6 address
NS_PER_S = 1_000_000_000


@attrs.frozen(eq=False)
class HaPort:
    """The port at which slaves connect, and the networks that they may come from (haAddresses).

    Args:
        listener: non-blocking.
        tls_workers: where connections with TLS are passed; empty: TLS is not served.
        is_tls_required: plain connections are closed.
    """

    listener: socket.socket
    networks: Sequence[Network]
    tls_workers: Sequence[socket.socket] = ()
    is_tls_required: bool = False

    def admits(self, host: str) -> bool:
        return is_in(parse_address(host), self.networks)


@attrs.frozen
class Ended:
    """Why a connection is to be closed, RP_SLAVE_*."""

    reason: int


@attrs.define(eq=False)
class Newcomer:
    """A connection that does not replicate yet."""

    connection: socket.socket  # non-blocking; owned until it is released
    peer: Peer
    row: int  # in the slave table
    host: bytes  # what counts as one host
    begun_s: float
    challenge: str = attrs.field(init=False, default="")
    """The nonce of CHALLENGE; "": its first bytes have not come whole."""
    received: bytearray = attrs.field(init=False, factory=bytearray)
    is_new: bool = attrs.field(init=False, default=True)
    """Nothing has come: it may begin with TLS."""

    @property
    def address(self) -> str:
        """host:port."""
        return format_host((self.peer.host, self.peer.port))

    @property
    def lacks(self) -> int:
        """Bytes up to the next place where what has come must be looked at; 0: it has come whole."""
        if not self.challenge:
            wanted = REPORT_BYTES
        elif len(self.received) < FRAME.size:
            wanted = FRAME.size
        else:
            wanted = FRAME.size - 1 + int(FRAME.unpack_from(self.received)[0])
        return wanted - len(self.received)

    @property
    def is_plausible(self) -> bool:
        """True if the received bytes can become a HELLO of at most JSON_MAX bytes."""
        if not self.challenge or len(self.received) < FRAME.size:
            return True
        size, kind = FRAME.unpack_from(self.received)
        return bool(2 <= size <= 1 + JSON_MAX and kind == lib.RP_HA_TYPE_HELLO)


class Newcomers:
    """The connections that do not replicate yet, and the listener, in one descriptor that can be polled.

    Args:
        silence_max_s: how long one may take.
        now_s: a monotonic clock.
    """

    def __init__(self, table: SlaveTable, port: HaPort, silence_max_s: float, now_s: Callable[[], float]) -> None:
        self._table, self._silence_max_s, self._now_s = table, silence_max_s, now_s
        self._port, self._is_listening = port, False
        self._newcomers: dict[int, Newcomer] = {}  # by descriptor, the oldest first
        self._epoll = select.epoll()

    def fileno(self) -> int:
        """Readable while there is something to accept or to read."""
        return self._epoll.fileno()

    def close(self) -> None:
        for newcomer in self._newcomers.values():
            newcomer.connection.close()
        self._newcomers.clear()
        self._epoll.close()

    def listen(self, is_listening: bool) -> None:
        """Look at the listener, or leave it alone: what waits there would keep the loop busy."""
        if is_listening and not self._is_listening:
            self._epoll.register(self._port.listener, select.EPOLLIN)
        elif self._is_listening and not is_listening:
            self._epoll.unregister(self._port.listener)
        self._is_listening = is_listening

    def begin(self, connection: socket.socket, peer: tuple[str, int]) -> Newcomer | None:
        """Take over a connection. Returns None if the table of slaves is full; it stays the caller's then."""
        row = self._table.take(format_host(peer))
        if row is None:
            return None
        connection.setblocking(False)
        newcomer = Newcomer(connection, Peer(*peer), row, _host_of(peer[0]), self._now_s())
        self._watch(newcomer)
        return newcomer

    @property
    def surplus(self) -> Newcomer | None:
        """The connection that has to go before another one may begin; None: none has to."""
        if len(self._newcomers) < lib.RP_HANDSHAKES_MAX:
            return None
        of_host = Counter(newcomer.host for newcomer in self._newcomers.values())
        return max(self._newcomers.values(), key=lambda newcomer: (of_host[newcomer.host], -newcomer.begun_s))

    def ready(self) -> list[Newcomer]:
        """Return the connections that can be read now."""
        return [self._newcomers[fd] for fd, _ in self._epoll.poll(0) if fd in self._newcomers]

    def overdue(self) -> list[Newcomer]:
        """Return the connections whose handshake has taken too long."""
        begun_s = self._now_s() - self._silence_max_s
        return [newcomer for newcomer in self._newcomers.values() if newcomer.begun_s <= begun_s]

    def left_ns(self, most_ns: int) -> int:
        """Return the time until one will have taken too long, at most `most_ns`."""
        if not self._newcomers:
            return most_ns
        left_s = min(newcomer.begun_s for newcomer in self._newcomers.values()) + self._silence_max_s - self._now_s()
        return max(0, min(most_ns, int(left_s * NS_PER_S) + 1))

    def read(self, newcomer: Newcomer) -> bytes | Ended | None:
        """Read its first bytes, or the JSON of its HELLO. Returns None until they have come whole."""
        if newcomer.is_new and (ended := self._tell_apart(newcomer)) is not None:
            return ended
        while lacks := newcomer.lacks:
            try:
                data = newcomer.connection.recv(lacks)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError:
                return Ended(lib.RP_SLAVE_LEFT)
            if not data:
                return Ended(lib.RP_SLAVE_LEFT)
            newcomer.received += data
            if not newcomer.is_plausible:
                return Ended(lib.RP_SLAVE_IMPLAUSIBLE)
        said = bytes(newcomer.received)
        newcomer.received.clear()
        if (newcomer.challenge or is_magic(said)) and _has_more(newcomer.connection):
            return Ended(lib.RP_SLAVE_IMPLAUSIBLE)  # it must wait for an answer
        return said[FRAME.size :] if newcomer.challenge else said

    def _tell_apart(self, newcomer: Newcomer) -> Ended | None:
        """Look at the first byte: a connection that begins a TLS handshake is passed to a TLS worker."""
        try:
            first = newcomer.connection.recv(1, socket.MSG_PEEK)
        except OSError:  # nothing has come, or `read` learns the same
            return None
        newcomer.is_new = False
        if first == TLS_HANDSHAKE:
            return None if self._pass_on(newcomer) else Ended(lib.RP_SLAVE_NO_TLS)
        return Ended(lib.RP_SLAVE_PLAIN) if first and self._port.is_tls_required else None

    def _pass_on(self, newcomer: Newcomer) -> bool:
        workers = self._port.tls_workers
        if not workers:
            return False
        plain = pass_to_tls(workers[newcomer.row % len(workers)], newcomer.connection, newcomer.peer)
        if plain is None:
            return False
        self._forget(newcomer)
        newcomer.connection.close()
        newcomer.connection = plain
        self._watch(newcomer)
        return True

    def send(self, newcomer: Newcomer, frame: bytes) -> bool:
        """Send a whole frame. Nothing else is on its way to the other side, so the socket takes all of it, or the
        connection is useless."""
        try:
            return newcomer.connection.send(frame) == len(frame)
        except OSError:
            return False

    def release(self, newcomer: Newcomer) -> int:
        """Give the descriptor to the C loop, with the row."""
        self._forget(newcomer)
        return newcomer.connection.detach()

    def end(self, newcomer: Newcomer, reason: int) -> None:
        """Close the connection; its row is free then."""
        self._forget(newcomer)
        newcomer.connection.close()
        self._table.free(newcomer.row)
        self._table.count_closed(reason)

    def _watch(self, newcomer: Newcomer) -> None:
        self._epoll.register(newcomer.connection, select.EPOLLIN)
        self._newcomers[newcomer.connection.fileno()] = newcomer

    def _forget(self, newcomer: Newcomer) -> None:
        self._epoll.unregister(newcomer.connection)
        del self._newcomers[newcomer.connection.fileno()]


def is_magic(first: bytes) -> bool:
    """Return True if these first bytes begin a handshake; their last one is the slave's lowest version."""
    return first[:-1] == MAGIC[:-1]


def _host_of(host: str) -> bytes:
    address = parse_address(host)
    return address.packed if address.version == 4 else address.packed[:NETWORK_BYTES]


def _has_more(connection: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return bool(connection.recv(1, socket.MSG_PEEK))
    return False
