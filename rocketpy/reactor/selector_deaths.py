"""Detects restarted selectors and drops their old connections: a killed selector sends no CLOSED (docs/adr/0044)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import attrs

from .ring import WorkerBlock

STEPS_PER_TURN = 100


@attrs.define(eq=False)
class SelectorDeaths:
    """Detects that a selector was restarted, and drops the connections of its previous process a few at a time.

    Args:
        is_gone: returns whether the selector process that owned a connection has ended.
    """

    selectors: Sequence[WorkerBlock] = ()
    is_gone: Callable[[int], bool] = lambda connection: False
    _epochs: list[int] = attrs.field(init=False, factory=list)
    _steps: Iterator[None] = attrs.field(init=False, factory=lambda: iter(()))

    def __attrs_post_init__(self) -> None:
        self._epochs = [selector.epoch for selector in self.selectors]

    def turn(self, forget: Callable[[], Iterator[None]]) -> bool:
        """Begin `forget()` if a selector was restarted, and continue what has begun. Returns False if nothing was to
        do."""
        epochs = [selector.epoch for selector in self.selectors]
        if epochs != self._epochs:
            self._epochs = epochs
            self._steps = itertools.chain(self._steps, forget())
        return sum(1 for _ in itertools.islice(self._steps, STEPS_PER_TURN)) > 0
