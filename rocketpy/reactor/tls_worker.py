"""A TLS worker: it has the sockets of clients that speak TLS, and passes plain bytes to and from their selectors.

    selector =client's socket, end of a socket pair=> handshakes (tls_handshakes.py, a thread) -> pump (this module)
    client =TLS=> pump -plain bytes, by the socket pair-> selector, and back

For a selector the connection is its end of the socket pair: frames, limits, order and back-pressure are those of every
other connection. When a selector or this worker dies, its connections end on both sides.
Bounds: of each connection and direction, one chunk that the other side does not take yet (CHUNK), and nothing more is
read; of all together WAITING_MAX, beyond which the connections are closed that have waited longest. When the selector
has closed a connection, its client has FAREWELL_S to read what is left; at a stop of the broker it then sees a reset,
as a plain one does (selector.c), because after a FIN a Java client waits out the timeout of a lost request. The pump
reads sockets itself, and ends a step with a part that has little data: a read of OpenSSL from a socket would not return
while records without data come (tls/session.py).
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

import attrs

from rocketpy.errors import TlsFailed, TransportError
from rocketpy.native.core import lib
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, HandshakeCounts, TlsSession
from rocketpy.tls.handshake_counts import FILES, LIMIT, RECORDS, TIMEOUT
from rocketpy.tls.session import HANDSHAKE_S, RECORD_SIZE
from rocketpy.transport.sockets import unacknowledged_bytes

from .ring import STOP_LEAVE, WorkerBlock
from .tls_handshakes import NO_LINGER, Handshake, HandshakeLoop
from .worker_spec import WorkerContext

CHUNK = 65_536  # bytes that are moved at once
PART = RECORD_SIZE + 256  # of it, a whole record
WAITING_MAX = 64 * 1024 * 1024
FAREWELL_S = 10.0  # a selector that closes has already waited its own time for the client
LOOKS_MAX = 256  # in a turn, at clients that have not acknowledged their last bytes
EVENTS_MAX = 32  # in a turn, after which the heart beats: a part of nothing but updates of keys takes up to 60 ms
STOP_TURN_S = 0.02  # clients acknowledge the last bytes without an event
STOP_S = 5.0
NOTHING = memoryview(b"")


@attrs.define(eq=False)
class Tunnel:
    """A connection whose handshake is complete."""

    client: socket.socket
    inner: socket.socket
    session: TlsSession
    peer: Peer | None = None
    to_client: memoryview = attrs.field(init=False, default=NOTHING)
    """Encrypted, and not taken by the client yet; until they are written nothing more is read from the selector."""
    to_selector: memoryview = attrs.field(init=False, default=NOTHING)
    client_events: int = attrs.field(init=False, default=select.EPOLLIN)
    inner_events: int = attrs.field(init=False, default=select.EPOLLIN)
    is_ended: bool = attrs.field(init=False, default=False)
    """The client has sent everything; the selector reads the rest of it and closes."""
    failure: OSError | TlsFailed | None = attrs.field(init=False, default=None)
    """Why nothing more comes from the client, if it did not end in order."""
    leaves_by_s: float | None = attrs.field(init=False, default=None)
    """The selector has closed: when the client must have read the rest."""
    is_leaving: bool = attrs.field(init=False, default=False)
    """The broker stops, and the client's kernel has to acknowledge the last bytes: nothing more is read."""

    counted_bytes: int = attrs.field(init=False, default=0)
    """The part of `waiting_bytes` that the pump has counted."""

    @property
    def waiting_bytes(self) -> int:
        return len(self.to_client) + len(self.to_selector) + self.session.outgoing_bytes

    def wanted(self) -> tuple[int, int]:
        """The events to wait for: of the client's socket, and of the inner one."""
        if self.is_leaving:
            return 0, 0
        client = 0 if self.to_selector or self.is_ended else select.EPOLLIN
        inner = 0 if self.to_client else select.EPOLLIN
        return client | (select.EPOLLOUT if self.to_client else 0), inner | (select.EPOLLOUT if self.to_selector else 0)


