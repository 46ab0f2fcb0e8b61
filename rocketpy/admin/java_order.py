"""The order of Java's hash tables. Scripts that parse mqadmin's text by position depend on it.

A HashMap lists its entries by bucket. Their number is a power of two that grows with the entries, so the order follows
from the names alone, but for names that share a bucket: these stand in the order in which they were put.

Short: one rule of Java's, for properties of messages and groups of a topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketpy.client.allocation import java_order

BUCKETS, FULL_QUARTERS = 16, 3  # at first; the table doubles beyond three quarters of an entry for each bucket


def string_hash(text: str) -> int:
    """`String#hashCode` as 32 bits without a sign."""
    units = java_order(text)
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8) + low) & 0xFFFFFFFF
    return value


def hash_order(names: Iterable[str], *, buckets: int = BUCKETS) -> list[str]:
    """Return the names in the order of a HashMap that got them one by one. `buckets`: number of buckets at first."""
    listed = list(names)
    while 4 * len(listed) > FULL_QUARTERS * buckets:
        buckets *= 2

    def bucket(name: str) -> int:
        value = string_hash(name)
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(listed, key=bucket)
