"""Portal: calls of other threads into a loop.

Short: the two backends raise LoopEnded, and know nothing else of the modules above them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class LoopEnded(Exception):
    """The loop of a portal ended before a call, or `during` it."""

    def __init__(self, *, during: bool) -> None:
        super().__init__("the loop has ended")
        self.during = during


class Portal(Protocol):
    """The way into a loop from other threads."""

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run an async function in the loop and wait for its result. Raises: LoopEnded."""

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run a function in the loop soon; a loop that has ended runs none."""