@attrs.define(eq=False)
class Pump:
    """Moves the bytes of all tunnels; `turn` by `turn`, in one thread.

    Args:
        doorbell: the eventfd by which other processes and the handshakes wake this one.
        is_stopping: does the broker stop? Connections that selectors close then end with a reset, once their clients
            have all answers.
    """

    doorbell: int
    waiting_max: int
    is_stopping: Callable[[], bool] = lambda: False
    closed_waiting: int = attrs.field(init=False, default=0)
    """Connections closed at `waiting_max`, or because their clients did not read the rest in FAREWELL_S."""
    counts: HandshakeCounts = attrs.field(init=False, factory=HandshakeCounts)
    """Connections refused after their handshakes."""
    _tunnels: dict[int, Tunnel] = attrs.field(init=False, factory=dict)  # by each of their two descriptors
    _blocked: dict[int, Tunnel] = attrs.field(init=False, factory=dict)  # by the client's, longest first
    _leaving: dict[int, Tunnel] = attrs.field(init=False, factory=dict)  # by the client's, in order of `leaves_by_s`
    _unacknowledged: collections.deque[Tunnel] = attrs.field(init=False, factory=collections.deque)  # at a stop
    _waiting_bytes: int = attrs.field(init=False, default=0)
    _poller: select.epoll = attrs.field(init=False, factory=select.epoll)
    _chunk: memoryview = attrs.field(init=False, factory=lambda: memoryview(bytearray(CHUNK)))
    _plaintext: memoryview = attrs.field(init=False, factory=lambda: memoryview(bytearray(CHUNK + RECORD_SIZE)))

    def __attrs_post_init__(self) -> None:
        self._poller.register(self.doorbell, select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._tunnels) // 2

    def add(self, tunnel: Tunnel, early: bytes = b"") -> None:
        """Serve a connection from now on. `early`: what came with the last handshake message of the client."""
        for end in (tunnel.client, tunnel.inner):
            self._tunnels[end.fileno()] = tunnel
        try:
            for end in (tunnel.client, tunnel.inner):
                self._poller.register(end, select.EPOLLIN)
            self._pass_on(tunnel, memoryview(early))
        except OSError:
            self._close(tunnel)

    def turn(self, timeout_s: float) -> bool:
        """Wait, and move what is ready. Returns True if the doorbell rang."""
        rang = False
        for fd, events in self._poller.poll(timeout_s, EVENTS_MAX):
            if fd == self.doorbell:
                rang = True
            elif (tunnel := self._tunnels.get(fd)) is not None:  # not closed in this turn
                self._serve(tunnel, fd == tunnel.client.fileno(), events)
        while self._waiting_bytes > self.waiting_max:
            self._close_unread(next(iter(self._blocked.values())))
        while self._leaving and is_late(first := next(iter(self._leaving.values()))):
            self._close_unread(first)
        for _ in range(min(len(self._unacknowledged), LOOKS_MAX)):
            tunnel = self._unacknowledged.popleft()
            if has_read_all(tunnel):
                self._close(tunnel)
            elif tunnel.client.fileno() in self._tunnels:
                self._unacknowledged.append(tunnel)
        return rang

    def close(self) -> None:
        """Close every connection; the client sees a reset."""
        for tunnel in list(self._tunnels.values()):
            self._close(tunnel)

    # -- one connection

    def _serve(self, tunnel: Tunnel, is_client: bool, events: int) -> None:
        if tunnel.is_leaving:
            if is_client and events & (select.EPOLLERR | select.EPOLLHUP):
                self._close(tunnel)
            return
        try:
            if is_client:
                if tunnel.to_client and events & select.EPOLLOUT:
                    self._to_client(tunnel, [tunnel.to_client])
                if not tunnel.to_selector:
                    self._from_client(tunnel)
            else:
                if tunnel.to_selector and events & select.EPOLLOUT:
                    self._to_selector(tunnel, tunnel.to_selector)
                if not tunnel.to_client:
                    self._from_selector(tunnel)
                elif events & select.EPOLLHUP:
                    self._begin_farewell(tunnel)
        except (OSError, TlsFailed):  # one of the two is gone, or a record of the client was bad
            self._close(tunnel)

    def _from_client(self, tunnel: Tunnel) -> None:
        if tunnel.is_ended:
            return
        size, session = 0, tunnel.session
        try:
            while size <= CHUNK - PART:
                got = tunnel.client.recv_into(self._chunk, PART)
                new = session.receive_into(self._chunk[:got], self._plaintext[size:])
                size += new
                tunnel.is_ended = not got
                if got < PART or new < got // 2:
                    break
        except BlockingIOError:
            pass
        except OSError as exc:  # a reset
            tunnel.is_ended, tunnel.failure = True, exc
        if session.failure is not None:  # the selector still gets what came before
            tunnel.is_ended, tunnel.failure = True, session.failure
            if session.failure.reason == RECORDS:
                self.counts.refuse(tunnel.peer, RECORDS, str(session.failure))
        self._pass_on(tunnel, self._plaintext[:size])

    def _pass_on(self, tunnel: Tunnel, plaintext: memoryview) -> None:
        """Pass plaintext to the selector, and answers of TLS itself to the client."""
        tunnel.is_ended |= tunnel.session.is_ended
        if plaintext:
            self._to_selector(tunnel, plaintext)
        elif tunnel.is_ended:
            self._end_input(tunnel)
        if tunnel.session.has_outgoing:
            if tunnel.to_client:  # they follow it
                self._keep(tunnel)
            else:
                self._to_client(tunnel, [tunnel.session.take_outgoing()])

    def _to_selector(self, tunnel: Tunnel, data: memoryview) -> None:
        sent = 0
        with contextlib.suppress(BlockingIOError):
            sent = tunnel.inner.send(data)
        self._keep(tunnel, to_selector=data[sent:])
        if tunnel.is_ended and not tunnel.to_selector:
            self._end_input(tunnel)

    def _end_input(self, tunnel: Tunnel) -> None:
        tunnel.inner.shutdown(socket.SHUT_WR)
        self._watch(tunnel)

    def _from_selector(self, tunnel: Tunnel) -> None:
        try:
            size = tunnel.inner.recv_into(self._chunk)
        except BlockingIOError:
            return
        if size:
            self._to_client(tunnel, tunnel.session.encrypt(self._chunk[:size]))
        elif not self.is_stopping():
            self._close(tunnel, is_orderly=True)
        else:
            tunnel.is_leaving = True
            self._begin_farewell(tunnel)
            self._watch(tunnel)
            self._unacknowledged.append(tunnel)

    def _to_client(self, tunnel: Tunnel, pieces: Sequence[bytes | memoryview]) -> None:
        """Send what is encrypted, and keep the rest."""
        sent = 0
        with contextlib.suppress(BlockingIOError):
            sent = tunnel.client.sendmsg(pieces)
        if sent == sum(map(len, pieces)):
            self._keep(tunnel, to_client=memoryview(tunnel.session.take_outgoing()))
        else:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._keep(tunnel, to_client=memoryview(data)[sent:])

    def _begin_farewell(self, tunnel: Tunnel) -> None:
        """The selector has closed, while bytes are on their way to the client."""
        if tunnel.leaves_by_s is None:
            tunnel.leaves_by_s = time.monotonic() + FAREWELL_S
            self._leaving[tunnel.client.fileno()] = tunnel

    # -- what waits, and for which events

    def _keep(
        self, tunnel: Tunnel, *, to_client: memoryview | None = None, to_selector: memoryview | None = None
    ) -> None:
        if to_client is not None:
            tunnel.to_client = to_client
        if to_selector is not None:
            tunnel.to_selector = self._own(to_selector, tunnel.to_selector)
        before, after = tunnel.counted_bytes, tunnel.waiting_bytes
        if before or after:
            tunnel.counted_bytes = after
            self._waiting_bytes += after - before
            fd = tunnel.client.fileno()
            if not after:
                self._blocked.pop(fd, None)
            else:
                self._blocked.setdefault(fd, tunnel)
            self._watch(tunnel)

    def _own(self, data: memoryview, known: memoryview) -> memoryview:
        """Return `data`, or a copy if it lies in a buffer of this pump, and not in bytes that were kept before."""
        return NOTHING if not data else data if known else memoryview(bytes(data))

    def _watch(self, tunnel: Tunnel) -> None:
        client, inner = tunnel.wanted()
        if client != tunnel.client_events:
            self._poller.modify(tunnel.client, client or select.EPOLLONESHOT)  # HUP and ERR are reported unasked: once
        if inner != tunnel.inner_events:
            self._poller.modify(tunnel.inner, inner or select.EPOLLONESHOT)
        tunnel.client_events, tunnel.inner_events = client, inner

    def _close_unread(self, tunnel: Tunnel) -> None:
        self.closed_waiting += 1
        self._close(tunnel)

    def _close(self, tunnel: Tunnel, *, is_orderly: bool = False) -> None:
        """Close a tunnel: with TLS's farewell and FIN if the selector has ended the connection; else with a reset."""
        client = tunnel.client.fileno()
        if self._tunnels.pop(client, None) is None:
            return
        del self._tunnels[tunnel.inner.fileno()]
        self._blocked.pop(client, None)
        self._leaving.pop(client, None)
        self._waiting_bytes -= tunnel.counted_bytes
        for end in (tunnel.client, tunnel.inner):
            with contextlib.suppress(OSError):  # the kernel had no memory to register it
                self._poller.unregister(end)
        if is_orderly:
            with contextlib.suppress(OSError):
                tunnel.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                tunnel.client.send(tunnel.session.take_farewell())
        tunnel.client.close()
        tunnel.inner.close()


