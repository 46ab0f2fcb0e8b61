"""Tags: the expressions that select them, and Java's string hash, on which tag codes and index slots are built.

Short: consumers select by tags, and never see the other properties.
"""

from __future__ import annotations

from . import properties

INT_MIN = -(1 << 31)
INDEX_KEYS_MAX = 128  # of one message
EXPRESSION_TAGS_MAX = 16_384
"""The most tags of a pull's own expression, which the pull worker reads anew each time (csrc/ipc/worker_messages.h)."""
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim takes off; str.strip takes other spaces too


def string_hash(text: str) -> int:
    """`String.hashCode`: s[0]*31^(n-1) + ... over the UTF-16 units, signed 32-bit."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def expression_tags(expression: str) -> list[str] | None:
    """The tags that an expression like `TagA || TagB` selects; None: all messages (`*`, or nothing).

    An expression of blanks and bars selects nothing. csrc/workers/pull/subscription.c reads it in the same way.
    Source: RocketMQ 4.9 `FilterAPI#buildSubscriptionData`.
    """
    if expression in ("", "*"):
        return None
    return [tag for part in expression.split("||") if (tag := part.strip(_BLANKS))]


def has_too_many_tags(expression: str) -> bool:
    """Return True if the pull worker does not read the expression. It counts bars, also those between blanks."""
    return expression.count("||") >= EXPRESSION_TAGS_MAX


def tags_code(tags: str | None) -> int:
    """Return the hash of a message's TAGS that the ConsumeQueue stores; 0 for a message without."""
    return string_hash(tags) if tags else 0


def index_hash(key: str) -> int:
    """Hash of an index key (`topic#key`): never negative."""
    value = string_hash(key)
    return 0 if value == INT_MIN else abs(value)


def index_keys(topic: str, message_properties: dict[str, str]) -> list[str]:
    """Every key under which the index finds a message: its unique id, then the first INDEX_KEYS_MAX of its KEYS."""
    unique = message_properties.get(properties.UNIQ_KEY)
    keys = message_properties.get(properties.KEYS, "").split(properties.KEY_SEPARATOR)
    return [f"{topic}#{key}" for key in ([unique] if unique else []) + [key for key in keys if key][:INDEX_KEYS_MAX]]
