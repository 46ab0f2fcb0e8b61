"""The side table of an archive: what of a log is no message, or has a body that cannot be decompressed.

Its files are in `_rocketpy/BROKER/bad`, where readers of the archive do not look, and are named by manifests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..bad_places import BadPlace
from ..segments import Segment, mapped

RAW_MAX = 4 << 20  # bytes of a place that are kept: one of zeros may be as large as its file
SCHEMA = pa.schema(
    [
        ("brokerName", pa.string()),
        ("segment", pa.string()),
        ("physicalOffset", pa.int64()),
        ("size", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.binary()),
    ]
)


def bad_table(broker: str, segment: Segment, places: Sequence[BadPlace]) -> Any:
    """A row for each place, with the first RAW_MAX bytes of it."""
    rows = []
    with mapped(segment) as image:
        for place in places:
            at = place.phy_offset - segment.start
            raw = bytes(image[at : at + min(place.size, RAW_MAX)])
            rows.append((broker, segment.path.name, place.phy_offset, place.size, place.reason, raw))
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
