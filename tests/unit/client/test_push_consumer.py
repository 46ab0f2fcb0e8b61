"""PushConsumer against a scripted cluster: messages arrive, offsets follow, members share queues."""

import threading
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client.consuming.subscription import Sql92
from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.options import START_FIRST, ConsumeMode, PushOptions
from rocketpy.client.push_consumer import PushConsumer
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError
from rocketpy.remoting.command import RemotingCommand
from tests.support.clients import lifetime, producer, push_consumer
from tests.support.cluster import NAME_SERVER, FakeCluster, run
from tests.support.push_consumers import Seen, store

pytestmark = pytest.mark.usefixtures("backend")


def test_messages_arrive_and_offsets_follow() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2)
        store(broker, b"1", b"2")
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST):
            await aio.sleep(1)
            store(broker, b"3", queue_id=1)
            await aio.sleep(6)
            assert sorted(seen.bodies) == [b"1", b"2", b"3"]
            assert (broker.offsets["cg", "T", 0], broker.offsets["cg", "T", 1]) == (2, 1)
        assert broker.members["cg"] == {}

    run(scenario)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_handlers_that_wait_run_beside_each_other(concurrency: int) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        store(cluster.add_broker(T=1), *[b"%d" % number for number in range(12)])
        running, seen = [0], []

        async def handle(message: ReceivedMessage) -> None:
            running.append(running[-1] + 1)
            await aio.sleep(0.1)
            running.append(running[-1] - 1)
            seen.append(message.body)

        async with push_consumer(cluster, handle, start=START_FIRST, concurrency=concurrency):
            await aio.sleep(3)
        assert len(seen) == 12 and max(running) == concurrency

    run(scenario)


def test_handlers_that_do_not_wait_are_called_in_the_order_of_the_queue() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        bodies = [b"%d" % number for number in range(50)]
        store(cluster.add_broker(T=1), *bodies)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST):
            await aio.sleep(1)
        assert seen.bodies == bodies

    run(scenario)


def test_a_new_group_starts_at_the_end_and_a_known_one_where_it_was() -> None:
    """Holds: client, start of a new consumer."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2)
        store(broker, b"old", b"older")
        store(broker, b"a", b"b", queue_id=1)
        broker.offsets["cg", "T", 1] = 1
        seen = Seen()
        async with push_consumer(cluster, seen):
            await aio.sleep(1)
            store(broker, b"new")
            await aio.sleep(1)
        assert sorted(seen.bodies) == [b"b", b"new"]

    run(scenario)


def test_a_broker_in_trouble_is_not_a_group_without_offsets() -> None:
    """Java 4.9 takes any error for "no offset" and jumps to the end; the queue must wait for the next round."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2")
        broker.offsets["cg", "T", 0] = 1
        broker.refuse(RequestCode.QUERY_CONSUMER_OFFSET, *[ResponseCode.SYSTEM_ERROR] * 3)
        seen = Seen()
        async with push_consumer(cluster, seen):
            await aio.sleep(70)
        assert seen.bodies == [b"2"]

    run(scenario)


def test_two_members_share_and_the_survivor_takes_all() -> None:
    """Holds: client, queues given up and taken over."""

    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=4)
        async with push_consumer(cluster, Seen(), client="c1") as first:
            await aio.sleep(1)
            async with push_consumer(cluster, Seen(), client="c2") as second:
                await aio.sleep(3)
                assert [queue.queue_id for queue in first.assignment if queue.topic == "T"] == [0, 1]
                assert [queue.queue_id for queue in second.assignment if queue.topic == "T"] == [2, 3]
            await aio.sleep(3)
            assert len([queue for queue in first.assignment if queue.topic == "T"]) == 4

    run(scenario)


