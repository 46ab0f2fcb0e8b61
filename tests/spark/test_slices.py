"""Answers of pulls on their way to batches."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from rocketpy.client.options import ClientOptions
from rocketpy.client.results import PullStatus, StoredPull
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark import slices
from rocketpy.spark.data_lost import RecordsGone
from rocketpy.spark.options import parse_options
from rocketpy.spark.pulls import Answer, Slice
from rocketpy.spark.slices import joinable
from rocketpy.spark.topic_options import TopicOptions
from tests.support.log_images import image_of, record


def answer(size: int, broker: str = "b", behind: int = 0) -> Answer:
    run = Slice(MessageQueue("T", broker, 0), 0, 10)
    return Answer(run, 0, StoredPull(PullStatus.FOUND, 10 + behind, 0, 100, bytes(size)))


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


class Given:
    """A cluster that has these answers, the first of them for direct pulls. It is the pulls of both kinds as well."""

    def __init__(self, answers: list[Answer], direct: int) -> None:
        self.lost: Counter[MessageQueue] = Counter()
        self._direct = [answers[:direct]]
        self._answers = [answers[direct:]]
        self.rest = [one.run for one in answers[direct:]]
        self.has_direct_pulls = direct > 0

    def get(self, options: ClientOptions) -> Given:
        return self

    def direct_pulls(self, slices: object, settings: object) -> DirectGiven | None:
        return DirectGiven(self) if self.has_direct_pulls else None

    def start_pulls(self, slices: list[Slice], settings: object) -> Given:
        assert slices == self.rest or not self.has_direct_pulls
        return self

    def take(self, pulls: Given, size: int) -> list[Answer]:
        return self._answers.pop() if self._answers else []

    def stop_pulls(self, pulls: Given) -> None:
        pass


@attrs.frozen
class DirectGiven:
    given: Given

    @property
    def rest(self) -> list[Slice]:
        return self.given.rest

    def take(self, size: int) -> list[Answer]:
        return self.given._direct.pop() if self.given._direct else []

    def close(self) -> None:
        pass


def offsets(monkeypatch: pytest.MonkeyPatch, *, direct: int = 0, skipped: int = 0, **options: str) -> list[int]:
    """What is read of three answers, of which the second one, for the offsets 3 to 6, lacks record 5. The last one goes
    on after so many further offsets."""
    queue, image = MessageQueue("T", "b", 0), image_of([record("T", b"%d" % n) for n in range(10)])
    stops = [*image.records[1:], len(image.data)]
    pieces = [image.data[at:stop] for at, stop in zip(image.records, stops, strict=True)]
    answers = [
        Answer(
            Slice(queue, low, high),
            low,
            StoredPull(PullStatus.FOUND, high + more, 0, 10, b"".join(pieces[low : high - less])),
        )
        for low, high, less, more in ((0, 3, 0, 0), (3, 6, 1, 0), (6, 10, 0, skipped))
    ]
    monkeypatch.setattr(slices, "CLUSTERS", Given(answers, direct))
    parsed = parse_options(TopicOptions, {"nameServer": "n:1", "topic": "T", "columns": "queueOffset", **options})
    batches = slices.read_slices(parsed, ("queueOffset",), [Slice(queue, 0, 10)])
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_a_record_that_a_broker_leaves_out_is_missed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer goes on behind it.
    Fault: Spark left out messages with damaged or just deleted records, even with failOnDataLoss."""
    for direct in range(4):
        with pytest.raises(RecordsGone, match="queue 0 of topic T on b: the broker skips offset 5"):
            offsets(monkeypatch, direct=direct)
        there = [0, 1, 2, 3, 4, 6, 7, 8, 9]
        caplog.clear()
        assert offsets(monkeypatch, direct=direct, failOnDataLoss="false") == there
        assert caplog.text.count("T@b:0: 1 offsets were not there any more") == 1
        assert offsets(monkeypatch, direct=direct, subExpression="a || b") == [], "other tags are left out on purpose"


def test_offsets_after_a_run_are_not_missed_in_its_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A broker that named an offset of 2^62 as the next one filled the memory of the task with those between."""
    there = [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert offsets(monkeypatch, skipped=1 << 62, failOnDataLoss="false") == there
    assert caplog.text.count("T@b:0: 1 offsets were not there any more") == 1


def test_answers_of_several_brokers_are_not_joined() -> None:
    assert sizes([answer(1), answer(2), answer(3, "c"), answer(4, "c")]) == [[1, 2], [3, 4]]


def test_an_answer_with_messages_behind_its_run_is_alone() -> None:
    assert sizes([answer(1), answer(2), answer(3, behind=1), answer(4, behind=1), answer(5)]) == [[1, 2], [3], [4], [5]]
