"""Parses request bodies of any client without blocking the event loop.

Small bodies are parsed at once. Large ones are parsed in a thread, one at a time. The thread shares the interpreter
with the loop, except while it parses strict JSON; `Body.decode_request` bounds that by bytes and objects.
"""

from __future__ import annotations

from typing import TypeVar

import trio

from rocketpy.remoting.bodies.schema import REQUEST_BYTES_MAX, Body

AT_ONCE_BYTES_MAX = 4_096  # leniently 8 ms

_B = TypeVar("_B", bound=Body)
_READERS: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("readers of bodies")


async def read_body(kind: type[_B], data: bytes | None) -> _B:
    """Read a body. Raises: BodyInvalid as `Body.decode_request` does."""
    if data is None or not AT_ONCE_BYTES_MAX < len(data) <= REQUEST_BYTES_MAX:
        return kind.decode_request(data)
    return await trio.to_thread.run_sync(kind.decode_request, data, limiter=_readers())


def _readers() -> trio.CapacityLimiter:
    """One thread for each loop."""
    try:
        return _READERS.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _READERS.set(limiter)
        return limiter
