"""The rules of the handshake between members of a group with automatic failover: pure decisions of both sides.

Both send the epochs of their logs (failover/rules/epochs.py). The logs are equal up to the position where the epochs
part; the follower's bytes after it are of another history, and are cut while its store is opened anew. Epochs say
nothing of a damaged disk or a file from elsewhere, so the follower compares the bytes below that position, too.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketpy.failover.rules.epochs import EpochList, Log, common_end, cut_for, may_serve, may_take

from .errors import Diverged, MasterReplaced, MasterUnusable, NeedsCut, member_cannot_be_cut, member_differs
from .handshake_messages import Extent, Group, Hello, Refusal, Welcome
from .handshake_rules import LATER, other_files, stranger, tail_place


@attrs.frozen
class Join:
    """The answer to a follower: DATA begins at `start`; `truncate`: its log has to be cut there first."""

    start: int
    truncate: int | None


def join_for(
    hello: Hello, group: Group, challenge: str, own: Extent, epochs: EpochList, epoch: int | None
) -> Join | Refusal:
    """A master's answer to a HELLO.

    Args:
        epochs: of the master's log.
        epoch: the one that it serves; None: it serves none now.
    """
    refusal = stranger(hello, group, challenge) or other_files(hello, group)
    theirs = hello.membership
    if refusal is not None:
        return refusal
    if not theirs.member:
        return Refusal("mode", "it has no haMode=automatic, this master has; set the same on both")
    if epoch is None:
        return Refusal(LATER, "this broker does not send its log now: it is not the master of an epoch")
    if not may_serve(epoch, theirs.epochs, -1):
        return Refusal(LATER, f"this master serves epoch {epoch}, and its log is of epoch {theirs.epochs.last}")
    if hello.log.end == 0:
        return Join(own.begin, None)
    end = common_end(theirs.epochs, hello.log.end, epochs, own.end)
    if end is None:
        return Refusal("diverged", "its log and this master's have no epoch in common; let it join with an empty store")
    if end < max(own.begin, hello.log.begin):
        return Refusal(
            "behind",
            f"both logs are equal up to {end}, but this one begins at {own.begin}, and its own at {hello.log.begin}: "
            "what is before has expired; let it join with an empty store",
        )
    return Join(end, end if end < hello.log.end else None)


def check_welcome(
    welcome: Welcome, own: Log, begin: int, *, newest_known: int, is_sync: bool, unclean: int = 0
) -> EpochList:
    """A follower's view of a WELCOME: the epochs of its own log from now on.

    Args:
        own: this log. begin: where it begins.
        newest_known: the newest epoch that a peer or the coordinator has named.
        unclean: the last epoch of an unclean election.
    Raises:
        MasterReplaced, MasterUnusable: this master cannot be followed. NeedsCut: not before the log is cut.
        Diverged: a cut would not make the logs one history.
    """
    epoch = welcome.epochs.last
    if epoch < 0:
        raise MasterUnusable("it names no epoch")
    if not may_take(epoch, own.epochs, newest_known):
        raise MasterReplaced(f"it serves epoch {epoch}, and epoch {max(newest_known, own.epochs.last)} is known")
    if own.end == 0:
        return welcome.epochs.until(welcome.start)
    master = Log(epochs=welcome.epochs, end=welcome.master_end, confirmed=0)
    cut = cut_for(own, master, is_sync=is_sync, unclean=unclean)
    if cut is None or cut < begin or (cut == begin > 0 and cut < own.end):  # all of it would be cut
        shared = common_end(own.epochs, own.end, welcome.epochs, welcome.master_end)
        raise Diverged(member_cannot_be_cut(begin, own.end, own.confirmed, shared))
    if cut != welcome.start or (cut < own.end) != (welcome.truncate is not None):
        raise MasterUnusable(f"it wants to begin at {welcome.start}, but both logs are equal up to {cut}")
    if cut < own.end:
        raise NeedsCut(cut, own.end)
    return joined(own.epochs, welcome.epochs, own.end)


def tail_below(start: int, own: Extent, other: Extent) -> tuple[int, int] | None:
    """(position, size) of the bytes below `start` that both logs have, and compare; None: there are none."""
    return tail_place(Extent(own.begin, start), other)


def check_tail(welcome: Welcome, own: Extent, crc_of: Callable[[int, int], int]) -> None:
    """Compare the bytes below the position where the stream begins, or the log is cut.

    Args:
        crc_of: CRC-32 of (position, size) of this log.
    Raises:
        Diverged: they differ, so nothing may be appended. MasterUnusable: the master does not say what it has there.
    """
    place = None if own.end == 0 else tail_below(welcome.start, own, Extent(welcome.master_begin, welcome.master_end))
    tail = welcome.tail
    if place is None and tail is None:
        return
    if place is None or tail is None or tail.begin != place[0]:
        raise MasterUnusable(f"it does not say what its log has below {welcome.start}, where this log is to go on")
    if crc_of(*place) != tail.crc:
        raise Diverged(member_differs(place[0], welcome.start))


def joined(own: EpochList, master: EpochList, end: int) -> EpochList:
    """The epochs of a log that is the master's up to `end`. The master may have sent its newest ones only."""
    first = master.entries[0] if master.entries else None
    older = tuple(e for e in own.entries if first is None or (e.number < first.number and e.start <= first.start))
    return EpochList((*older, *master.until(end).entries))
