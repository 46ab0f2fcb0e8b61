"""The bits of a message's `sysFlag` (`MessageSysFlag`), of permissions and of topics."""

from __future__ import annotations

from enum import IntEnum, IntFlag

COMPRESSED = 0x1
MULTI_TAGS = 0x2  # the topic's filter type is MULTI_TAG; set by the broker
TRANSACTION_NOT = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10  # set by the store from the address
STORE_HOST_V6 = 0x20  # set by the store from the address
NEED_UNWRAP = 0x40  # 5.x inner batches: must stay 0
INNER_BATCH = 0x80
COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x700


class CompressionType(IntEnum):
    """The compression of a body: bits 8 to 10."""

    LEGACY_ZLIB = 0  # older senders and Go set no type
    LZ4 = 1  # LZ4 frame
    ZSTD = 2  # zstd frame
    ZLIB = 3  # zlib stream, RFC 1950


class PermName(IntFlag):
    """Permissions of a topic or broker."""

    INHERIT = 0x1
    WRITE = 0x2
    READ = 0x4
    PRIORITY = 0x8

    def __str__(self) -> str:
        return "".join(letter if self & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


TOPIC_SYS_FLAG_UNIT = 0x1
TOPIC_SYS_FLAG_UNIT_SUB = 0x2


def is_compressed(sys_flag: int) -> bool:
    return bool(sys_flag & COMPRESSED)


def compression_type(sys_flag: int) -> int:
    """The number in bits 8 to 10; of a CompressionType unless the sender is odd."""
    return (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT


def with_compression(sys_flag: int, compression: CompressionType) -> int:
    return (sys_flag & ~COMPRESSION_MASK) | COMPRESSED | compression << COMPRESSION_SHIFT


def without_compression(sys_flag: int) -> int:
    return sys_flag & ~(COMPRESSED | COMPRESSION_MASK)
