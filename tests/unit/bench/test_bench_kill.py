"""The verdict of the kill test names every way in which an acknowledged message can go wrong."""

from bench.control import StoredMessage
from bench.kill import compare
from rocketpy.bench.load import Ack

PREFIX = "0123456789ABCDEF"


def stored(key: int, queue_id: int, offset: int) -> StoredMessage:
    return StoredMessage(queue_id, offset, f"{PREFIX}{key:016X}", 1)


def test_all_there_and_one_more_that_was_never_acknowledged() -> None:
    found = compare([Ack(1, 0, 0), Ack(2, 1, 0)], [stored(1, 0, 0), stored(3, 0, 1), stored(2, 1, 0)], PREFIX)
    assert found == {"missing": 0, "moved": 0, "repeated": 0, "holes": 0, "stored": 3}


def test_missing_moved_repeated() -> None:
    acks = [Ack(1, 0, 0), Ack(2, 0, 1), Ack(3, 0, 2)]
    found = compare(acks, [stored(2, 0, 0), stored(3, 0, 1), stored(3, 0, 2)], PREFIX)
    assert found == {"missing": 1, "moved": 1, "repeated": 1, "holes": 0, "stored": 3}


def test_skipped_and_repeated_offsets_are_holes() -> None:
    found = compare([], [stored(1, 0, 0), stored(2, 0, 2), stored(3, 0, 2)], PREFIX)
    assert found["holes"] == 2
