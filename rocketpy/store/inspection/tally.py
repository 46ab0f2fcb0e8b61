"""The messages of one queue in the log: counted in C (rp_tally of csrc/store/recovery/verify.h), joined over parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from rocketpy.native.core import ffi

SUM_LIMIT = 1 << 64  # the sums are 64-bit hashes that wrap


@attrs.frozen(kw_only=True)
class QueueTally:
    """The records of a queue in one walk; the fields are those of rp_tally."""

    topic: str
    topic_size: int
    queue_id: int
    first_offset: int
    next_offset: int
    units: int
    units_end: int
    units_sum: int
    places_sum: int
    records: int
    bytes: int
    max_phy_offset: int
    entry_offset: int
    entry_phy_offset: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def restarted(self) -> bool:
        """Return True if its offsets began again at 0 after its first record."""
        return self.first_offset != self.entry_offset


NUMBERS = [field.name for field in attrs.fields(QueueTally) if field.name != "topic"]


def tally_of(raw: Any) -> QueueTally:
    """Copy an `rp_tally *`."""
    topic = bytes(ffi.buffer(raw.topic, raw.topic_size)).decode("utf-8", "replace")
    return QueueTally(topic=topic, **{name: int(getattr(raw, name)) for name in NUMBERS})


def goes_on(before: QueueTally, after: QueueTally, damages: Sequence[int]) -> bool:
    """Return True if the offsets of `after` continue `before`: with the next one, 0, or a later one over damage.

    Args:
        damages: phy offsets of damaged places in the log, ascending.
    """
    if after.entry_offset in (before.next_offset, 0):
        return True
    is_over_damage = any(before.max_phy_offset <= at < after.entry_phy_offset for at in damages)
    return is_over_damage and after.entry_offset > before.next_offset


def join(before: QueueTally, after: QueueTally) -> QueueTally:
    """The tally of one walk over both parts of the log.

    Where offsets began again at 0 the topic was deleted and created again: only later records have units.
    """
    joined = attrs.evolve(
        after,
        records=before.records + after.records,
        bytes=before.bytes + after.bytes,
        entry_offset=before.entry_offset,
        entry_phy_offset=before.entry_phy_offset,
    )
    if after.restarted or after.entry_offset == 0:
        return joined
    return attrs.evolve(
        joined,
        first_offset=before.first_offset,
        units=before.units + after.units,
        units_end=after.units_end if after.units else before.units_end,
        units_sum=(before.units_sum + after.units_sum) % SUM_LIMIT,
        places_sum=(before.places_sum + after.places_sum) % SUM_LIMIT,
    )
