"""Long work in a trio loop, cut into steps: others run in between.

Whatever grows with a table is done in steps of at most a millisecond or so. While such work is under way the table may
change: who goes through it copies the keys first, and looks each entry up when its turn comes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.frame import FRAME_SIZE_MAX
from rocketpy.remoting.json_writer import compact_pieces

_T = TypeVar("_T")

UNITS_PER_STEP = 500  # of about a microsecond each: lookups, comparisons, small values
BODY_SIZE_MAX = FRAME_SIZE_MAX - 65_536  # leaves room for the header


class Steps:
    """Counts the work of one task and lets others run after each `units_per_step` of it."""

    def __init__(self, units_per_step: int = UNITS_PER_STEP) -> None:
        self._units_per_step = units_per_step
        self._done = 0

    async def did(self, units: int = 1) -> None:
        """So much has been done; a checkpoint when a step is full."""
        self._done += units
        if self._done >= self._units_per_step:
            self._done = 0
            await trio.lowlevel.checkpoint()


async def finished(work: Generator[None, None, _T]) -> _T:
    """The result of `work`; others run wherever it yields."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result
        await trio.lowlevel.checkpoint()


async def encoded(pieces: Iterable[str], *, size_max: int | None = None) -> list[bytes]:
    """The pieces as UTF-8; others run after each.

    Raises:
        RequestRefused: more than `size_max` bytes; nothing more was produced then.
    """
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece.encode("utf-8", "replace"))
        size += len(found[-1])
        if size_max is not None and size > size_max:
            remark = f"the answer is larger than {size_max} bytes, the most that a frame carries; ask for less at once"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        await trio.lowlevel.checkpoint()
    return found


async def encoded_body(value: object, *, size_max: int = BODY_SIZE_MAX) -> bytes:
    """The compact JSON of a large value, as the body of one frame. Raises: RequestRefused, as `encoded`."""
    return b"".join(await encoded(compact_pieces(value), size_max=size_max))
