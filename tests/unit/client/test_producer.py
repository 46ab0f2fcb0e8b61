"""Producer against a scripted cluster: where messages go, what is repeated, how long it takes."""

import pytest

from rocketpy import aio
from rocketpy.client.messages import Message
from rocketpy.client.options import START_FIRST
from rocketpy.client.results import SendStatus
from rocketpy.client.sending.handles import SendHandle
from rocketpy.client.sending.sender import Member
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectFailed, MessageInvalid, RequestTimeout
from rocketpy.message.batch import decode_batch
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import decode_properties, encode_properties
from rocketpy.message.record import decode_records
from rocketpy.message.sys_flag import CompressionType, with_compression
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import producer, pull_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

SEND = RequestCode.SEND_MESSAGE_V2


def stored(broker: FakeBroker, topic: str = "T") -> list[bytes]:
    return [
        record.body
        for (name, _), images in broker.records.items()
        if name == topic
        for image in images
        for record in decode_records(image)
    ]


def test_send_takes_the_queues_in_turn_and_keeps_the_properties() -> None:
    """Holds: client, queues in turn."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=3)
        async with producer(cluster) as sender:
            results = [
                await sender.send(Message("T", b"m", tags="A", keys=("k1", "k2"), properties={"x": "1"}))
                for _ in range(3)
            ]
        assert {result.queue.queue_id for result in results} == {0, 1, 2}
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        header = read_send_header(broker.got(SEND)[0])
        assert (header.producer_group, header.default_topic, header.default_topic_queue_nums) == ("pg", "TBW102", 4)
        properties = decode_properties(header.properties or "")
        assert properties == {"x": "1", "TAGS": "A", "KEYS": "k1 k2", "WAIT": "true", "UNIQ_KEY": results[0].msg_id}
        assert results[0].offset_msg_id.startswith("0A000001")

    run(scenario)


def test_a_topic_that_does_not_exist_goes_by_the_template() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker()
        async with producer(cluster) as sender:
            assert len(await sender.queues("New")) == 4
            await sender.send(Message("New", b"m"))
            await aio.sleep(31)
        assert broker.topics["New"] == 4

    run(scenario)


def test_no_route_and_no_name_server_are_different_errors() -> None:
    """Holds: client, routes asked for every 30 s."""

    async def scenario(cluster: FakeCluster) -> None:
        async with producer(cluster) as sender:
            with pytest.raises(ClientError, match="no route for topic T"):
                await sender.send(Message("T", b"m"))
        cluster.name_server.unreachable = True
        async with producer(cluster) as sender:
            with pytest.raises(ConnectFailed, match="no name server"):
                await sender.send(Message("T", b"m"))

    run(scenario)


def test_a_topic_without_a_writable_queue_does_not_fall_back_to_the_template() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=4)
        cluster.perms["T", "broker-a"] = 4
        async with producer(cluster) as sender:
            with pytest.raises(ClientError, match="no queue of it can be written"):
                await sender.send(Message("T", b"m"))

    run(scenario)


def test_a_refused_send_is_repeated_on_another_broker_with_the_same_id() -> None:
    """Holds: client, fast failure and retries on other brokers."""

    async def scenario(cluster: FakeCluster) -> None:
        first, second = cluster.add_broker("broker-a", T=2), cluster.add_broker("broker-b", T=2)
        for broker in (first, second):
            broker.refuse(SEND, ResponseCode.SYSTEM_ERROR)
        async with producer(cluster) as sender:
            result = await sender.send(Message("T", b"m"))
        headers = [read_send_header(request) for request in first.got(SEND) + second.got(SEND)]
        assert len(headers) == 3
        assert {decode_properties(header.properties or "")["UNIQ_KEY"] for header in headers} == {result.msg_id}
        assert stored(first) + stored(second) == [b"m"]
        assert all(header.broker_name for header in headers)

    run(scenario)


def test_the_last_refusal_is_raised_when_attempts_are_used_up() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(SEND, 17, 14, 16)
        async with producer(cluster) as sender:
            with pytest.raises(BrokerError) as caught:
                await sender.send(Message("T", b"m"))
        assert caught.value.code == ResponseCode.NO_PERMISSION
        assert len(broker.got(SEND)) == 3

    run(scenario)


def test_system_busy_is_not_repeated() -> None:
    """Holds: trap, SYSTEM_BUSY is not retried."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(SEND, ResponseCode.SYSTEM_BUSY)
        async with producer(cluster) as sender:
            with pytest.raises(BrokerError):
                await sender.send(Message("T", b"m"))
        assert len(broker.got(SEND)) == 1

    run(scenario)


