"""The sends of the slow path that are not answered yet; each is completed exactly once.

    with pending.ending(send):      on leaving the block the send is answered, completed and removed, whatever happened
        ...
        send.goes_on = True         except now: a task continues with it, in a block of its own

completing a send lets the fast path store the later sends of its connection; a put is completed before its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError
from rocketpy.faults import Faults
from rocketpy.remoting.fast_path import SendRequest

PENDING_SENDS_MAX = 10_000  # sendThreadPoolQueueCapacity of the reference
PENDING_BYTES_MAX = 64 * 1024 * 1024  # of all of them, while a topic is being saved to a slow disk
PLACE = "a send on the slow path"


@attrs.define(eq=False)
class PendingSend:
    """One send on its way through the slow path."""

    request: SendRequest
    _complete: Callable[[SendRequest], None]
    size: int = attrs.field(init=False)  # bytes that it holds
    _is_completed: bool = attrs.field(init=False, default=False)
    goes_on: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.size = len(self.request.raw) + len(self.request.body) + len(self.request.properties)

    def complete(self) -> None:
        """Let the fast path take the connection's later sends; the second call does nothing."""
        if not self._is_completed:
            self._is_completed = True
            self._complete(self.request)


class PendingSends:
    """All of them: at most PENDING_SENDS_MAX, and PENDING_BYTES_MAX but for a single one.

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

    def __len__(self) -> int:
        return len(self._sends)

    def add(self, request: SendRequest) -> PendingSend | None:
        """Take a send; None: there are too many, and this one has been answered so."""
        send = PendingSend(request, self._complete)
        has_room = len(self._sends) < PENDING_SENDS_MAX and self._bytes + send.size <= PENDING_BYTES_MAX
        if self._sends and not has_room:
            try:
                self._refuse(request, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
            finally:
                self._complete(request)
            return None
        self._sends.add(send)
        self._bytes += send.size
        return send

    @contextmanager
    def ending(self, send: PendingSend) -> Iterator[None]:
        """A block in which `send` is answered. An exception in it becomes the answer and goes no further."""
        send.goes_on = False
        try:
            yield
        except Exception as exc:
            self._fail(send.request, exc)
        finally:
            if not send.goes_on:
                self.end(send)

    def end(self, send: PendingSend) -> None:
        """It is answered, or never will be."""
        if send in self._sends:
            self._sends.remove(send)
            self._bytes -= send.size
        try:
            send.complete()
        except Exception as exc:
            self._faults.report(PLACE, exc)

    def _fail(self, request: SendRequest, exc: Exception) -> None:
        code, remark = int(ResponseCode.SYSTEM_ERROR), f"{type(exc).__name__}: {exc}"
        if isinstance(exc, RocketError):
            code, remark = exc.response_code, str(exc)
        else:
            self._faults.report(PLACE, exc)
        try:
            self._refuse(request, code, remark)
        except Exception as failed:
            self._faults.report(PLACE, failed)
