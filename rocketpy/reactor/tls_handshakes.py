"""TLS handshakes of a TLS worker, in a thread of their own: a signature takes up to a millisecond, and connections that
are open must not wait for it.

A client that stops in the middle is bounded in time (`handshake_s`), in number (TLS_WORKER_HANDSHAKES_MAX, then the
oldest of the address, or IPv6 network, that has the most is closed), and in bytes (HANDSHAKE_BYTES_MAX). Connections
come by two ways, from selectors and from the replicator; of each as many are taken in a turn, and room is made at the
expense of the way that has more, so that clients cannot keep slaves out.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import attrs

from rocketpy.errors import TlsFailed
from rocketpy.networks import network_of
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, HandshakeCounts, TlsSession, failure_of
from rocketpy.tls.certificates import LOOK_S
from rocketpy.tls.handshake_counts import FILES, LIMIT, TIMEOUT
from rocketpy.tls.session import HANDSHAKE_S

from .worker_messages import decode_host

TLS_WORKER_HANDSHAKES_MAX = 512  # at once; each takes about 50 KB
ARRIVALS_PER_TURN = 16
RECEIVE_SIZE = 65_536
UNREAD_MAX = 2**20  # bytes of a refused client
ARRIVAL_MAX = 64  # bytes of an rp_host, and room
PASSED = 2  # descriptors of an arrival: the client's socket, the end of the socket pair that leads to its selector
NO_LINGER = struct.pack("ii", 0, 0)


@attrs.frozen(eq=False)
class Arrival:
    """A connection that begins with a handshake, as a selector passes it on."""

    client: socket.socket
    inner: socket.socket
    """The socket pair's end: plain bytes to and from the selector."""
    peer: Peer

    def close(self) -> None:
        self.client.close()
        self.inner.close()


def take_arrival(source: socket.socket) -> Arrival | None:
    """Receive one connection from a non-blocking socket.

    Returns: None if its descriptors are lost because this process has too many, or cannot be used.
    Raises:
        BlockingIOError: none waits.
        ConnectionError: no selector is left.
        OSError: it cannot be received now.
    """
    data, fds, _, _ = socket.recv_fds(source, ARRIVAL_MAX, PASSED)
    if not data:
        raise BrokenPipeError
    owned = _sockets_of(fds) if len(fds) == PASSED else None
    if owned is None:
        for fd in fds:
            os.close(fd)
        return None
    client, inner = owned
    client.setblocking(False)
    return Arrival(client, inner, decode_host(data))


def _sockets_of(fds: Sequence[int]) -> list[socket.socket] | None:
    """Return the sockets, which own their descriptors then; None if one of these is none."""
    found: list[socket.socket] = []
    try:
        for fd in fds:
            found.append(socket.socket(fileno=fd))
    except OSError:
        for one in found:
            one.detach()
        return None
    return found


