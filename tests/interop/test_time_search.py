"""The client finds the first message stored at or after a time, though brokers answer with any one of a millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rocketpy.client import Message, ProducerOptions, PullOptions, StartFrom
from rocketpy.client.sync import Producer, PullConsumer
from rocketpy.message.message_queue import MessageQueue
from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, wait_stored, wait_until

QUEUES, BATCHES, IN_BATCH = 2, 4, 400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_the_first_of_hundreds_in_a_millisecond(broker: AnyBroker, make_topic: TopicMaker, names: NameMaker) -> None:
    """Holds: client, replay from a time."""
    topic, count = make_topic("bursts", QUEUES), BATCHES * IN_BATCH
    with Producer("bursts_p", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        queues = sorted(producer.queues(topic))
        for number in range(BATCHES):
            for queue in queues:
                producer.send_batch([Message(topic, b"%d" % number)] * IN_BATCH, queue=queue)
    wait_stored(broker, topic, QUEUES, QUEUES * count)
    options = PullOptions(name_servers=broker.namesrv, start=StartFrom("CONSUME_FROM_FIRST_OFFSET"))
    with PullConsumer(names("bursts_group"), options) as consumer:
        consumer.subscribe(topic)
        stored: dict[tuple[MessageQueue, int], int] = {}

        def all_came() -> bool:
            found = consumer.poll(max_messages=1000, timeout=1.0)
            stored.update({(one.queue, one.queue_offset): one.store_timestamp_ms for one in found})
            return len(stored) == QUEUES * count

        wait_until(all_came, "all messages")
        for queue in queues:
            times = [stored[queue, offset] for offset in range(count)]
            assert max(times.count(time) for time in set(times)) >= IN_BATCH
            wanted = {time: times.index(time) for time in times} | {min(times) - 1000: 0, max(times) + 1: count}
            found = {ms: consumer.offset_for_time(queue, EPOCH + timedelta(milliseconds=ms)) for ms in wanted}
            assert found == wanted