def is_late(tunnel: Tunnel) -> bool:
    return tunnel.leaves_by_s is not None and tunnel.leaves_by_s <= time.monotonic()


def has_read_all(tunnel: Tunnel) -> bool:
    """Its selector has gone, and the client's kernel has acknowledged every byte: a reset overtakes none."""
    return tunnel.client.fileno() >= 0 and unacknowledged_bytes(tunnel.client) == 0


@attrs.define(eq=False)
class TlsMain:
    """`main` of a TLS worker.

    Args:
        arrivals: where selectors pass connections (csrc/workers/selector/selector_connection.c), and where the
            replicator does.
        certificates: read before the fork; the worker follows their files.
    """

    block: WorkerBlock
    arrivals: Sequence[socket.socket]
    certificates: Certificates
    handshake_s: float = HANDSHAKE_S
    waiting_max: int = WAITING_MAX
    _ready: collections.deque[Handshake] = attrs.field(init=False, factory=collections.deque)

    def __call__(self, context: WorkerContext) -> None:
        handshakes = HandshakeLoop(self.arrivals, self.certificates, self._complete, self.handshake_s)
        pump = Pump(self.block.doorbell, self.waiting_max, lambda: self.block.stop != 0)
        thread = threading.Thread(target=handshakes.run, name="handshakes", daemon=True)
        thread.start()
        context.report_ready()
        before = Figures()
        leave_s = None
        while leave_s is None or (len(pump) and time.monotonic() < leave_s):
            if pump.turn(STOP_TURN_S if pump.is_stopping() else context.beat_s):
                self.block.awake()
            while self._ready:
                done = self._ready.popleft()
                pump.add(Tunnel(done.client, done.arrival.inner, done.session, done.peer), done.early)
            self.block.beat(time.monotonic_ns())
            shown = Figures.of(handshakes, pump)
            shown.show(self.block, before)
            before = shown
            if self.block.stop == STOP_LEAVE and leave_s is None:  # the rest of the selectors' answers is on its way
                handshakes.stop()
                leave_s = time.monotonic() + STOP_S
            if leave_s is None and not thread.is_alive():
                raise TransportError("the thread of TLS handshakes has ended")
        pump.close()
        thread.join()
        while self._ready:  # handshakes that were complete after the last turn
            self._ready.popleft().close()

    def _complete(self, handshake: Handshake) -> None:
        self._ready.append(handshake)
        os.eventfd_write(self.block.doorbell, 1)