def test_a_broker_that_hangs_uses_the_whole_budget() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.mute.add(SEND)
        async with producer(cluster) as sender:
            begin = aio.now_s()
            with pytest.raises(RequestTimeout) as caught:
                await sender.send(Message("T", b"m"))
            assert aio.now_s() - begin == pytest.approx(3.0, abs=0.01)
        assert isinstance(caught.value, TimeoutError)
        assert len(broker.got(SEND)) == 1

    run(scenario)


def test_an_unreachable_broker_is_followed_by_another() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        first, second = cluster.add_broker("broker-a", T=1), cluster.add_broker("broker-b", T=1)
        first.unreachable = True
        async with producer(cluster) as sender:
            for _ in range(4):
                assert (await sender.send(Message("T", b"m"))).queue.broker_name == "broker-b"
        assert len(stored(second)) == 4

    run(scenario)


def test_stored_but_late_is_a_success() -> None:
    """Holds: trap, FLUSH_DISK_TIMEOUT is a success of a send only."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.answers[SEND] = lambda request, channel: late(broker.send(request, channel))
        async with producer(cluster) as sender:
            assert (await sender.send(Message("T", b"m"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert len(broker.got(SEND)) == 1
        async with producer(cluster, retry_another_broker_when_not_stored_ok=True) as sender:
            assert (await sender.send(Message("T", b"m"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert len(broker.got(SEND)) == 4

    def late(response: object) -> object:
        response.code = ResponseCode.FLUSH_SLAVE_TIMEOUT  # type: ignore[attr-defined] # a RemotingCommand
        return response

    run(scenario)


def test_a_chosen_queue_has_one_attempt() -> None:
    """Holds: client, queues chosen by the caller."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=8)
        async with producer(cluster) as sender:
            keyed = await sender.send(Message("T", b"m", order_key="order-1001"))
            chosen = await sender.send(Message("T", b"m"), queue=MessageQueue("T", "broker-a", 2))
            assert (keyed.queue.queue_id, chosen.queue.queue_id) == (7, 2)
            broker.refuse(SEND, ResponseCode.SYSTEM_ERROR)
            with pytest.raises(BrokerError):
                await sender.send(Message("T", b"m"), key="order-1001")
        assert len(broker.got(SEND)) == 3

    run(scenario)


