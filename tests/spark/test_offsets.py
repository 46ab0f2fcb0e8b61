"""Offsets as users write them and as checkpoints keep them."""

from __future__ import annotations

import json
import random

import pytest

from rocketpy.client.cluster.time_search import StoredAt
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.offsets import Document, begin_of, offsets_of, queues_of, tree_of

Q0, Q1, Q10 = (MessageQueue("T", "b", number) for number in (0, 1, 10))


def test_offsets_are_read_and_written_the_same() -> None:
    tree = {"T": {"a": {"0": 5}, "b": {"0": 1, "1": -2}}, "U": {"a": {"0": -1}}}
    assert tree_of(offsets_of(tree)) == tree
    assert queues_of({"T": {"b": [0, 10]}}) == {Q0, Q10}


@pytest.mark.parametrize("seed", range(5))
def test_equal_offsets_are_equal_texts(seed: int) -> None:
    """Spark compares texts: another order of keys would be another offset."""
    queues = [MessageQueue(topic, broker, number) for topic in "TU" for broker in "ab" for number in (0, 1, 2, 10, 11)]
    ends = {queue: index for index, queue in enumerate(queues)}
    random.Random(seed).shuffle(queues)
    shuffled = json.dumps(Document({queue: ends[queue] for queue in queues}).encode())
    assert shuffled == json.dumps(Document(ends).encode()) == json.dumps(json.loads(shuffled), sort_keys=True)


def test_documents_are_read_as_they_were_written() -> None:
    firsts = Document({Q0: 5}, firsts={Q0: StoredAt(2, 1_764_000_000_000)})
    for document in (Document({Q0: 5, Q10: 7}), Document({Q0: 5}, {Q0: 3}), Document({}, is_initial=True), firsts):
        assert Document.decode(json.loads(json.dumps(document.encode()))) == document


@pytest.mark.parametrize("document", [{}, {"v": 2, "q": {}}, {"v": 1}, {"v": 1, "q": {"T": 3}}])
def test_a_foreign_checkpoint_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="the checkpoint"):
        Document.decode(document)


def test_where_a_batch_begins() -> None:
    started = Document({Q0: 100}, is_initial=True)  # the first batch is run again after a crash: latest is later now
    first = Document({Q0: 120}, {Q0: 50})
    assert begin_of(Q0, started, first) == 50
    second = Document({Q0: 130, Q1: 9}, {Q1: 4})
    assert begin_of(Q0, first, second) == 120
    assert begin_of(Q1, first, second) == 4
    assert begin_of(Q10, first, second) is None
    assert begin_of(Q0, second, Document({Q0: 12}, {Q0: 2})) == 2, "a topic that was made again"


@pytest.mark.parametrize("pair", [3, [1], [1, "2"], [True, 2], {"0": 1}])
def test_first_messages_of_another_form_are_refused(pair: object) -> None:
    with pytest.raises(ConfigError, match="no offset and time"):
        Document.decode({"v": 1, "q": {}, "first": {"T": {"b": {"0": pair}}}})


@pytest.mark.parametrize("queue_id", ["65536", "007", "+1", "²", "9" * 5_000])
def test_names_that_are_no_queue_are_refused(queue_id: str) -> None:
    with pytest.raises(ValueError, match="which is no number"):
        offsets_of({"T": {"b": {queue_id: 1}}})


@pytest.mark.parametrize(
    "tree", [{"T": 1}, {"T": {"b": [1]}}, {"T": {"b": {"x": 1}}}, {"T": {"b": {"0": -3}}}, {"T": {"b": {"0": True}}}]
)
def test_other_forms_are_refused(tree: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        offsets_of(tree)
    with pytest.raises(ValueError):
        queues_of({"T": {"b": {"0": 1}}})
