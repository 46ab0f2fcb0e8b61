"""CRC-32: golden values, every size and alignment around the steps of the folding loop."""

import random
import zlib

import pytest

from tests.support.core_formats import crc32, ffi, lib

GOLDEN = [
    (b"", 0),
    (b"a", 0xE8B7BE43),
    (b"123456789", 0xCBF43926),
    (b"hello rocketpy", 0x02879F27),
    ("第二条".encode(), 0x7DCB38CC),
    (bytes(range(256)), 0x29058C73),
    (bytes(1024), 0xEFB5AF2E),
]


@pytest.mark.parametrize(("data", "crc"), GOLDEN)
def test_golden(data: bytes, crc: int) -> None:
    assert crc32(data) == crc


def test_goes_on_from_an_earlier_result() -> None:
    data = random.Random(1).randbytes(1000)
    for cut in (0, 1, 15, 16, 17, 63, 64, 65, 500, 1000):
        assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)


def test_reads_any_buffer() -> None:
    data = bytes(range(200))
    assert crc32(bytearray(data)) == crc32(memoryview(data)) == zlib.crc32(data)


def test_every_size_and_alignment_by_folding_and_by_table() -> None:
    data = random.Random(2).randbytes(700)
    view = ffi.from_buffer("uint8_t[]", data)
    for start in range(17):
        for size in range(0, 400, 1 if start < 2 else 7):
            expected = zlib.crc32(data[start : start + size], 0xDEADBEEF)
            assert lib.rp_crc32(0xDEADBEEF, view + start, size) == expected, (start, size)
            assert lib.rp_crc32_table(0xDEADBEEF, view + start, size) == expected, (start, size)