def test_large_bodies_travel_compressed() -> None:
    """Holds: client, compression of large bodies."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        body = b"x" * 4096
        async with producer(cluster) as sender:
            await sender.send(Message("T", body))
            await sender.send(Message("T", body[:-1]))
        large, small = (read_send_header(request) for request in broker.got(SEND))
        assert (large.sys_flag, small.sys_flag) == (0x301, 0)
        assert len(broker.got(SEND)[0].body or b"") < 100

    run(scenario)


def test_a_batch_is_one_request_and_every_member_has_an_id() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster) as sender:
            result = await sender.send_batch([Message("T", b"1"), Message("T", b"2", tags="A")])
        assert len(set(result.msg_id.split(","))) == len(result.offset_msg_id.split(",")) == 2
        assert stored(broker) == [b"1", b"2"]
        (request,) = broker.got(RequestCode.SEND_BATCH_MESSAGE)
        assert read_send_header(request).batch and read_send_header(request).sys_flag == 0

    run(scenario)


def test_members_are_stored_as_the_messages_of_a_batch() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        members = [
            Member(b"1", encode_properties({"x": "1", "TAGS": "A"}), None, 7),
            Member(b"2", "", "0A0B"),
        ]
        first = Message("T", b"1", tags="A", properties={"x": "1"}, flag=7, born_at_ms=5)
        second = Message("T", b"2", msg_id="0A0B", born_at_ms=5)
        async with producer(cluster) as sender:
            made = await sender.send_members("T", members, born_at_ms=5)
            sent = await sender.send_batch([first, second])
        one, other = broker.got(RequestCode.SEND_BATCH_MESSAGE)
        ids = made.msg_id.split(","), sent.msg_id.split(",")
        assert ids[0][0] != ids[1][0] and ids[0][1] == ids[1][1] == "0A0B"
        entries = [decode_batch(request.body or b"") for request in (one, other)]
        for pair, expected in zip(zip(*entries, strict=True), zip(*ids, strict=True), strict=True):
            assert pair[0].body == pair[1].body and pair[0].flag == pair[1].flag
            texts = [decode_properties(entry.properties.decode()) for entry in pair]
            assert [text.pop("UNIQ_KEY") for text in texts] == list(expected) and texts[0] == texts[1]
        assert [read_send_header(request).born_timestamp_ms for request in (one, other)] == [5, 5]

    run(scenario)


@pytest.mark.parametrize(
    ("topic", "members", "fault"),
    [
        ("T", [], "the message body is empty"),
        ("T", [Member(b"1"), Member(b"")], "the message body is empty"),
        ("a b", [Member(b"1")], "contains"),
        ("T", [Member(b"x" * 60)] * 2, "allowed are 100"),
        ("T", [Member(b"1", flag=2**31)], "does not fit 32 bits"),
        ("T", [Member(b"1", msg_id="a\x02TAGS\x01b")], "contains a separator"),
    ],
)
def test_members_that_no_broker_takes_are_refused(topic: str, members: list[Member], fault: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, message_size_max=100) as sender:
            with pytest.raises(MessageInvalid, match=fault):
                await sender.send_members(topic, members)
        assert not broker.got(RequestCode.SEND_BATCH_MESSAGE)

    run(scenario)


def test_each_failure_of_a_batch_is_one_short_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A failed batch was logged with the ids of all its messages: 16 KiB for each attempt."""

    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1).refuse(RequestCode.SEND_BATCH_MESSAGE, ResponseCode.NO_PERMISSION)
        async with producer(cluster) as sender:
            await sender.send_batch([Message("T", b"%d" % number) for number in range(500)])

    run(scenario)
    lines = [record.message for record in caplog.records if record.message.startswith("cannot send message")]
    assert lines and all(" and 499 more to queue T@" in line and len(line) < 300 for line in lines)


def test_oneway_is_flagged_and_not_answered() -> None:
    """Holds: network, synchronous, asynchronous and oneway requests."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster) as sender:
            await sender.send_oneway(Message("T", b"m"))
            await aio.sleep(0.01)
        assert stored(broker) == [b"m"] and broker.got(SEND)[0].is_oneway

    run(scenario)


def test_background_sends_are_bounded_and_awaited_at_the_end() -> None:
    """Holds: network, synchronous, asynchronous and oneway requests."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        open_now, most = 0, 0

        async def slow(request: object, channel: object) -> object:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            await aio.sleep(1)
            open_now -= 1
            return broker.send(request, channel)  # type: ignore[arg-type] # what the broker itself got

        broker.answers[SEND] = slow  # type: ignore[assignment] # as above
        done: list[SendHandle] = []
        async with producer(cluster, in_flight_max=4) as sender:
            handles = [await sender.send_soon(Message("T", b"m"), on_done=done.append) for _ in range(10)]
        assert most == 4
        assert [handle.error for handle in handles] == [None] * 10 and len(done) == 10
        assert len(stored(broker)) == 10

    run(scenario)


def test_background_sends_repeat_transport_failures_only() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        first, second = cluster.add_broker("broker-a", T=1), cluster.add_broker("broker-b", T=1)
        first.unreachable = True
        async with producer(cluster) as sender:
            for _ in range(3):
                assert (await (await sender.send_soon(Message("T", b"m")))).queue.broker_name == "broker-b"
            second.refuse(SEND, ResponseCode.SYSTEM_ERROR)
            first.unreachable = False
            handles = [await sender.send_soon(Message("T", b"m")) for _ in range(2)]
            outcomes = []
            for handle in handles:
                try:
                    outcomes.append((await handle).queue.broker_name)
                except BrokerError as error:
                    outcomes.append(error.code)
        assert outcomes.count(ResponseCode.SYSTEM_ERROR) == 1

    run(scenario)


