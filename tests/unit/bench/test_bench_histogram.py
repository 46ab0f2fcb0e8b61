"""The driver's histogram: one bucket per value, narrow ones, and hdrhistogram sees the same distribution."""

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.bench.load import lib, summarize, to_hdr

VALUE_MAX = (1 << 42) - 1


@given(st.integers(0, VALUE_MAX))
def test_a_value_lies_in_its_bucket(value: int) -> None:
    bucket = lib.load_bucket(value)
    low, end = lib.load_bucket_low(bucket), lib.load_bucket_low(bucket + 1)
    assert low <= value < end
    assert end - low <= max(1, value / 128)


def test_buckets_follow_one_another() -> None:
    lows = [lib.load_bucket_low(bucket) for bucket in range(lib.load_bucket_count())]
    assert lows == sorted(set(lows))
    assert lib.load_bucket(VALUE_MAX) == lib.load_bucket(1 << 60) == lib.load_bucket_count() - 1


@given(st.lists(st.integers(1000, 10**10), min_size=1, max_size=200))
def test_percentiles_survive_the_way_to_hdrhistogram(values: list[int]) -> None:
    counts = [0] * lib.load_bucket_count()
    for value in values:
        counts[lib.load_bucket(value)] += 1
    latency = summarize(to_hdr(counts, max(values)))
    exact = sorted(values)[(len(values) + 1) // 2 - 1] / 1000
    assert latency.count == len(values)
    assert abs(latency.p50 - exact) <= 0.01 * exact + 0.1
    assert latency.p50 <= latency.p90 <= latency.p99 <= latency.p999 <= latency.max * 1.001
