"""The frames of a handshake between brokers of rocketpy (csrc/replication/frames.h): JSON objects of at most 64 KiB.

What the other side sends is checked field by field; its names and reasons are made printable before they are logged.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from rocketpy.codes import REPLICATION_VERSION_LOWEST
from rocketpy.errors import ProtocolError
from rocketpy.native.core import lib
from rocketpy.remoting import fastjson

FRAME = struct.Struct(
    ">I"  # bytes that follow, the type included
    "B"  # type
)
DATA = struct.Struct(
    ">q"  # position of the first byte
    "q"  # what is confirmed; without failover the master's end
    "i"  # epoch
    "I"  # CRC-32 of the bytes, which follow
)
MAGIC = b"\xffRPHA\x00\x00" + bytes([REPLICATION_VERSION_LOWEST])
JSON_MAX = int(lib.RP_HA_JSON_MAX)
TEXT_MAX = 500  # characters of the other side's text in a line of the log
POSITION_MAX = 2**63 - 1
TLS_HANDSHAKE = b"\x16"  # the first byte of a connection by TLS; as one of a position it would be beyond any log


class FrameInvalid(ProtocolError):
    """The other side sent a frame that does not say what it must."""


def encode(kind: int, fields: Mapping[str, Any]) -> bytes:
    body = json.dumps(fields, separators=(",", ":")).encode()
    return FRAME.pack(1 + len(body), kind) + body


def fenced(epoch: int) -> bytes:
    """FENCED, the only frame of a stream that Python sends."""
    return FRAME.pack(5, lib.RP_HA_TYPE_FENCED) + struct.pack(">i", epoch)


class Fields:
    """The fields of a frame that has come.

    Raises:
        FrameInvalid: it is no JSON object, or a field has no value of its kind.
    """

    def __init__(self, body: bytes) -> None:
        try:
            value = fastjson.loads(body, is_strict=True)
        except ProtocolError as exc:
            raise FrameInvalid(str(exc)) from exc
        if not isinstance(value, dict):
            raise FrameInvalid("it is no JSON object")
        self._value: dict[Any, Any] = value

    def number(self, name: str, at_most: int = POSITION_MAX) -> int:
        value = self._value.get(name)
        if type(value) is not int or not 0 <= value <= at_most:
            raise FrameInvalid(f"{name} is no number from 0 to {at_most}")
        return value

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise FrameInvalid(f"{name} is no text")
        return value

    def part(self, name: str) -> Fields | None:
        """An object in it; None: it is null."""
        value = self._value.get(name, "")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise FrameInvalid(f"{name} is no object")
        part = Fields.__new__(Fields)
        part._value = value
        return part

    def pairs(self, name: str, count_max: int, at_most: tuple[int, int]) -> list[tuple[int, int]]:
        """A list of pairs of numbers."""
        value = self._value.get(name)
        if not isinstance(value, list) or len(value) > count_max:
            raise FrameInvalid(f"{name} is no list of at most {count_max} pairs")
        for pair in value:
            if not isinstance(pair, list) or len(pair) != 2 or not all(type(number) is int for number in pair):
                raise FrameInvalid(f"{name} has something that is no pair of numbers")
            if not all(0 <= number <= limit for number, limit in zip(pair, at_most, strict=True)):
                raise FrameInvalid(f"{name} has a number that is not from 0 to its limit")
        return [(first, second) for first, second in value]

    def has(self, name: str) -> bool:
        return name in self._value

    def is_null(self, name: str) -> bool:
        return self._value.get(name, "") is None


def printable(text: str) -> str:
    """A text of the other side, for one line of the log."""
    return "".join(char if char.isprintable() else "?" for char in text[:TEXT_MAX])
