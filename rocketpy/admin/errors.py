"""Errors of administration beyond those of a single request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy.errors import RocketError


class PartialFailure(RocketError):
    """The operation succeeded on some servers only."""

    def __init__(self, failures: Mapping[str, RocketError], succeeded: Sequence[str]) -> None:
        self.failures = failures
        self.succeeded = succeeded
        text = "; ".join(f"{address}: {error}" for address, error in failures.items())
        super().__init__(f"{len(failures)} of {len(failures) + len(succeeded)} servers failed: {text}")


class NotFound(RocketError):
    """The requested object does not exist."""
