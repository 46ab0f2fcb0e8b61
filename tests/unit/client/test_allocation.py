"""The golden vectors of the reference's strategies: members of different languages share one group by them."""

import pytest

from rocketpy.client.allocation import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    NearbyRoom,
    java_order,
    java_text,
    md5_hash,
    share_of,
)
from rocketpy.message.message_queue import MessageQueue


def queues(count: int, broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


@pytest.mark.parametrize(
    ("queue_count", "member_count", "expected"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (7, 2, [[0, 1, 2, 3], [4, 5, 6]]),
        (4, 4, [[0], [1], [2], [3]]),
        (2, 3, [[0], [1], []]),
    ],
)
def test_averagely(queue_count: int, member_count: int, expected: list[list[int]]) -> None:
    """Holds: client, rebalance every 20 s."""
    ids = [f"c{number}" for number in range(member_count)]
    shares = [[queue.queue_id for queue in share_of(Averagely(), one, queues(queue_count), ids)] for one in ids]
    assert shares == expected


@pytest.mark.parametrize("strategy", [Averagely(), AveragelyByCircle(), ConsistentHash()])
def test_every_queue_has_one_owner(strategy: Averagely | AveragelyByCircle | ConsistentHash) -> None:
    """Holds: client, one consumer of a group per queue."""
    for member_count in range(1, 9):
        ids = [f"10.0.0.{number}@x" for number in range(member_count)]
        for queue_count in range(1, 20):
            owned = [queue for one in ids for queue in share_of(strategy, one, queues(queue_count), ids)]
            assert sorted(owned) == queues(queue_count)


def test_by_circle_deals_like_cards() -> None:
    assert [queue.queue_id for queue in share_of(AveragelyByCircle(), "b", queues(5), ["b", "a"])] == [1, 3]


def test_a_member_that_the_broker_does_not_know_gets_nothing() -> None:
    assert share_of(Averagely(), "late", queues(4), ["a", "b"]) == []


def test_inputs_are_sorted_whatever_their_order() -> None:
    ids, some = ["c2", "c1"], list(reversed(queues(4)))
    assert [queue.queue_id for queue in share_of(Averagely(), "c1", some, ids)] == [0, 1]


FULLWIDTH, GRINNING = "\uff5e", "\U0001f600"


def test_java_orders_by_utf16_unit() -> None:
    """U+1F600 begins with a surrogate, which sorts before U+FF5E; by code point it is the other way round."""
    assert sorted([FULLWIDTH, GRINNING], key=java_order) == [GRINNING, FULLWIDTH]
    assert sorted([FULLWIDTH, GRINNING]) == [FULLWIDTH, GRINNING]


def test_consistent_hash_matches_the_java_classes() -> None:
    ids = {"A": "192.168.0.1@A", "B": "192.168.0.2@B", "C": "192.168.0.3@C"}
    expected = {"broker-a": "ABBACBCA", "broker-b": "ABABABAC"}
    for broker, owners in expected.items():
        some = [MessageQueue("TopicTest", broker, number) for number in range(8)]
        for letter, client_id in ids.items():
            share = share_of(ConsistentHash(), client_id, some, ids.values())
            assert [queue.queue_id for queue in share] == [n for n, owner in enumerate(owners) if owner == letter]


def test_consistent_hash_hashes() -> None:
    assert md5_hash(java_text(MessageQueue("TopicTest", "broker-a", 0))) == 0x767D59FC
    assert md5_hash(java_text(MessageQueue("TopicTest", "broker-a", 1))) == 0xFFC8CD39
    assert md5_hash("192.168.0.1@A-0") == 0xCF45A34C


def test_machine_room_takes_blocks_then_the_tail() -> None:
    some = queues(5, "room1@a") + queues(3, "room2@b") + queues(2, "plain")
    strategy = ByMachineRoom(frozenset({"room1"}))
    assert [queue.queue_id for queue in share_of(strategy, "c1", some, ["c1", "c2"])] == [0, 1, 4]
    assert [queue.queue_id for queue in share_of(strategy, "c2", some, ["c1", "c2"])] == [2, 3]


def test_nearby_room_shares_rooms_without_consumers_among_all() -> None:
    strategy = NearbyRoom(Averagely(), lambda queue: queue.broker_name, lambda client_id: client_id.partition("-")[0])
    some = queues(2, "r1") + queues(2, "r2") + queues(2, "r3")
    first = share_of(strategy, "r1-x", some, ["r1-x", "r2-x"])
    second = share_of(strategy, "r2-x", some, ["r1-x", "r2-x"])
    assert first == [*queues(2, "r1"), MessageQueue("T", "r3", 0)]
    assert second == [*queues(2, "r2"), MessageQueue("T", "r3", 1)]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"


def test_nearby_room_refuses_an_empty_room() -> None:
    with pytest.raises(ValueError, match="no room"):
        share_of(NearbyRoom(Averagely(), lambda queue: "", lambda client_id: "r"), "c", queues(1), ["c"])


def test_by_config_takes_what_it_is_told() -> None:
    assert share_of(ByConfig(tuple(queues(2))), "c", queues(4), ["c"]) == queues(2)
