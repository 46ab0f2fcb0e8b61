"""The consume queue unit, byte for byte."""

from __future__ import annotations

import random

from rocketpy.store.formats.unit import BLANK_UNIT, BLANKS_MAX, CQ_UNIT, first_unit_at, rounded_file_size


def test_queue_file_sizes_are_whole_units() -> None:
    """Holds: store, consume queues of 20-byte units."""
    assert [rounded_file_size(size) for size in (1, 20, 21, 6_000_000)] == [20, 20, 40, 6_000_000]


def test_golden_units() -> None:
    """Holds: store, consume queues of 20-byte units."""
    assert CQ_UNIT.pack(1 << 30, 178, 2_598_919).hex() == "0000000040000000000000b2000000000027a807"
    assert CQ_UNIT.pack(0, 100, -1_367_646_643).hex() == "000000000000000000000064ffffffffae7b5e4d"
    assert CQ_UNIT.pack(0, 166, 1_700_000_010_123).hex() == "0000000000000000000000a60000018bcfe58f8b"
    assert BLANK_UNIT.hex() == "00000000000000007fffffff0000000000000000"


def test_the_first_unit_of_a_record_is_found_in_any_queue_with_blanks() -> None:
    """The same as by looking at every unit; files of 7 units, of which the first ones may be missing.
    Fault: Blank units in the middle of a queue hid all earlier messages after a restart or after cleaning."""
    choose = random.Random(4)
    for _ in range(2_000):
        count = choose.randrange(1, 40)
        blank_share = choose.choice((0.0, 0.2, 0.9))
        units = [None if choose.random() < blank_share else 100 * n for n in range(count)]
        missing = choose.choice((0, 0, choose.randrange(count + 1))) // 7 * 7
        low, wanted = choose.randrange(count + 1), choose.randrange(-1, 4_000)

        def read(offset: int, size: int, units: list[int | None] = units, missing: int = missing) -> bytes:
            assert size > 0
            if offset < missing:
                return b""
            some = units[offset : min(offset + size, offset - offset % 7 + 7)]
            return b"".join(BLANK_UNIT if phy is None else CQ_UNIT.pack(phy, 10, 0) for phy in some)

        found = [n for n in range(max(low, missing), count) if (phy := units[n]) is not None and phy >= wanted]
        expected = found[0] if found else count
        assert first_unit_at(read, low, count, wanted) == expected, (units, missing, low, wanted)


def test_long_runs_of_blanks_are_read_in_large_pieces() -> None:
    count, reads = 300_000, []

    def read(offset: int, size: int) -> bytes:
        reads.append(size)
        return BLANK_UNIT * min(size, count - 1 - offset) or CQ_UNIT.pack(500, 10, 0)

    assert first_unit_at(read, 0, count, 500) == count - 1
    assert max(reads) == BLANKS_MAX and len(reads) < 300
