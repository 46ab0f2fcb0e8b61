"""Long steps of recovery say once a second how far they are."""

from __future__ import annotations

import logging
import time

import pytest

from rocketpy.store.recovery.log_files import Progress

MIB = 1 << 20


def test_a_step_says_once_a_second_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    caplog.set_level(logging.INFO)
    progress = Progress("scanning the log", 10 * MIB, 110 * MIB)
    for now_s, at in ((50.9, 15), (51.0, 20), (51.9, 25), (52.0, 30), (60.0, 120)):  # noqa: B007 - read by the clock
        progress(at * MIB)
    assert progress.elapsed_s == 10.0
    assert caplog.messages == [
        "progress of scanning the log: 10 of 100 MiB, 10 MiB/s",
        "progress of scanning the log: 20 of 100 MiB, 10 MiB/s",
        "progress of scanning the log: 110 of 110 MiB, 11 MiB/s",
    ]
