"""The epochs of a log: which master wrote which bytes. Finds where two logs part.

Within an epoch one broker appends and takes nothing back, so (epoch, position) names a byte for all members. Lengths
and checksums cannot tell two histories of one group apart, because record boundaries may coincide; epochs can.

Two epochs may have the same start: a master that is replaced before it appended anything leaves one without bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import attrs

from rocketpy.errors import StoreError

EPOCHS_MAX = 100_000  # entries; a role change a minute for two months
BEFORE_FAILOVER = 0  # the epoch of what a log held when its group was bootstrapped


class EpochsInvalid(StoreError):
    """An epoch list that is damaged or contradicts itself; the text says where."""


@attrs.frozen
class Epoch:
    """Epoch `number` begins at byte `start` of the log and ends where the next one begins."""

    number: int
    start: int


def _checked(entries: Iterable[Epoch]) -> tuple[Epoch, ...]:
    listed = tuple(entries)
    if len(listed) > EPOCHS_MAX:
        raise EpochsInvalid(f"{len(listed)} epochs, at most {EPOCHS_MAX}")
    for before, after in pairwise(listed):
        if after.number <= before.number or after.start < before.start:
            raise EpochsInvalid(
                f"epoch {after.number} from {after.start} cannot follow epoch {before.number} from {before.start}"
            )
    return listed


@attrs.frozen
class EpochList:
    """Epochs in ascending order; starts never go down. Raises: EpochsInvalid."""

    entries: tuple[Epoch, ...] = attrs.field(default=(), converter=_checked)

    @property
    def last(self) -> int:
        """The newest epoch of this log, or -1 if it has none."""
        return self.entries[-1].number if self.entries else -1

    def opened(self, number: int, start: int) -> EpochList:
        """With a new epoch whose first byte is at `start`, the end of the log.

        What the log held before its first epoch becomes epoch BEFORE_FAILOVER, so that it has a name, too.
        """
        first = (Epoch(BEFORE_FAILOVER, 0),) if not self.entries and start > 0 else ()
        return EpochList((*self.entries, *first, Epoch(number, start)))

    def until(self, end: int) -> EpochList:
        """Without the epochs that begin after `end`. One that begins there stays: it may get its first byte yet."""
        return EpochList(tuple(entry for entry in self.entries if entry.start <= end))

    def end_of(self, number: int, log_end: int) -> int:
        """Return the position at which epoch `number`, one of this list, ends in a log that ends at `log_end`."""
        later = [entry.start for entry in self.entries if entry.number > number]
        return min([log_end, *later[:1]])


def common_end(one: EpochList, one_end: int, other: EpochList, other_end: int) -> int | None:
    """The position below which two logs are equal, byte for byte.

    It is in the newest epoch that has the same number and start in both: the smaller of its two ends.

    Args:
        one_end, other_end: the ends of the logs, in bytes.
    Returns: the position; None if the logs have nothing in common. An empty log is the beginning of every other.
    """
    shared = set(one.entries) & set(other.entries)
    if shared:
        newest = max(shared, key=lambda entry: entry.number).number
        return min(one.end_of(newest, one_end), other.end_of(newest, other_end))
    return 0 if one_end == 0 or other_end == 0 else None
