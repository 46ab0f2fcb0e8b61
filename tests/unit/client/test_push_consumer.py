"""PushConsumer against a scripted cluster: shares, retries, offsets, order, what brokers may ask."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from rocketpy.client.consuming.subscription import Sql92
from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.options import START_FIRST, ConsumeMode
from rocketpy.client.results import ConsumeResult
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketpy.remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import producer, push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


class Seen:
    """A handler that remembers; `results` are given out one by one, then success."""

    def __init__(self, *results: ConsumeResult | Exception | None) -> None:
        self.messages: list[ReceivedMessage] = []
        self.results = list(results)
        self.arrived = trio.Event()

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        self.messages.append(message)
        self.arrived.set()
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result

    async def wait(self, count: int) -> None:
        """Where threads work besides, the clock jumps while they do: wait for what happens, not for a time."""
        while len(self.messages) < count:
            self.arrived = trio.Event()
            await self.arrived.wait()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def store(broker: FakeBroker, *bodies: bytes, queue_id: int = 0, tags: str = "") -> None:
    for body in bodies:
        broker.store("T", queue_id, body, f"TAGS\x01{tags}".encode() if tags else b"")


def test_messages_arrive_and_offsets_follow() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2)
        store(broker, b"1", b"2")
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST):
            await trio.sleep(1)
            store(broker, b"3", queue_id=1)
            await trio.sleep(6)
            assert sorted(seen.bodies) == [b"1", b"2", b"3"]
            assert (broker.offsets["cg", "T", 0], broker.offsets["cg", "T", 1]) == (2, 1)
        assert broker.members["cg"] == {}

    run(scenario)


def test_a_new_group_starts_at_the_end_and_a_known_one_where_it_was() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2)
        store(broker, b"old", b"older")
        store(broker, b"a", b"b", queue_id=1)
        broker.offsets["cg", "T", 1] = 1
        seen = Seen()
        async with push_consumer(cluster, seen):
            await trio.sleep(1)
            store(broker, b"new")
            await trio.sleep(1)
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
            await trio.sleep(70)
        assert seen.bodies == [b"2"]

    run(scenario)


def test_two_members_share_and_the_survivor_takes_all() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=4)
        async with push_consumer(cluster, Seen(), client="c1") as first:
            await trio.sleep(1)
            async with push_consumer(cluster, Seen(), client="c2") as second:
                await trio.sleep(3)
                assert [queue.queue_id for queue in first.assignment if queue.topic == "T"] == [0, 1]
                assert [queue.queue_id for queue in second.assignment if queue.topic == "T"] == [2, 3]
            await trio.sleep(3)
            assert len([queue for queue in first.assignment if queue.topic == "T"]) == 4

    run(scenario)


def test_a_failed_message_goes_back_to_its_broker_and_the_offset_moves() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"bad", b"later", b"dead", b"good")
        seen = Seen(ValueError("boom"), ConsumeResult.retry(5), ConsumeResult.dead_letter())
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1):
            await trio.sleep(6)
            assert [header.delay_level for header in broker.sent_back] == [0, 5, -1]
            assert {header.max_reconsume_times for header in broker.sent_back} == {16}
            assert broker.sent_back[1].offset > broker.sent_back[0].offset
            assert broker.offsets["cg", "T", 0] == 4

    run(scenario)


def test_when_the_broker_will_not_take_it_back_the_retry_topic_does() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"bad")
        broker.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
        seen = Seen(ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST):
            await trio.sleep(40)
        header = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[0])
        properties = decode_properties(header.properties or "")
        assert header.topic == "%RETRY%cg"
        assert (header.reconsume_times, header.max_reconsume_times) == (1, 16)
        assert (properties["RETRY_TOPIC"], properties["DELAY"]) == ("T", "3")
        assert properties["ORIGIN_MESSAGE_ID"] == seen.messages[0].offset_msg_id
        assert [(message.topic, message.reconsume_times) for message in seen.messages] == [("T", 0), ("T", 1)]

    run(scenario)


def test_what_cannot_be_returned_is_consumed_again_here_and_holds_the_offset() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"bad", b"good")
        broker.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, *[ResponseCode.SYSTEM_ERROR] * 3)
        broker.refuse(RequestCode.SEND_MESSAGE_V2, *[ResponseCode.MESSAGE_ILLEGAL] * 3)
        seen = Seen(ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1, persist_offset_interval=1.0):
            await trio.sleep(4)
            assert broker.offsets["cg", "T", 0] == 0
            await trio.sleep(4)
            assert seen.bodies == [b"bad", b"good", b"bad"]
            assert seen.messages[2].reconsume_times == 1
            assert broker.offsets["cg", "T", 0] == 2

    run(scenario)


def test_part_of_a_batch_may_be_done() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"0", b"1", b"2")
        batches: list[Sequence[ReceivedMessage]] = []

        async def handle(batch: Sequence[ReceivedMessage]) -> ConsumeResult:
            batches.append(batch)
            return ConsumeResult.partial(0)

        async with push_consumer(cluster, handle, batch=True, batch_size_max=10, start=START_FIRST):
            await trio.sleep(6)
            assert [len(batch) for batch in batches] == [3]
            assert len(broker.sent_back) == 2
            assert broker.offsets["cg", "T", 0] == 3

    run(scenario)


def test_the_offset_waits_for_the_slowest() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"slow", b"fast", b"fast")

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"slow":
                await trio.sleep(20)

        async with push_consumer(cluster, handle, start=START_FIRST):
            await trio.sleep(7)
            assert broker.offsets["cg", "T", 0] == 0
            await trio.sleep(20)
            assert broker.offsets["cg", "T", 0] == 3

    run(scenario)


def test_a_message_that_takes_too_long_is_sent_back() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"stuck", b"fine")

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"stuck":
                await trio.sleep_forever()

        async with push_consumer(cluster, handle, start=START_FIRST, consume_timeout=10.0, shutdown_grace=0.0):
            await trio.sleep(27)
            assert [header.delay_level for header in broker.sent_back] == [3]
            assert broker.offsets["cg", "T", 0] == 2

    run(scenario)


def test_pulls_pause_while_the_queue_is_full() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, *[b"x"] * 100)
        gate = trio.Event()

        async def handle(message: ReceivedMessage) -> None:
            await gate.wait()

        async with push_consumer(
            cluster, handle, start=START_FIRST, pull_threshold_for_queue=10, pull_batch_size=8, concurrency=1000
        ) as consumer:
            await trio.sleep(5)
            (state,) = [s for queue, s in consumer._rebalancer.queues.items() if queue.topic == "T"]
            assert state.cached_count == 16
            gate.set()
            await trio.sleep(10)
            assert state.cached_count == 0
            assert broker.offsets["cg", "T", 0] == 100

    run(scenario)


def test_tags_with_equal_hashes_are_told_apart() -> None:
    """`Aa` and `BB` have the same Java hash: the broker lets both through."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"yes", tags="Aa")
        store(broker, b"no", tags="BB")
        store(broker, b"none")
        seen = Seen()
        async with push_consumer(cluster, seen, tags="Aa", start=START_FIRST):
            await trio.sleep(6)
            assert seen.bodies == [b"yes"]

    run(scenario)