def test_pulls_pause_while_the_queue_is_full() -> None:
    """Holds: client, flow control."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, *[b"x"] * 100)
        gate = aio.Event()

        async def handle(message: ReceivedMessage) -> None:
            await gate.wait()

        async with push_consumer(
            cluster, handle, start=START_FIRST, pull_threshold_for_queue=10, pull_batch_size=8, concurrency=1000
        ) as consumer:
            await aio.sleep(5)
            (state,) = [s for queue, s in consumer._rebalancer.queues.items() if queue.topic == "T"]
            assert state.cached_count == 16
            gate.set()
            await aio.sleep(10)
            assert state.cached_count == 0
            assert broker.offsets["cg", "T", 0] == 100

    run(scenario)


def tasks_of(consumer: PushConsumer) -> int:
    assert consumer._open is not None
    nursery: Any = consumer._open.nursery
    return len(nursery._nursery.child_tasks if aio.running().name == "trio" else nursery._group._tasks)


def test_queues_without_messages_have_no_tasks() -> None:
    """Also after pulls that failed. Messages that come are pulled by a task, which ends when no more come."""

    async def scenario(cluster: FakeCluster) -> None:
        broker, seen = cluster.add_broker(T=8), Seen()
        async with push_consumer(cluster, seen) as consumer:
            await aio.sleep(42.5)  # no periodic job runs then
            idle = tasks_of(consumer)
            assert len(consumer.assignment) >= 8 and idle < 4  # one for each connection
            store(broker, b"1", b"2")
            await aio.sleep(1)
            assert sorted(seen.bodies) == [b"1", b"2"] and tasks_of(consumer) > idle
            broker.refuse(RequestCode.PULL_MESSAGE, *[ResponseCode.SYSTEM_ERROR] * 20)
            await aio.sleep(90)
            store(broker, b"3", queue_id=7)
            await aio.sleep(1)
            assert sorted(seen.bodies) == [b"1", b"2", b"3"]

    run(scenario)


def test_handlers_run_in_the_context_of_their_consumer() -> None:
    """Fault: After a reconnection, handlers ran in the context of the call that had connected, below somebody else's
    span."""
    context: ContextVar[str] = ContextVar("context")

    async def scenario(cluster: FakeCluster) -> None:
        broker, seen = cluster.add_broker(T=1), list[str]()

        def handle(message: ReceivedMessage) -> None:
            seen.append(f"{message.body.decode()} in {context.get()}")

        context.set("consumer")
        async with push_consumer(cluster, handle) as consumer:
            await aio.sleep(16)
            assert consumer._open is not None
            context.set("caller")
            slots: Any = consumer._open.instance.api.remoting
            for slot in slots._slots.values():
                slot.channel.close()
            await aio.sleep(0.1)
            await consumer._open.instance.heartbeat()
            await aio.sleep(10)
            store(broker, b"1")
            await aio.sleep(5)
        assert seen == ["1 in consumer"]

    run(scenario)


def test_tags_with_equal_hashes_are_told_apart() -> None:
    """`Aa` and `BB` have the same Java hash: the broker lets both through.
    Holds: filter, tags by hash on the broker and by text on the client; filter, on both sides."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"yes", tags="Aa")
        store(broker, b"no", tags="BB")
        store(broker, b"none")
        seen = Seen()
        async with push_consumer(cluster, seen, tags="Aa", start=START_FIRST):
            await aio.sleep(6)
            assert seen.bodies == [b"yes"]

    run(scenario)


def test_the_offset_passes_what_nobody_wants() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        for _ in range(50):
            store(broker, b"other", tags="B")
        seen = Seen()
        async with push_consumer(cluster, seen, tags="A", start=START_FIRST):
            await aio.sleep(6)
            assert (seen.bodies, broker.offsets["cg", "T", 0]) == ([], 50)

    run(scenario)


def test_an_offset_that_is_gone_is_corrected_backwards_too() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        broker.offsets["cg", "T", 0] = 7
        seen = Seen()
        async with push_consumer(cluster, seen):
            await aio.sleep(12)
            assert broker.offsets["cg", "T", 0] == 1
            store(broker, b"2")
            await aio.sleep(2)
            assert seen.bodies == [b"2"]

    run(scenario)


def test_after_a_broker_restart_the_subscription_is_told_again() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1):
            await aio.sleep(16)
            broker.consumers.clear()
            store(broker, b"1", b"2")
            await aio.sleep(4)
            store(broker, b"3")
            await aio.sleep(4)
            assert seen.bodies == [b"1", b"2", b"3"]
            assert "cg" in broker.consumers

    run(scenario)


def test_no_pull_names_a_version_that_the_broker_has_not_heard() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=4)
        answers: list[int] = []
        pull = broker.pull

        async def watched(request: RemotingCommand, channel: object) -> RemotingCommand:
            response = await pull(request, channel)  # type: ignore[arg-type] # the broker's own channel
            answers.append(response.code)
            return response

        broker.answers[RequestCode.PULL_MESSAGE] = watched
        async with push_consumer(cluster, Seen(), client="c1"), push_consumer(cluster, Seen(), client="c2"):
            await aio.sleep(60)
        assert answers and ResponseCode.SUBSCRIPTION_NOT_LATEST not in answers

    run(scenario)


