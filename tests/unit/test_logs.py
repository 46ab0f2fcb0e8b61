"""One line in an interval, and none of the events between is lost from the numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from rocketpy.logs import LogLimit, and_more

NOW_S = [100.0]


def limit() -> LogLimit:
    NOW_S[0] = 100.0
    return LogLimit(10.0, lambda: NOW_S[0])


def test_the_first_event_is_told_and_the_next_are_counted() -> None:
    one = limit()
    assert [one.take() for _ in range(4)] == [1, 0, 0, 0]
    NOW_S[0] = 109.9
    assert one.take() == 0
    NOW_S[0] = 110.0
    assert one.take() == 5


def test_kinds_do_not_hold_one_another_back() -> None:
    one = limit()
    assert [one.take("a"), one.take("b"), one.take("a"), one.take("b", 7)] == [1, 1, 0, 0]
    NOW_S[0] = 110.0
    assert [one.take("a"), one.take("b")] == [2, 8]


def test_a_look_without_new_events_tells_those_held_back_once() -> None:
    one = limit()
    assert one.take(count=0) == 0  # nothing has happened yet, and the interval has not begun
    assert one.take(count=3) == 3
    assert one.take(count=4) == 0
    NOW_S[0] = 110.0
    assert [one.take(count=0), one.take(count=0)] == [4, 0]


def test_threads_tell_each_event_once() -> None:
    one = limit()
    with ThreadPoolExecutor(8) as pool:
        told = sum(pool.map(lambda _: one.take("x"), range(4000)))
    NOW_S[0] = 110.0
    assert told == 1 and one.take("x", 0) == 3999


def test_the_words_of_a_line() -> None:
    assert and_more(1) == ""
    assert and_more(3) == " (and 2 more since the last line about it)"
