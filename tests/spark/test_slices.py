"""Answers of pulls on their way to batches."""

from __future__ import annotations

import pytest

from rocketpy.client.results import PullStatus, StoredPull
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.pulls import Answer, Slice
from rocketpy.spark.slices import joinable


def answer(size: int, broker: str = "b", behind: int = 0) -> Answer:
    run = Slice(MessageQueue("T", broker, 0), 0, 10)
    return Answer(run, StoredPull(PullStatus.FOUND, 10 + behind, 0, 100, bytes(size)))


def sizes(answers: list[Answer]) -> list[list[int]]:
    return [[len(one.pulled.body) for one in group] for group in joinable(answers, 10)]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], []),
        ([5], [[5]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([11, 3, 3, 3, 3], [[11], [3, 3, 3], [3]]),
        ([1, 30, 1], [[1], [30], [1]]),
        ([0, 0], [[0, 0]]),
    ],
)
def test_answers_are_joined_up_to_a_size(given: list[int], wanted: list[list[int]]) -> None:
    assert sizes([answer(size) for size in given]) == wanted


def test_answers_of_several_brokers_are_not_joined() -> None:
    assert sizes([answer(1), answer(2), answer(3, "c"), answer(4, "c")]) == [[1, 2], [3, 4]]


def test_an_answer_with_messages_behind_its_run_is_alone() -> None:
    assert sizes([answer(1), answer(2), answer(3, behind=1), answer(4, behind=1), answer(5)]) == [[1, 2], [3], [4], [5]]
