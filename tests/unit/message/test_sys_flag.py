"""Bits of sys flags and permissions."""

from rocketpy.message import sys_flag
from rocketpy.message.sys_flag import CompressionType, PermName


def test_compression_bits() -> None:
    assert sys_flag.is_compressed(769) and sys_flag.compression_type(769) == CompressionType.ZLIB
    assert sys_flag.with_compression(769, CompressionType.LZ4) == 0x101
    assert sys_flag.without_compression(769 | 0x30) == 0x30


def test_permissions_print_as_letters() -> None:
    assert [str(PermName(value)) for value in (0, 2, 4, 6, 7)] == ["---", "-W-", "R--", "RW-", "RWX"]
