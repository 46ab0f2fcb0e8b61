"""Versions of replication: each broker speaks a range, and a pair uses its highest common one.

    magic: the slave's lowest -> CHALLENGE: the master's range -> HELLO: the highest common version, the slave's range

A release speaks the last version and its own, so that a group is upgraded one member after the other
(docs/run/upgrade.md). Version 2 had no ranges: a peer that names none speaks one version.
"""

from __future__ import annotations

from typing import Any

import attrs

from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST

from .frames import Fields, FrameInvalid

VERSION_MAX = 255  # one byte in the magic
RANGES_SINCE = 3
"""The first version whose HELLO and WELCOME name the sender's range."""


@attrs.frozen
class Versions:
    """All versions from `lowest` to `highest`."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"

    @property
    def fields(self) -> dict[str, Any]:
        """The range in a frame."""
        return {"lowest": self.lowest, "highest": self.highest}


OWN = Versions(REPLICATION_VERSION_LOWEST, REPLICATION_VERSION)


def common(one: Versions, other: Versions) -> int | None:
    """Return the highest version of both; None: they have none."""
    highest = min(one.highest, other.highest)
    return highest if highest in one and highest in other else None


def read_versions(fields: Fields) -> Versions:
    """Read the range of a CHALLENGE, HELLO or WELCOME, or of the answer to GET_REPLICATION_VERSION.

    Raises:
        FrameInvalid: it has no range and no version, or the range is empty.
    """
    if not fields.has("highest"):
        version = fields.number("version", VERSION_MAX)
        return Versions(version, version)
    found = Versions(fields.number("lowest", VERSION_MAX), fields.number("highest", VERSION_MAX))
    if found.lowest > found.highest:
        raise FrameInvalid(f"its versions begin at {found.lowest} and end at {found.highest}")
    return found


def no_common_version(slave: Versions, master: Versions) -> str:
    """Say why a pair cannot replicate, in the words that both sides log."""
    older = "slave" if slave.highest < master.highest else "master"
    return (
        f"the slave speaks version {slave} of replication, the master {master}: upgrade the {older} to a release "
        "that speaks one of the other's versions, one release at a time"
    )
