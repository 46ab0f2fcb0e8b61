"""The two ids of a message, upper-case hex.

    offsetMsgId  (broker)  store host address 4/16, port 4, CommitLog offset 8
    unique id    (client)  address 4/16, process id 2, loader hash 4, ms in this month 4, counter 2

Both are 32 characters with an IPv4 address, 56 with an IPv6 one. Ids of other clients are opaque: Go's are partly lower
case; they are never checked or changed.
"""

from __future__ import annotations

import struct
from datetime import datetime

import attrs

from rocketpy.errors import MessageInvalid
from rocketpy.message.numbers import PhyOffset

from .host import Host, pack_host, unpack_host

_OFFSET = struct.Struct(">q")
_UNIQUE_MIDDLE = struct.Struct(
    ">H"  # process id, low 16 bits
    "I"  # loader hash: tells clients of one process apart
)
_HEX = tuple(f"{byte:02X}" for byte in range(256))  # a format with a width takes three times as long as two look-ups
ID_LENGTH_V4 = 32
ID_LENGTH_V6 = 56


@attrs.frozen
class OffsetMessageId:
    """The place of a message, as its offsetMsgId has it."""

    store_host: Host
    phy_offset: PhyOffset


def encode_offset_message_id(store_host: Host, phy_offset: int) -> str:
    """The id that the broker gives a message."""
    return (pack_host(store_host) + _OFFSET.pack(phy_offset)).hex().upper()


def decode_offset_message_id(message_id: str) -> OffsetMessageId:
    """Return the place of the message.

    Raises:
        MessageInvalid: no offsetMsgId.
    """
    if len(message_id) not in (ID_LENGTH_V4, ID_LENGTH_V6):
        raise MessageInvalid(f"message id {message_id[:80]!r} has {len(message_id)} characters, expected 32 or 56")
    try:
        packed = bytes.fromhex(message_id)
    except ValueError as exc:
        raise MessageInvalid(f"message id {message_id!r} is not hexadecimal") from exc
    if len(packed) * 2 != len(message_id):
        raise MessageInvalid(f"message id {message_id!r} is not hexadecimal")
    return OffsetMessageId(unpack_host(packed[:-8]), PhyOffset(_OFFSET.unpack_from(packed, len(packed) - 8)[0]))


class UniqueIdGenerator:
    """Makes the unique ids of one client; not for several threads.

    The counter has 16 bits: uniqueness holds while fewer than 65536 ids are made per millisecond.
    """

    def __init__(self, address: str, process_id: int, loader_hash: int) -> None:
        """`address` is the client's own, numeric; `loader_hash` any 32 bits that differ between generators."""
        middle = _UNIQUE_MIDDLE.pack(process_id & 0xFFFF, loader_hash & 0xFFFFFFFF)
        self._begin = (pack_host((address, 0))[:-4] + middle).hex().upper()
        self._counter = 0
        self._begin_now = ""  # the beginning of the ids of this millisecond
        self._since_s = self._until_s = 0.0  # its first id, and its end
        self._month_start_s = 0.0
        self._month_end_s = 0.0

    def next_id(self, now_s: float) -> str:
        """A new id; `now_s` is the wall clock in seconds."""
        if not self._since_s <= now_s < self._until_s:
            self._enter_millisecond(now_s)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._begin_now}{_HEX[counter >> 8]}{_HEX[counter & 0xFF]}"

    def _enter_millisecond(self, now_s: float) -> None:
        if not self._month_start_s <= now_s < self._month_end_s:
            self._enter_month(now_s)
        elapsed_ms = int((now_s - self._month_start_s) * 1000)  # Java's int, which turns negative on the 25th
        self._begin_now = f"{self._begin}{elapsed_ms & 0xFFFFFFFF:08X}"
        self._since_s, self._until_s = now_s, self._month_start_s + (elapsed_ms + 1) / 1000

    def _enter_month(self, now_s: float) -> None:
        first = datetime.fromtimestamp(now_s).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        self._month_start_s, self._month_end_s = first.timestamp(), after.timestamp()
