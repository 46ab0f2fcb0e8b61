"""What `String.hashCode` of Java gives."""

from __future__ import annotations

JAVA_HASHES = [
    ("", 0),
    ("*", 42),
    ("a", 97),
    ("d", 100),
    ("TagA", 2598919),
    ("TagB", 2598920),
    ("TagC", 2598921),
    ("标签", 857175),
    ("订单", 1129459),
    ("Ω", 937),
    ("\U0001d11e", 1772394),
    ("tag-with-a-very-long-name-0123456789", -1367646643),
    ("polygenelubricants", -(1 << 31)),
]
