"""Filter bits of the reference."""

import pytest

from rocketpy.filter.bloom import BITS_MAX, BloomFilter


@pytest.mark.parametrize(
    ("error_percent", "expected", "bit_count", "positions_count"),
    [(20, 32, 112, 3), (10, 32, 160, 4), (20, 64, 216, 3), (1, 32, 312, 7)],
)
def test_sizes(error_percent: int, expected: int, bit_count: int, positions_count: int) -> None:
    assert BloomFilter.of(error_percent, expected) == BloomFilter(bit_count, positions_count)


@pytest.mark.parametrize(
    ("group", "topic", "positions"),
    [("CID_test", "TopicTest", (47, 102, 45)), ("g", "t", (22, 87, 58))],
)
def test_positions(group: str, topic: str, positions: tuple[int, ...]) -> None:
    assert BloomFilter.of(20, 32).positions(group, topic) == positions


def test_all_lengths_of_names() -> None:
    """Every remainder of the hash's blocks of 16 bytes."""
    bloom = BloomFilter.of(20, 32)
    seen = {bloom.positions("g" * n, "t" * n) for n in range(1, 40)}
    assert len(seen) > 30 and all(0 <= bit < 112 for positions in seen for bit in positions)


def test_the_largest_is_that_of_the_compiled_core() -> None:
    core = pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    assert core.lib.RP_CQ_EXT_BITMAP_MAX * 8 == BITS_MAX
