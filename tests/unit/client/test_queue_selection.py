"""Which queue a message goes to; hashes agree with Java and Go."""

import random

import pytest

from rocketpy.client.messages import Message
from rocketpy.client.sending.queue_selection import (
    Fnv1aSelector,
    JavaHashSelector,
    RandomSelector,
    RoundRobin,
    java_hash,
)
from rocketpy.message.message_queue import MessageQueue
from tests.support.cases import cases

MESSAGE = Message("T", b"x")


def queues(count: int, broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


@pytest.mark.parametrize(
    ("key", "of_8", "of_7"),
    [("TagA", 7, 1), ("order-1001", 7, 5), ("order-1002", 0, 6), ("polygenelubricants", 0, 2), ("", 0, 0)],
)
def test_java_hash_selector(key: str, of_8: int, of_7: int) -> None:
    """Holds: client, queues chosen by the caller."""
    for count, expected in ((8, of_8), (7, of_7)):
        chosen = JavaHashSelector().select(queues(count), MESSAGE, key)
        assert chosen is not None and chosen.queue_id == expected


@cases(
    "key, expected",
    [
        ("TagB", 2598920),
        ("你好", 652829),
        ("polygenelubricants", -(1 << 31)),
        (7, 7),
        (-7, -7),
        (1 << 32, 1),
        (True, 1231),
        (False, 1237),
    ],
)
def test_java_hash(key: object, expected: int) -> None:
    assert java_hash(key) == expected


def test_java_hash_of_a_negative_long() -> None:
    """-(1 << 40) as a Java Long: low word 0, high word 0xFFFFFF00."""
    assert java_hash(-(1 << 40)) == -256


def test_other_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        java_hash(1.5)


@pytest.mark.parametrize(("key", "expected"), [("order-1001", 4), ("order-1002", 5)])
def test_go_selector(key: str, expected: int) -> None:
    chosen = Fnv1aSelector().select(queues(8), MESSAGE, key)
    assert chosen is not None and chosen.queue_id == expected


def test_random_selector_reaches_all() -> None:
    selector = RandomSelector(random.Random(3))
    assert {selector.select(queues(3), MESSAGE, None) for _ in range(60)} == set(queues(3))


def test_round_robin_visits_each_in_turn() -> None:
    """Holds: client, queues in turn."""
    turn = RoundRobin(0)
    assert [turn.next_queue(queues(3)).queue_id for _ in range(4)] == [1, 2, 0, 1]


def test_round_robin_wraps_at_31_bits() -> None:
    turn = RoundRobin((1 << 31) - 1)
    assert turn.next_index() == 0


def test_a_retry_goes_to_another_broker_if_there_is_one() -> None:
    both = queues(2, "a") + queues(2, "b")
    for start in range(4):
        assert RoundRobin(start).next_queue(both, avoid_broker="a").broker_name == "b"
    assert RoundRobin(0).next_queue(queues(2, "a"), avoid_broker="a").broker_name == "a"