def test_the_offset_passes_what_nobody_wants() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        for _ in range(50):
            store(broker, b"other", tags="B")
        seen = Seen()
        async with push_consumer(cluster, seen, tags="A", start=START_FIRST):
            await trio.sleep(6)
            assert (seen.bodies, broker.offsets["cg", "T", 0]) == ([], 50)

    run(scenario)


def test_an_offset_that_is_gone_is_corrected_backwards_too() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        broker.offsets["cg", "T", 0] = 7
        seen = Seen()
        async with push_consumer(cluster, seen):
            await trio.sleep(12)
            assert broker.offsets["cg", "T", 0] == 1
            store(broker, b"2")
            await trio.sleep(2)
            assert seen.bodies == [b"2"]

    run(scenario)


def test_after_a_broker_restart_the_subscription_is_told_again() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1):
            await trio.sleep(16)
            broker.consumers.clear()
            store(broker, b"1", b"2")
            await trio.sleep(4)
            store(broker, b"3")
            await trio.sleep(4)
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
            await trio.sleep(60)
        assert answers and ResponseCode.SUBSCRIPTION_NOT_LATEST not in answers

    run(scenario)


def test_ordered_messages_wait_for_the_one_that_fails() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2", b"3")
        seen = Seen(None, ConsumeResult.suspend(2.0), ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await trio.sleep(10)
            assert seen.bodies == [b"1", b"2", b"2", b"2", b"3"]
            assert [message.reconsume_times for message in seen.messages] == [0, 0, 1, 2, 0]
            assert broker.offsets["cg", "T", 0] == 3
            assert broker.locks["cg", MessageQueue("T", "broker-a", 0)] == "10.1.1.1@c1"
        assert broker.locks == {}

    run(scenario)


def test_an_ordered_message_is_given_up_after_its_attempts() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"poison", b"next")
        seen = Seen(*[ValueError("boom")] * 3)
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True, reconsume_times_max=2):
            await trio.sleep(10)
        assert seen.bodies[:4] == [b"poison", b"poison", b"poison", b"next"]
        header = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[0])
        assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%cg", 3, 2)

    run(scenario)


def test_an_ordered_queue_that_is_locked_elsewhere_waits() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        broker.locks["cg", MessageQueue("T", "broker-a", 0)] = "somebody else"
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await trio.sleep(30)
            assert seen.bodies == []
            broker.locks.clear()
            await trio.sleep(25)
            assert seen.bodies == [b"1"]

    run(scenario)


def test_a_lost_lock_stops_ordered_consumption() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await trio.sleep(5)
            broker.locks["cg", MessageQueue("T", "broker-a", 0)] = "thief"
            await trio.sleep(20)
            store(broker, b"1")
            await trio.sleep(30)
            assert seen.bodies == []

    run(scenario)


