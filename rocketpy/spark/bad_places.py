"""Places of a log that cannot be read as messages: what a reader found out about them."""

from __future__ import annotations

import attrs


@attrs.frozen
class BadPlace:
    """Bytes of the log, and why they are no message, or one whose body cannot be decompressed."""

    phy_offset: int
    size: int
    reason: str
