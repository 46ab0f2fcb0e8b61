"""The acceptor worker: accepts connections and passes each to the selector with the fewest connections.

When all selectors have as many as they accept, the next connection goes to a spare one, which the supervisor starts for
it (WorkerSpec.starts_on). When there is none left, a selector gets it all the same: it refuses, counts and logs it.

The supervisor opens the listening sockets before it forks and keeps them open: a connection that arrives while the
acceptor is being restarted waits in the kernel's backlog. When file descriptors have run out, the acceptor uses a spare
one to accept a connection and close it at once. Otherwise the waiting connection would keep the loop busy.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import socket
import time
from collections.abc import Callable, Sequence

import attrs

from rocketpy.errors import ConfigError, TransportError
from rocketpy.logs import LogLimit
from rocketpy.native.core import lib

from .handoff import Accepted, hand_over, take_over
from .ring import WorkerBlock
from .worker_spec import WorkerContext

logger = logging.getLogger(__name__)

BACKLOG = 1024
LOG_INTERVAL_S = 10.0  # between two lines about refused connections
ACCEPTS_PER_TURN = 64
PENDING_MAX = 256  # accepted but not yet handed over; beyond it nothing is accepted
RETRY_S = 0.05  # when there is no descriptor at all, or no memory
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def open_listener(host: str, port: int, *, key: str = "listenPort", backlog: int = BACKLOG) -> socket.socket:
    """A listening, non-blocking TCP socket.

    Raises:
        ConfigError: the port is taken; names it and the remedy.
        TransportError: the address cannot be listened on for another reason.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use; stop the process that has it (ss -ltnp 'sport = :{port}') "
                f"or choose another {key}"
            ) from exc
        raise TransportError(f"cannot listen on {host}:{port}: {exc.strerror}; check bindAddress and {key}") from exc
    return listener


@attrs.define(eq=False)
class Target:
    """A selector as the acceptor sees it."""

    block: WorkerBlock
    handoff: socket.socket  # the acceptor's end
    room: float = math.inf  # the number of connections that it accepts
    is_spare: bool = False  # it is started when its first connection waits for it
    _handed: int = attrs.field(init=False, default=0)

    @property
    def is_started(self) -> bool:
        return not self.is_spare or self._handed > 0 or self.block.epoch > 0

    @property
    def is_serving(self) -> bool:
        """Return False for a spare selector that is being started: perhaps it cannot be, for lack of memory."""
        return not self.is_spare or self.block.is_ready

    @property
    def load(self) -> int:
        """The number of its connections, including connections that it has not received yet."""
        counters = self.block.pointer.counters
        refused = int(counters[lib.RP_COUNT_CONNECTIONS_REFUSED]) + int(counters[lib.RP_COUNT_ADDRESS_REFUSED])
        self._handed = max(self._handed, int(counters[lib.RP_COUNT_CONNECTIONS_OPENED]) + refused)
        return self._handed - refused - int(counters[lib.RP_COUNT_CONNECTIONS_CLOSED])

    def hand_over(self, connections: Sequence[Accepted]) -> int:
        """Returns how many connections were passed; 0 when the socket pair is full."""
        taken = hand_over(self.handoff, connections)
        self._handed += taken
        return taken


@attrs.define(eq=False)
class Acceptor:
    """One turn at a time; `run` is the worker's loop."""

    listeners: Sequence[tuple[socket.socket, int]]  # (socket, number: 0 main port, 1 VIP port)
    targets: Sequence[Target]
    block: WorkerBlock
    parked: socket.socket | None = None  # connections of the process tree before
    clock: Callable[[], float] = time.monotonic
    _pending: list[Accepted] = attrs.field(init=False, factory=list)
    _turn: int = attrs.field(init=False, default=0)
    _spare: int = attrs.field(init=False, default=-1)
    _accept_again_at: float = attrs.field(init=False, default=0.0)
    _refusals: LogLimit = attrs.field(
        init=False, default=attrs.Factory(lambda self: LogLimit(LOG_INTERVAL_S, self.clock), takes_self=True)
    )

    def run(self, context: WorkerContext) -> None:
        context.report_ready()
        while not self.block.stop:
            self.block.beat(time.monotonic_ns())
            self.turn(context.beat_s)

    def turn(self, timeout_s: float) -> None:
        """Wait for connections, then accept and pass on all of them."""
        if self.parked is not None:
            self._take_parked()
            if self.parked is not None and not self._pending:
                timeout_s = 0.0  # there are more
        poller = select.poll()
        poller.register(self.block.doorbell, select.POLLIN)
        if self._pending:  # every selector is behind; there is no event for its recovery
            timeout_s = min(timeout_s, RETRY_S)
        wait_s = self._accept_again_at - self.clock()
        if wait_s > 0:
            timeout_s = min(timeout_s, wait_s)
        elif len(self._pending) < PENDING_MAX:
            for listener, _ in self.listeners:
                poller.register(listener, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(timeout_s * 1000)}
        if self.block.doorbell in ready:
            self.block.awake()
        for listener, number in self.listeners:
            if listener.fileno() in ready:
                self._accept_batch(listener, number)
        self._distribute()

    def _take_parked(self) -> None:
        """Take parked connections as long as others have room for them: all at once may be more than open files."""
        while self.parked is not None and len(self._pending) < PENDING_MAX:
            taken = take_over(self.parked)
            self._pending += taken
            if not taken:  # its other end is that of our selectors now
                self.parked = None
        self._distribute()

    def _accept_batch(self, listener: socket.socket, number: int) -> None:
        self._keep_spare()
        for _ in range(min(ACCEPTS_PER_TURN, PENDING_MAX - len(self._pending))):
            try:
                fd = listener.accept()[0].detach()
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno in OUT_OF_DESCRIPTORS:
                    self._turn_one_away(listener)
                    return
                continue  # the client has already closed it (ECONNABORTED and similar)
            self._pending.append(Accepted(fd, number))

    def _keep_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def _turn_one_away(self, listener: socket.socket) -> None:
        """Accept one connection with the spare descriptor and close it; without the spare, try again later."""
        self.block.add(lib.RP_COUNT_CONNECTIONS_REFUSED)
        told = self._refusals.take()
        if told:
            logger.warning("refused %d connections: the limit of open files is reached; raise it (ulimit -Hn)", told)
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
            with contextlib.suppress(OSError):
                listener.accept()[0].close()
            self._keep_spare()
            return
        self._accept_again_at = self.clock() + RETRY_S

    def _distribute(self) -> None:
        """Fill the selectors with the fewest connections first; skip a selector whose socket pair is full."""
        loads = [target.load for target in self.targets]
        full: set[int] = set()
        while self._pending and (choices := self._choices(loads) - full):
            choice = min(choices, key=lambda index: (loads[index], (index - self._turn) % len(self.targets)))
            self._turn = choice + 1
            if not self.targets[choice].hand_over(self._pending[:1]):
                full.add(choice)
                continue
            loads[choice] += 1
            os.close(self._pending.pop(0).fd)

    def _choices(self, loads: Sequence[int]) -> set[int]:
        """Return the selectors that may get the next connection: those with room, else a spare one, else any. One that
        is being started gets it only if no other may: it has the fewest connections for as long as it cannot start."""
        started = {index for index, target in enumerate(self.targets) if target.is_started}
        choices = {index for index in started if loads[index] < self.targets[index].room}
        if not choices:
            spare = next((index for index in range(len(self.targets)) if index not in started), None)
            choices = started if spare is None else {spare}
        return {index for index in choices if self.targets[index].is_serving} or choices
