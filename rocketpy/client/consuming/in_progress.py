"""Counts running handlers, so that a consumer that stops can wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio


@attrs.define
class InProgress:
    """Counts running consumptions; with `is_stopping` no new one may begin."""

    is_stopping: bool = attrs.field(init=False, default=False)
    _count: int = attrs.field(init=False, default=0)
    _idle: trio.Event = attrs.field(init=False, factory=trio.Event)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around one consumption."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def stop(self, grace_s: float) -> None:
        """Start no more, and wait for running ones, at most `grace_s`."""
        self.is_stopping = True
        with trio.move_on_after(grace_s):
            while self._count:
                self._idle = trio.Event()
                await self._idle.wait()
