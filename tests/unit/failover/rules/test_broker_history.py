"""The check of histories of real brokers finds each broken promise, and nothing where all hold."""

from __future__ import annotations

import pytest

from tests.support.ha.history import Answer, History, Place


def answer(
    number: int, offset: int, *, member: str = "a", sent_s: float = 0.0, code: int = 0, queue_id: int = 0
) -> Answer:
    return Answer(f"s.0.{number}", 0, number, code, member, (queue_id, offset), sent_s, sent_s + 0.5)


def stored(*answers: Answer) -> dict[Place, str]:
    return {each.place: each.key for each in answers}


def history_of(*answers: Answer, epochs: str = "a") -> History:
    """`epochs`: the master of epoch 1, 2, ..."""
    history = History()
    for each in answers:
        history.answered(each)
    for epoch, master in enumerate(epochs, 1):
        history.appointed(epoch, master)
    return history


def test_a_history_in_which_all_holds() -> None:
    answers = [answer(1, 0), answer(2, 1, sent_s=1.0), answer(3, 2, member="b", sent_s=2.0), answer(4, 3, sent_s=3.0)]
    history = history_of(*answers, answer(5, 9, code=12, sent_s=4.0), epochs="aba")
    for each in answers:
        history.shown("a", each.place, each.key)
        history.shown("b", each.place, each.key)
    history.check(stored(*answers))
    assert history.codes() == {0: 4, 12: 1} and history.longest_gap_s() == 1.0


@pytest.mark.parametrize("place", [{}, {(0, 0): "other"}, {(0, 1): "s.0.1"}])
def test_an_acknowledged_message_that_is_not_where_it_was_acknowledged(place: dict[Place, str]) -> None:
    with pytest.raises(AssertionError, match="acknowledged and not there: 1"):
        history_of(answer(1, 0)).check(place)


def test_a_place_that_shows_two_messages() -> None:
    history = history_of()
    history.shown("a", (0, 0), "x")
    history.shown("b", (0, 0), "y")
    with pytest.raises(AssertionError, match=r"shown twice: 1\n  b shows y at \(0, 0\), a showed x"):
        history.check({(0, 0): "x"})


def test_a_message_that_was_seen_and_is_gone() -> None:
    history = history_of()
    history.shown("b", (0, 7), "x")
    with pytest.raises(AssertionError, match="seen and gone: 1"):
        history.check({})


def test_messages_of_a_sender_out_of_order() -> None:
    answers = [answer(1, 5), answer(2, 4, sent_s=1.0), answer(3, 0, queue_id=1, sent_s=2.0)]
    with pytest.raises(AssertionError, match="out of order: 1"):
        history_of(*answers).check(stored(*answers))


@pytest.mark.parametrize(
    ("last", "epochs", "holds"),
    [
        (answer(3, 2, sent_s=2.0), "ab", False),  # a acknowledges what was sent after b had acknowledged
        (answer(3, 2, sent_s=2.0), "aba", True),  # it was elected again
        (answer(3, 2, sent_s=1.4), "ab", True),  # sent before b had acknowledged anything
        (answer(3, 2, member="c", sent_s=2.0), "ab", False),  # never a master
    ],
)
def test_two_masters_that_acknowledge(last: Answer, epochs: str, holds: bool) -> None:
    answers = [answer(1, 0), answer(2, 1, member="b", sent_s=1.0), last]
    history = history_of(*answers, epochs=epochs)
    if holds:
        history.check(stored(*answers))
        return
    with pytest.raises(AssertionError, match="two masters: 1"):
        history.check(stored(*answers))
