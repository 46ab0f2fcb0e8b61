"""The epochs of a log: which master wrote which bytes. Finds where two logs part, and where one of
them must be cut before it follows the other.

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
CUT_BYTES_MAX = 256 << 20
"""The longest log tail that an asynchronous group cuts off a member without an operator, after a failover."""


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
        """Return the list with a new epoch whose first byte is at `start`, the end of the log.

        The part of the log before its first epoch becomes epoch BEFORE_FAILOVER, so that it has a name, too.
        """
        first = (Epoch(BEFORE_FAILOVER, 0),) if not self.entries and start > 0 else ()
        return EpochList((*self.entries, *first, Epoch(number, start)))

    def until(self, end: int) -> EpochList:
        """Return the list up to `end`. An epoch that begins there stays: it may get its first byte yet."""
        return EpochList(tuple(entry for entry in self.entries if entry.start <= end))

    def end_of(self, number: int, log_end: int) -> int:
        """Return the position at which epoch `number`, one of this list, ends in a log that ends at `log_end`."""
        later = [entry.start for entry in self.entries if entry.number > number]
        return min([log_end, *later[:1]])


def common_end(one: EpochList, one_end: int, other: EpochList, other_end: int) -> int | None:
    """Return the position below which two logs are equal, byte for byte.

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


@attrs.frozen(kw_only=True)
class Log:
    """A log by its epochs, its end, and the position up to which consumers were shown it; in bytes."""

    epochs: EpochList
    end: int
    confirmed: int


def cut_for(own: Log, master: Log, *, is_sync: bool, unclean: int = 0) -> int | None:
    """Return the position at which the member's log must end before it takes the master's stream.

    In a synchronous group every in-sync log has what was confirmed, so a cut below is a sign of something else: a
    store that was exchanged. In an asynchronous group everything may have been acknowledged, so a cut of more than
    CUT_BYTES_MAX is no failover's rest. People have to look at both. They have done so if the master's log has an epoch
    that an operator began by an unclean election, and this log ends in an older one.

    Args:
        unclean: the last epoch of an unclean election, as etcd has it; 0: there was none.
    Returns: the position; None: halt, the logs have diverged.
    """
    end = common_end(own.epochs, own.end, master.epochs, master.end)
    if end is None:
        return None
    if own.epochs.last < unclean and any(entry.number == unclean for entry in master.epochs.entries):
        return end
    is_too_much = end < own.confirmed if is_sync else own.end - end > CUT_BYTES_MAX
    return None if is_too_much else end


def may_serve(own_epoch: int, follower: EpochList, joined: int) -> bool:
    """Return True if a master of `own_epoch` may let a follower in that has joined epoch `joined` (-1: none yet).

    If not, the master is the older one of the two: it has learned of a higher epoch.
    """
    return max(joined, follower.last) <= own_epoch


def may_take(epoch: int, own: EpochList, newest_epoch_seen: int) -> bool:
    """Return True if a member may take and acknowledge the stream of `epoch`: never from a master older than one it
    knows.

    This is half of the replication fence. The other half: candidates and masters take no stream.
    """
    return epoch >= max(newest_epoch_seen, own.last)
