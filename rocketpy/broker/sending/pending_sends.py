"""The sends of the slow path that are not answered yet; each is completed exactly once.

    with pending.ending(send):      at its end the send is answered, completed and removed, also after an exception
        ...
        send.goes_on = True         unless this is set: a task continues with it, in its own block

Completing a send lets the fast path store later sends of its connection; a put is completed before its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.faults import Faults
from rocketpy.remoting.answers import OVERLOAD, code_and_remark
from rocketpy.remoting.fast_path import SendRequest

PENDING_SENDS_MAX = 10_000  # sendThreadPoolQueueCapacity of the reference
PENDING_BYTES_MAX = 64 * 1024 * 1024  # of all pending sends, for example while a topic is saved to a slow disk
PLACE = "a send on the slow path"


@attrs.define(eq=False)
class PendingSend:
    """One send on its way through the slow path."""

    request: SendRequest
    _complete: Callable[[SendRequest], None]
    size: int = attrs.field(init=False)  # bytes that it counts
    _is_completed: bool = attrs.field(init=False, default=False)
    goes_on: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.size = len(self.request.raw) + len(self.request.body) + len(self.request.properties)

    def complete(self) -> None:
        """Let the fast path serve later sends of the connection; a second call does nothing."""
        if not self._is_completed:
            self._is_completed = True
            self._complete(self.request)


@attrs.frozen
class _Share:
    """The pending sends of one connection."""

    sends: int = 0
    bytes: int = 0


class PendingSends:
    """All pending sends: at most PENDING_SENDS_MAX, and PENDING_BYTES_MAX unless it is a single one.

    A connection holds no more of both than is free, so none keeps the others out.

    Args:
        complete: tells the fast path; called once per send.
        refuse: answers a send with a code and a remark.
    """

    def __init__(
        self, complete: Callable[[SendRequest], None], refuse: Callable[[SendRequest, int, str], None], faults: Faults
    ) -> None:
        self._faults = faults
        self._complete = complete
        self._refuse = refuse
        self._sends: set[PendingSend] = set()
        self._bytes = 0
        self._shares: dict[int, _Share] = {}  # by connection, while it has sends

    def __len__(self) -> int:
        return len(self._sends)

    def add(self, request: SendRequest) -> PendingSend | None:
        """Add a send. Returns None if there are too many; then the send has been refused."""
        send = PendingSend(request, self._complete)
        share = self._shares.get(request.channel.connection, _Share())
        has_room = (
            share.sends < PENDING_SENDS_MAX - len(self._sends)
            and share.bytes + send.size <= PENDING_BYTES_MAX - self._bytes
        )
        if self._sends and not has_room:
            try:
                self._refuse(request, ResponseCode.SYSTEM_BUSY, OVERLOAD)
            finally:
                self._complete(request)
            return None
        self._sends.add(send)
        self._bytes += send.size
        self._shares[request.channel.connection] = _Share(share.sends + 1, share.bytes + send.size)
        return send

    @contextmanager
    def ending(self, send: PendingSend) -> Iterator[None]:
        """A block in which `send` is answered. An exception in it becomes the answer and goes no further."""
        send.goes_on = False
        try:
            yield
        except Exception as exc:
            self.fail(send.request, exc)
        finally:
            if not send.goes_on:
                self.end(send)

    def end(self, send: PendingSend) -> None:
        """Remove a send that has been answered, or will not be."""
        if send in self._sends:
            self._sends.remove(send)
            self._bytes -= send.size
            share = self._shares.pop(send.request.channel.connection)
            if share.sends > 1:
                self._shares[send.request.channel.connection] = _Share(share.sends - 1, share.bytes - send.size)
        try:
            send.complete()
        except Exception as exc:
            self._faults.report(PLACE, exc)

    def fail(self, request: SendRequest, exc: Exception) -> None:
        """Answer a send with what went wrong."""
        try:
            self._refuse(request, *code_and_remark(exc, self._faults, PLACE))
        except Exception as failed:
            self._faults.report(PLACE, failed)