def test_broadcasting_keeps_its_offsets_in_a_file(tmp_path: Path) -> None:
    """Holds: client, offsets on the broker and on the client."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        settings = {"mode": ConsumeMode.BROADCASTING, "local_offset_dir": tmp_path, "start": START_FIRST}
        first, second = Seen(ValueError("boom")), Seen()
        async with (
            push_consumer(cluster, first, client="c1", **settings),
            push_consumer(cluster, second, client="c2", **settings),
        ):
            await first.wait(1)
            await second.wait(1)
        assert (first.bodies, second.bodies) == ([b"1"], [b"1"])
        assert not broker.sent_back and not broker.offsets
        store(broker, b"2")
        third = Seen()
        async with push_consumer(cluster, third, client="c1", **settings):
            await third.wait(1)
        assert third.bodies == [b"2"]
        assert "%RETRY%cg" not in {data.topic for data in broker.consumers["cg"].subscription_data_set}

    run(scenario)


def test_sql_is_checked_at_start() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.answer(RequestCode.CHECK_CLIENT_CONFIG)
        async with push_consumer(cluster, Seen(), tags=Sql92("a > 5")):
            await aio.sleep(1)
        (data,) = [data for data in broker.consumers["cg"].subscription_data_set if data.topic == "T"]
        assert (data.expression_type, data.sub_string) == ("SQL92", "a > 5")
        broker.refuse(RequestCode.CHECK_CLIENT_CONFIG, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        with pytest.raises(BrokerError):
            async with push_consumer(cluster, Seen(), tags=Sql92("a >")):
                pass

    run(scenario)


def test_paused_consumers_pull_nothing() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, broker_suspend=1.0) as consumer:
            await aio.sleep(1)
            consumer.pause()
            await aio.sleep(5)
            store(broker, b"1")
            await aio.sleep(20)
            assert seen.bodies == []
            consumer.resume()
            await aio.sleep(1)
            assert seen.bodies == [b"1"]

    run(scenario)


def test_shutdown_waits_for_handlers_and_stores_their_offset() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        ended: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            await aio.sleep(5)
            ended.append(message.body)

        async with push_consumer(cluster, handle, start=START_FIRST):
            await aio.sleep(1)
        assert ended == [b"1"]
        assert broker.offsets["cg", "T", 0] == 1

    run(scenario)


def test_retried_messages_show_the_topic_they_were_sent_to() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.topics["%RETRY%cg"] = 1
        broker.store("%RETRY%cg", 0, b"again", b"RETRY_TOPIC\x01T\x02UNIQ_KEY\x01ID", reconsume_times=2)
        seen = Seen()
        async with push_consumer(cluster, seen):
            await aio.sleep(30)
        (message,) = seen.messages
        assert (message.topic, message.msg_id, message.reconsume_times) == ("T", "ID", 2)

    run(scenario)


def test_plain_functions_run_in_threads() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        called = threading.Event()

        def handle(message: ReceivedMessage) -> None:
            assert message.body == b"1"
            called.set()

        async with push_consumer(cluster, handle, start=START_FIRST):
            assert await aio.in_thread(called.wait, 30)
        assert not broker.sent_back

    run(scenario)


def test_sent_messages_come_back_whole() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST), producer(cluster) as sender:
            body = b"large" * 2000
            result = await sender.send(Message("T", body, tags="A", keys=("k",), properties={"p": "v"}))
            await aio.sleep(1)
        (message,) = seen.messages
        assert (message.body, message.tags, message.keys, message.properties["p"]) == (body, "A", ("k",), "v")
        assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)

    run(scenario)


def test_wrong_settings_are_refused_at_construction() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        with pytest.raises(ClientError, match="batch_handler"):
            push_consumer(cluster, Seen(), batch_size_max=2)
        with pytest.raises(ValueError, match="concurrency is 0"):
            push_consumer(cluster, Seen(), concurrency=0)
        with pytest.raises(ValueError, match="ordered needs mode CLUSTERING"):
            push_consumer(cluster, Seen(), ordered=True, mode=ConsumeMode.BROADCASTING)
        with pytest.raises(ValueError, match="topic_priority has no effect with ordered"):
            push_consumer(cluster, Seen(), ordered=True, topic_priority=("T",))
        with pytest.raises(ClientError, match="holds no tag"):
            async with push_consumer(cluster, Seen(), tags=" || "):
                pass

    run(scenario)


def test_messages_of_an_earlier_topic_are_handled_first() -> None:
    """Holds: client, priority by topics."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(Urgent=1, Normal=1, Other=1, **{"%RETRY%cg": 1})
        gate, seen = aio.Event(), Seen()

        async def handle(message: ReceivedMessage) -> None:
            await gate.wait()
            await seen(message)

        options = PushOptions(
            name_servers=NAME_SERVER, start=START_FIRST, concurrency=1, topic_priority=("Urgent", "Normal")
        )
        topics = {"Other": "*", "Normal": "*", "Urgent": "*"}
        broker.store("Other", 0, b"first of all")
        async with PushConsumer("cg", topics, handle, options=options, lifetime=lifetime(cluster, options, "c@1")):
            await aio.sleep(30)  # it occupies the one handler; these wait behind it
            broker.store("%RETRY%cg", 0, b"retried urgent", b"RETRY_TOPIC\x01Urgent")
            await aio.sleep(1)
            for topic in ("Other", "Normal", "Urgent"):
                for number in (1, 2):
                    broker.store(topic, 0, f"{topic} {number}".encode())
            await aio.sleep(30)
            gate.set()
            await seen.wait(8)
        assert seen.bodies[:4] == [b"first of all", b"retried urgent", b"Urgent 1", b"Urgent 2"]
        assert seen.bodies[4:] == [b"Normal 1", b"Normal 2", b"Other 1", b"Other 2"]

    run(scenario)