def test_ordered_results_wait_for_commit() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2", b"3")
        seen = Seen(ConsumeResult.hold(), ConsumeResult.rollback(), ConsumeResult.hold(), ConsumeResult.commit())
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await trio.sleep(6)
            assert seen.bodies == [b"1", b"2", b"1", b"2", b"3"]
            assert broker.offsets["cg", "T", 0] == 3

    run(scenario)


def test_broadcasting_keeps_its_offsets_in_a_file(tmp_path: Path) -> None:
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
            await trio.sleep(1)
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
            await trio.sleep(1)
            consumer.pause()
            await trio.sleep(5)
            store(broker, b"1")
            await trio.sleep(20)
            assert seen.bodies == []
            consumer.resume()
            await trio.sleep(1)
            assert seen.bodies == [b"1"]

    run(scenario)


def test_shutdown_waits_for_handlers_and_stores_their_offset() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        ended: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            await trio.sleep(5)
            ended.append(message.body)

        async with push_consumer(cluster, handle, start=START_FIRST):
            await trio.sleep(1)
        assert ended == [b"1"]
        assert broker.offsets["cg", "T", 0] == 1

    run(scenario)


async def ask(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
    """Ask the only member of the group, as a broker does."""
    (channel,) = broker.members["cg"].values()
    return await channel.invoke(request, 10)


def test_running_info() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        async with push_consumer(cluster, Seen(), start=START_FIRST):
            await trio.sleep(12)
            header = GetConsumerRunningInfoRequestHeader(consumer_group="cg", client_id="x", jstack_enable=True)
            answer = await ask(broker, RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.properties["PROP_CONSUMER_START_TIMESTAMP"].isdecimal()
            assert info.mq_table[MessageQueue("T", "broker-a", 0)].commit_offset == 1
            assert info.status_table["T"].consume_ok_tps > 0
            assert info.jstack and "test_push_consumer" in info.jstack
            other = GetConsumerRunningInfoRequestHeader(consumer_group="other", client_id="x")
            answer = await ask(broker, RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, other))
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario)


def test_consumer_status_and_unknown_requests() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        async with push_consumer(cluster, Seen(), start=START_FIRST):
            await trio.sleep(1)
            header = GetConsumerStatusRequestHeader(topic="T", group="cg")
            answer = await ask(broker, RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
            table = GetConsumerStatusBody.decode(answer.body).message_queue_table
            assert table == {MessageQueue("T", "broker-a", 0): 1}
            answer = await ask(broker, RemotingCommand.request(9999))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(scenario)


def test_a_message_consumed_directly_moves_no_offset() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        seen = Seen(None, ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST):
            await trio.sleep(1)
            header = ConsumeMessageDirectlyRequestHeader(consumer_group="cg", client_id="x", broker_name="broker-a")
            request = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, broker.records["T", 0][0])
            result = ConsumeMessageDirectlyResult.decode((await ask(broker, request)).body)
            assert result.consume_result is CMResult.CR_THROW_EXCEPTION
            assert result.remark == "ValueError: boom"
            assert seen.bodies == [b"1", b"1"] and not broker.sent_back

    run(scenario)


def test_offsets_are_reset_backwards_after_handlers_had_time() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2")
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1):
            await trio.sleep(6)
            header = ResetOffsetRequestHeader(topic="T", group="cg", timestamp_ms=0, is_force=True)
            body = ResetOffsetBody(offset_table={MessageQueue("T", "broker-a", 0): 1})
            (channel,) = broker.members["cg"].values()
            channel.push(RemotingCommand.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body.encode()))
            await trio.sleep(9)
            assert seen.bodies == [b"1", b"2"]
            await trio.sleep(4)
            assert seen.bodies == [b"1", b"2", b"2"]

    run(scenario)


def test_retried_messages_show_the_topic_they_were_sent_to() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.topics["%RETRY%cg"] = 1
        broker.store("%RETRY%cg", 0, b"again", b"RETRY_TOPIC\x01T\x02UNIQ_KEY\x01ID", reconsume_times=2)
        seen = Seen()
        async with push_consumer(cluster, seen):
            await trio.sleep(30)
        (message,) = seen.messages
        assert (message.topic, message.msg_id, message.reconsume_times) == ("T", "ID", 2)

    run(scenario)


def test_plain_functions_run_in_threads() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        called = trio.Event()

        def handle(message: ReceivedMessage) -> None:
            assert message.body == b"1"
            trio.from_thread.run_sync(called.set)

        async with push_consumer(cluster, handle, start=START_FIRST):
            await called.wait()
        assert not broker.sent_back

    run(scenario)


def test_sent_messages_come_back_whole() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST), producer(cluster) as sender:
            body = b"large" * 2000
            result = await sender.send(Message("T", body, tags="A", keys=("k",), properties={"p": "v"}))
            await trio.sleep(1)
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
        with pytest.raises(ClientError, match="holds no tag"):
            async with push_consumer(cluster, Seen(), tags=" || "):
                pass

    run(scenario)
