"""The lag is the age of the oldest byte that waits; never said to be smaller than it is."""

from bench.lag import Sample, lags_ms


def test_nothing_waits() -> None:
    assert lags_ms([Sample(0.0, 10, 10), Sample(0.001, 20, 20)]) == [0.0, 0.0]


def test_the_age_of_the_first_byte_that_waits() -> None:
    samples = [Sample(0.0, 100, 100), Sample(0.010, 200, 100), Sample(0.020, 300, 150), Sample(0.030, 300, 200)]
    # Byte 100 came after 0.000; byte 150 too (it was there at 0.010); byte 200 after 0.010.
    assert [round(lag) for lag in lags_ms(samples)] == [0, 10, 20, 20]


def test_what_waited_before_the_first_sample_is_counted_from_there() -> None:
    assert [round(lag) for lag in lags_ms([Sample(5.0, 100, 50), Sample(5.004, 100, 50)])] == [0, 4]