@pytest.mark.parametrize(
    "message",
    [
        Message("", b"m"),
        Message("T", b""),
        Message("bad topic", b"m"),
        Message("SCHEDULE_TOPIC_XXXX", b"m"),
        Message("T", b"m" * (4 * 1024 * 1024 + 1)),
        Message("T", b"m", properties={"KEYS": "k"}),
        Message("T", b"m", properties={"a": ""}),
        Message("T", b"m", properties={"a": "1\x02"}),
        Message("T", b"m", keys="two words"),
        Message("T", b"m", tags="A || B"),
    ],
    ids=lambda message: str(message)[:60],
)
def test_what_no_broker_would_take_is_refused_before_it_is_sent(message: Message) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster) as sender:
            with pytest.raises(MessageInvalid):
                await sender.send(message)
        assert not broker.got(SEND)

    run(scenario)


def test_text_is_not_a_body() -> None:
    with pytest.raises(MessageInvalid, match="bytes"):
        Message("T", "text")  # type: ignore[arg-type] # the mistake under test


def test_producers_heartbeat_and_say_good_bye() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"))
            await aio.sleep(2)
            assert broker.producers["pg"] == {"10.1.1.1@p"}
            await aio.sleep(60)
            assert len(broker.got(RequestCode.HEART_BEAT)) == 3
        assert broker.producers["pg"] == set()

    run(scenario)


def test_an_error_of_the_body_leaves_as_it_is() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        with pytest.raises(KeyError, match="mine"):
            async with producer(cluster):
                raise KeyError("mine")

    run(scenario)


def test_a_producer_that_is_not_open_says_so() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        with pytest.raises(ClientError, match="async with"):
            await producer(cluster).send(Message("T", b"m"))

    run(scenario)


def test_latency_faults_keep_away_from_a_failed_broker() -> None:
    """Holds: client, latency fault tolerance."""

    async def scenario(cluster: FakeCluster) -> None:
        first, second = cluster.add_broker("broker-a", T=2), cluster.add_broker("broker-b", T=2)
        async with producer(cluster, latency_fault_enable=True) as sender:
            for _ in range(4):
                await sender.send(Message("T", b"m"))
            first.refuse(SEND, *[ResponseCode.SYSTEM_ERROR] * 100)
            for _ in range(10):
                await sender.send(Message("T", b"m"))
            refused = 100 - len(first.refusals[SEND])
        assert refused == 1, "after one failure the broker is left alone"
        assert stored(second)

    run(scenario)


@pytest.mark.parametrize("enabled", [False, True])
def test_latency_faults_keep_away_from_a_slow_broker_for_a_while(enabled: bool) -> None:
    """Holds: client, latency fault tolerance."""

    async def scenario(cluster: FakeCluster) -> None:
        slow, fast = cluster.add_broker("broker-a", T=2), cluster.add_broker("broker-b", T=2)
        answer = slow.answers[SEND]

        async def late(request: RemotingCommand, channel: Channel) -> object:
            await aio.sleep(0.6)  # 0.55 s and more: left alone for 30 s
            return answer(request, channel)

        slow.answers[SEND] = late  # type: ignore[assignment]
        async with producer(cluster, latency_fault_enable=enabled) as sender:
            for _ in range(12):
                await sender.send(Message("T", b"m"))
            assert (len(stored(slow)), len(stored(fast))) == ((1, 11) if enabled else (6, 6))
            await aio.sleep(31)
            for _ in range(4):
                await sender.send(Message("T", b"m"))
            assert len(stored(slow)) == (2 if enabled else 8)

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "magic"), [("ZLIB", b"\x78"), ("LZ4", b"\x04\x22\x4d\x18"), ("ZSTD", b"\x28\xb5\x2f\xfd")]
)
def test_large_bodies_are_compressed_as_the_options_say(kind: str, magic: bytes) -> None:
    """Holds: client, compression of large bodies."""
    compression = CompressionType[kind]
    for module in {"LZ4": ["lz4"], "ZSTD": ["zstandard"]}.get(kind, []):
        pytest.importorskip(module)

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, compression=compression, compress_over=100) as sender:
            await sender.send(Message("T", b"m" * 99))
            await sender.send(Message("T", b"m" * 100))
        async with pull_consumer(cluster, start=START_FIRST) as reader:
            await reader.subscribe("T")
            received = await reader.poll(timeout=60)
        small, large = stored(broker)
        assert small == b"m" * 99 and large.startswith(magic)
        assert [message.body for message in received] == [b"m" * 99, b"m" * 100]
        assert [message.sys_flag for message in received] == [0, with_compression(0, compression)]

    run(scenario)
