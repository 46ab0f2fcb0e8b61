"""Edits of an encoded property string; all other bytes stay unchanged.

Short: delays, transactions and sends use it, and none of these rooms is below the others.
"""

from __future__ import annotations

from rocketpy.message import properties as p


def text_property(properties: bytes, name: str) -> str | None:
    """The value of one property; None when it is absent."""
    value = p.find_property(properties, name.encode())
    return None if value is None else value.decode("utf-8", "replace")


def with_values(properties: bytes, **values: str) -> bytes:
    """The string with these properties set; existing ones are replaced."""
    for name in values:
        properties = p.without_property(properties, name.encode())
    return p.join_properties(properties, p.encode_properties(values).encode())


def without_timer(properties: bytes) -> bytes:
    """Remove the properties that make a message a timer: of delay level and timer, the level counts."""
    for name in p.TIMER_PROPERTIES:
        properties = p.without_property(properties, name.encode())
    return properties
