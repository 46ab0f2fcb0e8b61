"""Faults are counted by place and logged once in a while, in bounded lines."""

from __future__ import annotations

import logging

import pytest

from rocketpy.faults import FRAMES_MAX, TEXT_MAX, Faults, do_each
from rocketpy.logs import LOG_INTERVAL_S


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_the_first_of_a_place_is_logged_the_next_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: Strangers could fill the log with unreadable frames and failing requests."""
    clock = Clock()
    faults = Faults(clock)
    for _ in range(1000):
        faults.report("HEART_BEAT", ValueError("bad"))
    faults.report("a duty", "went wrong")
    assert faults.counts == {"HEART_BEAT": 1000, "a duty": 1}
    assert lines(caplog) == ["failed: HEART_BEAT: ValueError: bad", "failed: a duty: went wrong"]
    clock.now_s += LOG_INTERVAL_S
    faults.report("HEART_BEAT", ValueError("again"))
    assert lines(caplog) == ["failed: HEART_BEAT (and 999 more since the last line about it): ValueError: again"]


def test_a_line_is_bounded_and_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    Faults().report("x", ValueError("\n\x1b[2J\ud800é" + "a" * 10_000_000))
    (line,) = lines(caplog)
    assert line.startswith("failed: x: ValueError: \\n\\x1b[2J\\ud800\\xe9aaa")
    assert len(line) < 2 * TEXT_MAX and line.isascii() and line.isprintable()


def deep(n: int) -> None:
    if n == 0:
        raise KeyError("at the bottom")
    deep(n - 1)


def test_the_innermost_frames_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    try:
        deep(200)
    except KeyError as exc:
        Faults().report("x", ExceptionGroup("several", [ExceptionGroup("nested", [exc])]))
    (text,) = lines(caplog)
    assert "KeyError: 'at the bottom'" in text
    assert 'raise KeyError("at the bottom")' in text
    assert text.count("\n") <= 3 * FRAMES_MAX


def test_each_is_done_though_some_fail() -> None:
    done: list[int] = []

    def act(n: int) -> None:
        done.append(n)
        if n % 2:
            raise ValueError(n)

    with pytest.raises(ExceptionGroup) as raised:
        do_each(act, range(5))
    assert done == [0, 1, 2, 3, 4] and len(raised.value.exceptions) == 2
    do_each(done.append, [7])
