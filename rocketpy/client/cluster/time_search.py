"""Finds the first offset of a queue whose message was stored at or after a time.

Brokers answer SEARCH_OFFSET_BY_TIMESTAMP with the nearest message: an older one, or any of several with the same store
time. Here their answer is only the place where the search begins. It looks at the store times of single messages, in
steps that double until they have passed the wanted place, and then halves what is left: two looks if the answer was
right, about twenty if the wanted message is a few hundred messages away.

Store times of a queue do not decrease, unless the clock of its broker was set back. Then the result is a message that
is not older than the time, behind one that is.

Short: the search, without the requests that it makes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs


@attrs.frozen
class StoredAt:
    """A message: its offset, and when it was stored (ms)."""

    offset: int
    time_ms: int


Look = Callable[[int], Awaitable[StoredAt | None]]
"""Finds the first readable message at or after an offset; None if there is none."""


async def first_offset_since(time_ms: int, guess: int, low: int, high: int, look: Look) -> int:
    """The first offset in [low, high) whose message was stored at or after `time_ms`; `high` if there is none.

    Args:
        guess: where to begin.
        look: is called at most twice for each bit of `high - low`.
    """
    first = high
    at, step = min(max(guess, low), high - 1), 1
    was_since: bool | None = None
    while low < high:  # messages before `low` are older, those from `high` on are not
        found = await look(at)
        is_since = found is None or found.offset >= high or found.time_ms >= time_ms
        if found is None or is_since:
            first = first if found is None else min(first, found.offset)
            high = at
        else:
            low = found.offset + 1
        if was_since is not None and was_since != is_since:
            step = 0
        was_since = is_since
        if step == 0:
            at = (low + high) // 2
        elif is_since:
            at = max(low, high - step)
        else:
            at = min(high - 1, low + step - 1)
        step *= 2
    return first
