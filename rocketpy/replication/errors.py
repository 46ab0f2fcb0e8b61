"""Why a slave does not follow its master: not now, not at all, or because it stops itself.

Behind the exceptions are the reasons why two logs do not fit: one sentence for each case, for both sides.
"""

from __future__ import annotations

from rocketpy.errors import StoreError, TlsFailed, TransportError


class MasterUnusable(TransportError):
    """The master does not answer, or not as a master would. Another try may succeed."""


class NoTls(MasterUnusable):
    """The master is reached, and TLS with it fails: `found` names its address and the reason."""

    def __init__(self, address: str, failure: TlsFailed, remedy: str) -> None:
        self.found = f"no TLS with {address}: {failure}"
        self.reason = failure.reason
        self.remedy = remedy
        super().__init__(f"{self.found}; {remedy}")


class MasterReplaced(MasterUnusable):
    """The master is older than one that this member knows; it may not know that yet."""


class OtherOrders(MasterUnusable):
    """Another master is to be followed, or none."""


class ReplicatorStopped(Exception):
    """This slave is told to stop while it waits for its master. No fault of either."""


class CutAsked(ReplicatorStopped):
    """This slave's log will be cut when its store is opened next, which has to be now."""


class CannotFollow(StoreError):
    """The slave's log does not fit the master's. Only the operator can help, or another master."""


class Diverged(CannotFollow):
    """The two logs are not one history, or the part is gone that would show it."""


class NeedsCut(CannotFollow):
    """The log of this member has to end at `position` before it can follow."""

    def __init__(self, position: int, end: int) -> None:
        super().__init__(f"{end - position} bytes after log offset {position} are not in the master's log")
        self.position = position


# --- logs that do not fit ---------------------------------------------------------------------------------------------


def other_file_size(slave: int, master: int) -> str:
    return (
        f"mappedFileSizeCommitLog is {slave} on this slave and {master} on its master, and must be equal; set it to "
        "the master's and begin with an empty store"
    )


def master_is_shorter(slave_end: int, master_end: int) -> str:
    return (
        f"the log of this slave ends at {slave_end}, that of its master at {master_end}: the master has lost the end "
        "of its log, or this slave has followed another one; keep the store of the slave, it may have messages that "
        "the master lacks"
    )


def master_begins_later(slave_end: int, master_begin: int) -> str:
    return (
        f"the log of this slave ends at {slave_end}, that of its master begins at {master_begin}: what is before that "
        "has expired; begin with an empty store"
    )


def differs(where: str, slave_end: int) -> str:
    """`where`: "at 100" or "between 0 and 100"."""
    return (
        f"the log of this slave differs from its master's {where} (it ends at {slave_end}): it has a history of its "
        "own; keep its store aside and begin with an empty one"
    )


def member_differs(begin: int, end: int) -> str:
    """Members whose epochs say that the bytes are equal, and they are not."""
    return (
        f"the log of this member differs from its master's between {begin} and {end}, though both are of one history: "
        "one of them is damaged; find out which by `rocketpy store verify` on both, and let that one join with an "
        "empty store: rocketpy store set-aside"
    )


def member_cannot_be_cut(begin: int, end: int, confirmed: int, shared: int | None) -> str:
    """A member whose log cannot be cut where both logs part, because that would take away too much.

    `shared`: the position where they part; None: they have nothing in common.
    """
    same = "has nothing in common with its master's" if shared is None else f"is its master's up to {shared} only"
    return (
        f"the log of this member (it begins at {begin}, ends at {end}, and is confirmed to {confirmed}) {same}, and is "
        "not cut there by itself; stop this member, and let it join with an empty store: rocketpy store set-aside"
    )
