"""States of half messages without shared memory."""

from __future__ import annotations


class FakeHalfStates:
    """Half messages are open unless the test, or an end, says otherwise."""

    def __init__(self) -> None:
        self.base = 0
        self.ended: set[int] = set()

    def move_base(self, base: int) -> None:
        self.base = max(base, self.base)

    def is_open(self, offset: int) -> bool:
        return offset >= self.base and offset not in self.ended

    def next_open(self, start: int, end: int) -> int:
        return next((offset for offset in range(start, end) if self.is_open(offset)), end)

    def count_open(self, start: int, end: int) -> int:
        return sum(self.is_open(offset) for offset in range(start, end))
