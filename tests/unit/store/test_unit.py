"""The consume queue unit, byte for byte."""

from __future__ import annotations

from rocketpy.store.formats.unit import BLANK_UNIT, CQ_UNIT, rounded_file_size


def test_queue_file_sizes_are_whole_units() -> None:
    assert [rounded_file_size(size) for size in (1, 20, 21, 6_000_000)] == [20, 20, 40, 6_000_000]


def test_golden_units() -> None:
    assert CQ_UNIT.pack(1 << 30, 178, 2_598_919).hex() == "0000000040000000000000b2000000000027a807"
    assert CQ_UNIT.pack(0, 100, -1_367_646_643).hex() == "000000000000000000000064ffffffffae7b5e4d"
    assert CQ_UNIT.pack(0, 166, 1_700_000_010_123).hex() == "0000000000000000000000a60000018bcfe58f8b"
    assert BLANK_UNIT.hex() == "00000000000000007fffffff0000000000000000"
