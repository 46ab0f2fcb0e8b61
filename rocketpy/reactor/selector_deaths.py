"""Finds connections of dead selectors: a killed selector sends no CLOSED (docs/adr/0095)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import attrs

from .ring import WorkerBlock

STEPS_PER_TURN = 100


@attrs.define(eq=False)
class SelectorDeaths:
    """Finds that a selector has been replaced, and has its connections forgotten a few at a time.

    Args:
        is_gone: whether the selector that owned a connection has died since.
    """

    selectors: Sequence[WorkerBlock] = ()
    is_gone: Callable[[int], bool] = lambda connection: False
    _epochs: list[int] = attrs.field(init=False, factory=list)
    _steps: Iterator[None] = attrs.field(init=False, factory=lambda: iter(()))

    def __attrs_post_init__(self) -> None:
        self._epochs = [selector.epoch for selector in self.selectors]

    def turn(self, forget: Callable[[], Iterator[None]]) -> bool:
        """Begin `forget()` if a selector has died, and go on with what has begun. False: there was nothing to do."""
        epochs = [selector.epoch for selector in self.selectors]
        if epochs != self._epochs:
            self._epochs = epochs
            self._steps = itertools.chain(self._steps, forget())
        return sum(1 for _ in itertools.islice(self._steps, STEPS_PER_TURN)) > 0