@attrs.define(eq=False)
class Handshake:
    """A handshake that has begun."""

    arrival: Arrival
    session: TlsSession
    due_s: float
    way: int
    """The descriptor by which it came."""
    early: bytes = attrs.field(init=False, default=b"")
    """Bytes of the client behind its last handshake message."""
    unsent: bytes = attrs.field(init=False, default=b"")
    events: int = attrs.field(init=False, default=select.EPOLLIN)

    @property
    def client(self) -> socket.socket:
        return self.arrival.client

    @property
    def peer(self) -> Peer:
        return self.arrival.peer

    @property
    def source(self) -> tuple[int, str]:
        return self.way, network_of(self.peer.host)

    @property
    def is_complete(self) -> bool:
        return self.session.is_established and not self.unsent

    def go_on(self) -> None:
        """Do what can be done at once. Raises: TlsFailed. OSError: the socket is broken."""
        if not self.unsent:
            with contextlib.suppress(BlockingIOError):
                if data := self.client.recv(RECEIVE_SIZE):
                    self.early = self.session.receive(data)
                else:
                    self.session.receive_end()
            self.unsent = self.session.take_outgoing()
        if self.unsent:
            with contextlib.suppress(BlockingIOError):
                self.unsent = self.unsent[self.client.send(self.unsent) :]

    def close(self, *, is_orderly: bool = False) -> None:
        """End the connection: with FIN if the client is to read what was written (an alert), else with a reset."""
        if is_orderly:
            with contextlib.suppress(OSError):
                self.client.send(self.session.take_outgoing())
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                for _ in range(UNREAD_MAX // RECEIVE_SIZE):  # bytes that nobody has read would reset it all the same
                    if not self.client.recv(RECEIVE_SIZE):
                        break
        self.arrival.close()


@attrs.define(eq=False)
class HandshakeLoop:
    """The loop of the thread: it takes arrivals, and hands on connections whose handshake is complete.

    Args:
        arrivals: where connections are passed: by selectors, by the replicator.
        certificates: those of new connections; this thread follows their files.
        completed: takes each connection that is ready; called in this thread.
        handshake_s: time for one, from its arrival on.
        now_s: seconds that only grow.
    """

    arrivals: Sequence[socket.socket]
    certificates: Certificates
    completed: Callable[[Handshake], None]
    handshake_s: float = HANDSHAKE_S
    now_s: Callable[[], float] = time.monotonic
    counts: HandshakeCounts = attrs.field(init=False, factory=HandshakeCounts)
    _by_fd: dict[int, Handshake] = attrs.field(init=False, factory=dict)  # in the order of their deadlines
    _of_source: collections.Counter[tuple[int, str]] = attrs.field(init=False, factory=collections.Counter)
    _of_way: collections.Counter[int] = attrs.field(init=False, factory=collections.Counter)
    _poller: select.epoll = attrs.field(init=False, factory=select.epoll)
    _look_s: float = attrs.field(init=False, default=0.0)
    _is_stopped: threading.Event = attrs.field(init=False, factory=threading.Event)
    _doorbell: int = attrs.field(init=False, factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))

    def __attrs_post_init__(self) -> None:
        for way in self.arrivals:
            self._poller.register(way, select.EPOLLIN)
        self._poller.register(self._doorbell, select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._by_fd)

    def run(self) -> None:
        """Serve until `stop`; the body of the thread."""
        while not self._is_stopped.is_set():
            self.turn(LOOK_S)
        for handshake in list(self._by_fd.values()):
            self._end(handshake)
        self._poller.close()
        os.close(self._doorbell)

    def stop(self) -> None:
        """End `run`; unfinished handshakes are closed. Called once, by another thread."""
        self._is_stopped.set()
        os.eventfd_write(self._doorbell, 1)

    def turn(self, timeout_s: float) -> None:
        """Wait for clients and arrivals, continue the handshakes that are ready, and close late ones."""
        for first in self._by_fd.values():
            timeout_s = max(0.0, min(timeout_s, first.due_s - self.now_s()))
            break
        ways = {way.fileno(): way for way in self.arrivals}
        for fd, _ in self._poller.poll(timeout_s):
            if (way := ways.get(fd)) is not None:
                for arrival in self._arrived(way):
                    self._begin(arrival, fd)
            elif (handshake := self._by_fd.get(fd)) is not None:  # not closed in this turn
                self._go_on(handshake)
        self._close_late()
        if self.now_s() >= self._look_s:
            self._look_s = self.now_s() + LOOK_S
            if self.certificates.has_changed():
                self.certificates.reload()

    def _arrived(self, way: socket.socket) -> Iterator[Arrival]:
        try:
            for _ in range(ARRIVALS_PER_TURN):
                arrival = take_arrival(way)
                if arrival is not None:
                    yield arrival
                    continue
                self.counts.refuse("a client", FILES, "beyond the limit of open files (ulimit -Hn)")
        except BlockingIOError:
            return
        except ConnectionError:
            self._poller.unregister(way)
        except OSError as exc:
            self.counts.refuse("a client", FILES, str(exc))

    def _begin(self, arrival: Arrival, way: int) -> None:
        if len(self._by_fd) >= TLS_WORKER_HANDSHAKES_MAX:
            self._make_room()
        try:
            session = TlsSession.server(self.certificates.context)
            handshake = Handshake(arrival, session, self.now_s() + self.handshake_s, way)
            self._poller.register(arrival.client, handshake.events)
        except OSError as exc:  # the kernel has no memory for it
            self.counts.refuse(arrival.peer, FILES, str(exc))
            arrival.close()
            return
        self._by_fd[arrival.client.fileno()] = handshake
        self._of_source[handshake.source] += 1
        self._of_way[way] += 1
        self._go_on(handshake)

    def _go_on(self, handshake: Handshake) -> None:
        try:
            handshake.go_on()
        except (OSError, TlsFailed) as exc:
            failure = exc if isinstance(exc, TlsFailed) else failure_of(exc)
            self.counts.refuse(handshake.peer, failure.reason, str(failure))
            self._end(handshake, is_orderly=True)
            return
        if handshake.is_complete:
            self._leave(handshake)
            self.counts.completed += 1
            self.completed(handshake)
        else:
            self._wait_for(handshake, select.EPOLLOUT if handshake.unsent else select.EPOLLIN)

    def _wait_for(self, handshake: Handshake, events: int) -> None:
        if handshake.events != events:
            handshake.events = events
            self._poller.modify(handshake.client, events)

    def _close_late(self) -> None:
        now_s = self.now_s()
        while self._by_fd and (first := next(iter(self._by_fd.values()))).due_s <= now_s:
            self.counts.refuse(first.peer, TIMEOUT, f"no TLS handshake within {self.handshake_s:g} s")
            self._end(first)

    def _make_room(self) -> None:
        """Close the oldest handshake of the source that has the most, of the way that has more."""
        ((way, _),) = self._of_way.most_common(1)
        source = max((one for one in self._of_source if one[0] == way), key=self._of_source.__getitem__)
        oldest = next(handshake for handshake in self._by_fd.values() if handshake.source == source)
        count, host = self._of_source[source], source[1]
        text = f"{TLS_WORKER_HANDSHAKES_MAX} handshakes are unfinished, {count} of them of {host}"
        self.counts.refuse(oldest.peer, LIMIT, text)
        self._end(oldest)

    def _leave(self, handshake: Handshake) -> None:
        del self._by_fd[handshake.client.fileno()]
        self._of_way[handshake.way] -= 1
        self._of_source[handshake.source] -= 1
        if not self._of_source[handshake.source]:
            del self._of_source[handshake.source]
        self._poller.unregister(handshake.client)

    def _end(self, handshake: Handshake, *, is_orderly: bool = False) -> None:
        self._leave(handshake)
        handshake.close(is_orderly=is_orderly)
