"""Why a slave does not follow its master: not now, not at all, or because it stops itself."""

from __future__ import annotations

from rocketpy.errors import StoreError, TransportError


class MasterUnusable(TransportError):
    """The master does not answer, or not as a master would. Another try may succeed."""


class ReplicatorStopped(Exception):
    """This slave is told to stop while it waits for its master. No fault of either."""


class CutAsked(ReplicatorStopped):
    """This slave's log will be cut when its store is opened next, which has to be now."""


class CannotFollow(StoreError):
    """The slave's log does not fit the master's. Nothing helps but the operator, or another master."""


class Diverged(CannotFollow):
    """The two logs are not one history, or the part is gone that would show it."""
