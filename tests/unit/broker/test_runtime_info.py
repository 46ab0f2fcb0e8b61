"""Which pools the log tells of, and how often."""

from __future__ import annotations

import logging

import pytest

from rocketpy.broker.runtime_info import WATER_MARK_INTERVAL_S, WaterMarks
from rocketpy.remoting.limits import PoolLoad


def test_a_pool_that_is_behind_has_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    time_s, loads = (
        [0.0],
        {"send": PoolLoad(7, 100, 230), "send_back": PoolLoad(1, 100, 100), "pull": PoolLoad(9, 9, 99)},
    )
    marks = WaterMarks(lambda: loads, lambda: time_s[0])
    for time_s[0] in (0.0, 1.0, 9.0):
        marks.look()
    loads["pull"] = PoolLoad(1, 9, 5_000)
    for time_s[0] in (9.5, WATER_MARK_INTERVAL_S):
        marks.look()
    assert [record.getMessage() for record in caplog.records] == [
        "[WATERMARK] Send Queue Size: 7 SlowTimeMills: 230",
        "[WATERMARK] Send Back Queue Size: 1 SlowTimeMills: 100",
        "[WATERMARK] Pull Queue Size: 1 SlowTimeMills: 5000",
        "[WATERMARK] Send Queue Size: 7 SlowTimeMills: 230",
        "[WATERMARK] Send Back Queue Size: 1 SlowTimeMills: 100",
    ]
