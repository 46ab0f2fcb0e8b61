"""Why a slave cannot follow its master now, or at all."""

from __future__ import annotations

from rocketpy.errors import StoreError, TransportError


class MasterUnusable(TransportError):
    """The master does not answer, or not as a master would. Another try may succeed."""


class CannotFollow(StoreError):
    """The slave's log does not fit the master's. Nothing helps but the operator, or another master."""


class Diverged(CannotFollow):
    """The two logs are not one history, or the part is gone that would show it."""
