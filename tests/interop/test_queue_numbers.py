"""A topic grows and shrinks under official clients without loss, by the procedure for both: to grow, the read and write
numbers together; to shrink, the write number first, and the read number when the queues that go are consumed."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, committed_offsets, max_offsets, wait_until
from tests.interop.mqadmin import MqAdmin
from tests.interop.programs import Launcher, Program

FEW, MANY = 2, 4
ENOUGH = 100


def queues_of_next(producer: Program, count: int) -> set[int]:
    before = len(producer.of_kind("sent"))
    producer.wait_until(lambda: len(producer.of_kind("sent")) >= before + count, f"{count} more sent")
    return {event["queueId"] for event in producer.of_kind("sent")[before : before + count]}


def test_a_topic_grows_and_shrinks_without_loss(
    launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker, mqadmin: MqAdmin
) -> None:
    """Holds: broker, read and write queue numbers."""
    topic, group = make_topic("resized", FEW), names("resized_group")

    def resize(read: int, write: int) -> None:
        mqadmin(broker, "updateTopic", "-b", f"127.0.0.1:{broker.port}", "-t", topic, "-r", str(read), "-w", str(write))

    members = [
        launch.start(name, "push", topic=topic, group=group, instance=f"member-{name}", poll=500)
        for name in ("java-4.9.8", "python")
    ]
    producer = launch.start(
        "java-5.3.3", "send", mode="stream", topic=topic, group=f"{topic}_p", prefix="r", poll=500, pause=5, retries=2
    )

    def has(count: int) -> Callable[[], bool]:
        return lambda: sorted(queue for member in members for queue in member.queues or ()) == list(range(count))

    wait_until(has(FEW), "all queues are consumed")
    resize(MANY, MANY)
    wait_until(lambda: queues_of_next(producer, ENOUGH) == set(range(MANY)), "messages go to the new queues")
    wait_until(has(MANY), "the new queues are consumed")

    resize(MANY, FEW)
    wait_until(lambda: queues_of_next(producer, ENOUGH) == set(range(FEW)), "messages go to the first queues only")
    wait_until(
        lambda: committed_offsets(broker, group, topic, MANY)[FEW:] == max_offsets(broker, topic, MANY)[FEW:],
        "the queues that go are consumed",
    )
    resize(FEW, FEW)
    wait_until(has(FEW), "the queues are given up")
    queues_of_next(producer, ENOUGH)
    producer.leave()
    assert not producer.of_kind("failed")
    sent = {event["key"] for event in producer.of_kind("sent")}
    wait_until(lambda: sent <= {event["key"] for member in members for event in member.messages}, "all are consumed")
    for member in members:
        member.leave()
