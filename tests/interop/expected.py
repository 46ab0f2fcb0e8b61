"""What a message must look like, whoever sent it and whoever reads it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from .programs import Event

TEXT = "Grüße, 世界"


def body(prefix: str, number: int, size: int = 0) -> bytes:
    """As the programs of all languages make it: readable, and worth compressing when long."""
    pieces = [f"{prefix}-{number}"]
    length = len(pieces[0])
    while length < size:
        pieces.append(f" line {len(pieces) - 1}")
        length += len(pieces[-1])
    return "".join(pieces).encode()


def check_messages(
    read: Iterable[Event], prefix: str, numbers: Iterable[int], *, tags: str = "TagA", size: int = 0
) -> None:
    """Each of `numbers` was read exactly once, with everything that was sent with it."""
    by_number = {}
    for event in read:
        number = int(event["properties"]["number"])
        assert number not in by_number, f"{prefix}-{number} was read twice"
        by_number[number] = event
    assert sorted(by_number) == sorted(numbers)
    choice = tags.split(",")
    for number, event in by_number.items():
        sent = body(prefix, number, size)
        assert event["key"] == f"{prefix}-{number}"
        assert event["tags"] == choice[number % len(choice)]
        assert event["properties"]["text"] == TEXT
        assert event["properties"]["KEYS"] == event["key"]
        assert event["flag"] == number
        assert event["bodySize"] == len(sent)
        assert event["bodyCrc"] == zlib.crc32(sent)
        assert event["reconsumeTimes"] == 0


def of_prefix(read: Iterable[Event], prefix: str) -> list[Event]:
    return [event for event in read if event["key"].rpartition("-")[0] == prefix]


def places(read: Iterable[Event]) -> list[tuple[int, int]]:
    """(queue, offset) of each, in reading order."""
    return [(event["queueId"], event["queueOffset"]) for event in read]
