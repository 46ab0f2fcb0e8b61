from __future__ import annotations

from rocketpy.console.history import HOUR_MS, POINTS_MAX, STEP_MS, History


def test_an_hour_fits_and_no_more() -> None:
    history = History()
    for n in range(3 * POINTS_MAX):
        history.add(n * STEP_MS, n)
    now_ms = (3 * POINTS_MAX - 1) * STEP_MS
    assert len(history) == POINTS_MAX
    assert history.points(now_ms)[0] == (2 * POINTS_MAX * STEP_MS, 2 * POINTS_MAX)
    assert history.last == 3 * POINTS_MAX - 1


def test_points_that_come_often_take_no_more_room() -> None:
    history = History()
    for n in range(100):
        history.add(n * STEP_MS / 100, n)
    assert history.points(STEP_MS) == [(0, 99)]


def test_a_point_is_gone_after_an_hour_also_without_a_new_one() -> None:
    history = History()
    history.add(0, 1)
    assert history.points(HOUR_MS) == [(0, 1)]
    assert history.points(HOUR_MS + 1) == []


def test_a_clock_that_went_back_leaves_no_points_in_the_future() -> None:
    history = History()
    for n in range(5):
        history.add(n * STEP_MS, n)
    history.add(STEP_MS, 7)
    assert history.points(5 * STEP_MS) == [(0, 0), (STEP_MS, 7)]