@attrs.frozen(kw_only=True)
class Figures:
    """Counts of a TLS worker since its process began."""

    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    refused: int = 0
    closed_waiting: int = 0
    reloads: int = 0
    reload_failures: int = 0
    connections: int = 0
    not_after_s: float = 0.0

    @classmethod
    def of(cls, handshakes: HandshakeLoop, pump: Pump) -> Figures:
        files, counts = handshakes.certificates, handshakes.counts
        refused = dict(counts.refused)  # the other thread counts on
        timed_out, limited = refused.pop(TIMEOUT, 0), refused.pop(LIMIT, 0) + refused.pop(FILES, 0)
        return cls(
            completed=counts.completed,
            failed=sum(refused.values()) + pump.counts.refused.total(),
            timed_out=timed_out,
            refused=limited,
            closed_waiting=pump.closed_waiting,
            reloads=files.reloads,
            reload_failures=files.reload_failures,
            connections=len(pump),
            not_after_s=files.not_after_s or 0.0,
        )

    def show(self, block: WorkerBlock, before: Figures) -> None:
        """Add what is new since `before` to the counters of the worker, and set its gauges."""
        block.add(lib.RP_COUNT_TLS_COMPLETED, self.completed - before.completed)
        block.add(lib.RP_COUNT_TLS_FAILED, self.failed - before.failed)
        block.add(lib.RP_COUNT_TLS_TIMED_OUT, self.timed_out - before.timed_out)
        block.add(lib.RP_COUNT_TLS_REFUSED, self.refused - before.refused)
        block.add(lib.RP_COUNT_TLS_UNREAD_CLOSED, self.closed_waiting - before.closed_waiting)
        block.add(lib.RP_COUNT_TLS_RELOADS, self.reloads - before.reloads)
        block.add(lib.RP_COUNT_TLS_RELOADS_FAILED, self.reload_failures - before.reload_failures)
        block.show(lib.RP_COUNT_TLS_CONNECTIONS, self.connections)
        block.show(lib.RP_COUNT_TLS_NOT_AFTER_S, int(self.not_after_s))
