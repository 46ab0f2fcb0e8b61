"""Filter bits: a Bloom filter of the subscriptions that a message matches, kept in the consume queue's extension.

Each subscription has a few positions among the bits of a message. A message without all of them does not match the
subscription; one that has them may.

Source: RocketMQ 4.9 `BloomFilter` (its positions come from MurmurHash3, x64, 128 bits, seed 0).
"""

from __future__ import annotations

import math

import attrs

BITS_MAX = 512  # csrc/store/queues/consume_queue_ext.h, RP_CQ_EXT_BITMAP_MAX
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@attrs.frozen
class BloomFilter:
    """A filter of `bit_count` bits for `expected` subscriptions; `error_percent` is the probability of a false
    match."""

    bit_count: int
    positions_count: int

    @classmethod
    def of(cls, error_percent: int, expected: int) -> BloomFilter:
        error = error_percent / 100
        bits = math.ceil(expected * math.log2(1 / error) * math.log2(math.e))
        return cls(-(-bits // 8) * 8, math.ceil(math.log(error) / math.log(0.5)))

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        hashed = _murmur3(f"{group}#{topic}".encode())
        first, second = _signed(hashed), _signed(hashed >> 32)
        mixed = (_signed(first + number * second) for number in range(1, self.positions_count + 1))
        return tuple((value if value >= 0 else ~value) % self.bit_count for value in mixed)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _first(word: int) -> int:
    return _rotated(word * _C1 & _MASK, 31) * _C2 & _MASK


def _second(word: int) -> int:
    return _rotated(word * _C2 & _MASK, 33) * _C1 & _MASK


def _murmur3(data: bytes) -> int:
    """The first 64 bits of the 128."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _first(int.from_bytes(data[at : at + 8], "little"))
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _second(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h2 ^= _second(int.from_bytes(tail[8:], "little"))
    h1 ^= _first(int.from_bytes(tail[:8], "little"))
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK
