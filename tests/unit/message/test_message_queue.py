"""MessageQueue: the order on which rebalance depends."""

from rocketpy.message.message_queue import MessageQueue


def test_ordered_by_topic_broker_and_number() -> None:
    names = [("T", "b", 10), ("T", "b", 9), ("T", "a", 11), ("S", "z", 0)]
    queues = [MessageQueue(*name) for name in names]
    assert sorted(queues) == queues[::-1]
    assert len({*queues, MessageQueue("T", "b", 10)}) == 4
    assert str(queues[0]) == "T@b:10"
