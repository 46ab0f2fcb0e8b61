"""Smaller values of the client: routes, subscriptions, offset files, batches, ids."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocketpy.client.cluster.lifetime import build_client_id
from rocketpy.client.cluster.received import decode_messages
from rocketpy.client.cluster.route import (
    find_address,
    limit_queue_nums,
    parse_order_conf,
    publish_info,
    same_route,
    subscribe_queues,
    vip_address,
)
from rocketpy.client.consuming.offset_store import read_offsets, write_offsets
from rocketpy.client.consuming.process_queue import FlowLimits, ProcessQueue, limits_for_queue
from rocketpy.client.consuming.retry_sender import retry_message
from rocketpy.client.consuming.statistics import ConsumerStatistics
from rocketpy.client.consuming.subscription import build_subscription, keep_subscribed
from rocketpy.client.messages import Message, check_batch, check_message, split_batches
from rocketpy.client.options import ClientOptions, StartFrom
from rocketpy.client.results import ConsumeResult, acknowledged_count
from rocketpy.errors import ClientError, MessageInvalid
from rocketpy.message.batch import ENTRIES_MAX
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.record import encode_record
from rocketpy.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.support.clients import message, process_queue


def route(*brokers: tuple[str, int, int, int], order: str | None = None, master: bool = True) -> TopicRouteData:
    """(name, read, write, perm) of each broker."""
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={0 if master else 1: f"{name}:1"}) for name, *_ in brokers
        ],
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
            for name, read, write, perm in brokers
        ],
        order_topic_conf=order,
    )


def test_publish_info_follows_permission_master_and_name() -> None:
    """Holds: client, cache of routes."""
    info = publish_info("T", route(("b", 4, 1, 6), ("a", 4, 2, 6), ("c", 4, 2, 4)))
    assert info.queues == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0))
    assert not publish_info("T", route(("a", 4, 4, 6), master=False)).queues


def test_publish_info_of_an_ordered_topic_is_its_configuration() -> None:
    info = publish_info("T", route(("a", 4, 4, 6), order="z:2;a:1"))
    assert info.is_ordered and [queue.broker_name for queue in info.queues] == ["z", "z", "a"]
    assert parse_order_conf("a:1;;broken;b:x") == [("a", 1)]
    assert parse_order_conf("a:\u00b2;b:%s;c:-1;d:65537;e: 2" % ("9" * 5000)) == [("e", 2)]


def test_subscribe_queues_need_no_master() -> None:
    assert len(subscribe_queues("T", route(("a", 3, 1, 4), ("b", 3, 1, 2), master=False))) == 3


@pytest.mark.parametrize("count", [1_100_000, (1 << 31) - 1])
def test_a_broker_with_millions_of_queues_is_left_out(count: int) -> None:
    """Fault: A forged registration with 2 147 483 647 queues took the memory of each client of the topic."""
    told = route(("a", 4, 4, 6), ("forged", count, count, 6), ("b", 2, 2, 6), ("c", -1, -1, 6))
    assert {queue.broker_name for queue in publish_info("T", told).queues} == {"a", "b"}
    assert len(publish_info("T", told).queues) == len(subscribe_queues("T", told)) == 6
    assert len(parse_order_conf(";".join(f"{name}:65536" for name in map(str, range(20))))) == 16


def test_template_routes_are_cut_to_size() -> None:
    (data,) = limit_queue_nums(route(("a", 8, 8, 7)), 4).queue_datas
    assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (4, 4, 7)
    (data,) = limit_queue_nums(route(("a", 2, 8, 7)), 4).queue_datas
    assert (data.read_queue_nums, data.write_queue_nums) == (2, 2)


def test_routes_are_equal_whatever_the_order() -> None:
    assert same_route(route(("a", 1, 1, 6), ("b", 1, 1, 6)), route(("b", 1, 1, 6), ("a", 1, 1, 6)))
    assert not same_route(route(("a", 1, 1, 6)), route(("a", 2, 1, 6)))
    assert not same_route(None, route())


def test_find_address_falls_back() -> None:
    """Holds: client, consumers of master and slave."""
    addresses = {0: "m", 2: "s2"}
    assert find_address(addresses) == (0, "m")
    assert find_address(addresses, 1) == (2, "s2")
    assert find_address(addresses, 5) == (0, "m")
    assert find_address(addresses, 5, only_this_broker=True) is None
    assert find_address({}) is None
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"


@pytest.mark.parametrize("expression", [None, "", "*", "  "])
def test_everything(expression: str | None) -> None:
    data = build_subscription("T", expression, 7)
    assert (data.sub_string, data.tags_set, data.code_set, data.sub_version) == ("*", [], [], 7)


def test_tags() -> None:
    data = build_subscription("T", "TagA || TagB||TagA ||", 7)
    assert (data.sub_string, data.tags_set) == ("TagA || TagB||TagA ||", ["TagA", "TagB"])
    assert data.code_set == [2598919, 2598920]
    kept = keep_subscribed(
        [message(0, properties={"TAGS": "TagA"}), message(1, properties={"TAGS": "TagC"}), message(2)], data
    )
    assert [one.queue_offset for one in kept] == [0]


def test_an_expression_without_tags_is_refused() -> None:
    with pytest.raises(ClientError, match="no tag"):
        build_subscription("T", "||", 0)


def test_offset_file_keeps_the_previous_version_and_survives_damage(tmp_path: Path) -> None:
    path = tmp_path / "a" / "offsets.json"
    queue = MessageQueue("T", "broker-a", 0)
    assert read_offsets(path) == {}
    write_offsets(path, {queue: 41})
    write_offsets(path, {queue: 42})
    assert path.read_text() == '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:42}}'
    assert read_offsets(path) == {queue: 42}
    path.write_text("{")
    assert read_offsets(path) == {queue: 41}
    path.with_name("offsets.json.bak").write_text("")
    with pytest.raises(ClientError, match="nor its backup"):
        read_offsets(path)


def test_split_batches() -> None:
    messages = [Message("T", b"x" * 1000) for _ in range(10)]
    batches = list(split_batches(messages, 3500))
    assert [len(batch) for batch in batches] == [3, 3, 3, 1]
    assert [len(batch) for batch in split_batches([Message("T", b"x" * 10_000)] * 2, 100)] == [1, 1]
    assert list(split_batches([])) == []
    many = split_batches([Message("T", b"")] * (ENTRIES_MAX + 1), 4 << 20)
    assert [len(batch) for batch in many] == [ENTRIES_MAX, 1]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("T", b"1"), Message("U", b"2")],
        [Message("T", b"1", delay_level=1)],
        [Message("T", b"1", delay_ms=1)],
        [Message("T", b"1"), Message("T", b"2", wait_store=False)],
        [Message("T", b"1"), Message("T", b"2", born_at_ms=1)],
        [Message("%RETRY%g", b"1")],
    ],
    ids=["empty", "topics", "delay", "timer", "wait", "born", "retry"],
)
def test_no_batch_of_these(messages: list[Message]) -> None:
    with pytest.raises(MessageInvalid):
        check_batch(messages)


def test_retry_message_keeps_what_it_was() -> None:
    first = retry_message("g", message(3, b"body", properties={"TRAN_MSG": "true", "k": "v"}, flag=9), 16)
    assert (first.topic, first.body, first.flag) == ("%RETRY%g", b"body", 9)
    assert first.properties == {
        "k": "v",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": message(3).offset_msg_id,
        "RECONSUME_TIME": "1",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "3",
    }
    again = retry_message("g", message(9, topic="%RETRY%g", properties=first.properties, reconsume_times=1), 16)
    assert (again.properties["RETRY_TOPIC"], again.properties["ORIGIN_MESSAGE_ID"]) == ("T", message(3).offset_msg_id)
    assert (again.properties["RECONSUME_TIME"], again.properties["DELAY"]) == ("2", "4")
    made_up = retry_message("g", message(3, reconsume_times=-(1 << 31)), 16)
    assert (made_up.properties["RECONSUME_TIME"], made_up.properties["DELAY"]) == ("1", "3")


def test_flow_limits_are_strictly_greater() -> None:
    """Holds: client, flow control."""
    limits = FlowLimits(message_count=3, size=1 << 20, span_max=5)
    assert not limits.blocks(process_queue(0, 1, 2))
    assert limits.blocks(process_queue(0, 1, 2, 3))
    assert not limits.blocks(process_queue(0, 5)) and limits.blocks(process_queue(0, 6))
    heavy = ProcessQueue(0)
    heavy.put([message(0, b"x" * (2 << 20))])
    assert limits.blocks(heavy)
    heavy.remove([message(0, b"x" * (2 << 20))])
    assert not limits.blocks(heavy)


def test_topic_limits_are_shared_among_all_owned_queues() -> None:
    limits = FlowLimits(1000, 100 << 20, None)
    assert limits_for_queue(limits, 4, -1, -1) == limits
    assert limits_for_queue(limits, 4, 10, 1 << 20) == FlowLimits(2, 1 << 20, None)
    assert limits_for_queue(limits, 0, 10, 10) == limits


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ConsumeResult.retry(), 0),
        (ConsumeResult.dead_letter(), 0),
        (ConsumeResult.partial(1), 2),
        (ConsumeResult.partial(-1), 0),
        (ConsumeResult.partial(99), 5),
        (ConsumeResult.hold(), 5),
    ],
)
def test_acknowledged_count(result: ConsumeResult, expected: int) -> None:
    assert acknowledged_count(result, 5) == expected


def test_client_ids() -> None:
    options = ClientOptions(client_ip="10.0.0.1", unit_name="u")
    assert build_client_id(options, unique=False, stream=True) == "10.0.0.1@DEFAULT@u@STREAM"
    assert build_client_id(options) != build_client_id(options)
    assert build_client_id(ClientOptions(client_ip="10.0.0.1", instance_name="me")) == "10.0.0.1@me"


def test_name_server_list() -> None:
    assert ClientOptions(name_servers=" a:1 ;;http://b:2").name_server_list == ("a:1", "b:2")


def test_start_from_needs_a_time_zone() -> None:
    assert StartFrom.at(datetime(2024, 1, 1, tzinfo=UTC)).timestamp_ms == 1_704_067_200_000
    with pytest.raises(ValueError, match="aware"):
        StartFrom.at(datetime(2024, 1, 1))


def test_statistics_cover_the_last_minute() -> None:
    statistics = ConsumerStatistics()
    statistics.sample(0.0)
    for second in range(10, 130, 10):
        statistics.pulled("T", 20, 0.005)
        statistics.consumed("T", ok=10, failed=5, spent_s=0.002)
        statistics.sample(float(second))
    status = statistics.status("T")
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == (2.0, 1.0, 0.5)
    assert (status.pull_rt, status.consume_rt, status.consume_failed_msgs) == (pytest.approx(5), pytest.approx(2), 60)
    assert statistics.status("other").pull_tps == 0


def test_a_body_that_cannot_be_inflated_is_handed_on_as_it_is() -> None:
    image = encode_record(
        topic="T",
        queue_id=0,
        body=b"not zlib",
        properties=b"",
        born_timestamp_ms=0,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=0,
        store_host=("127.0.0.1", 2),
        queue_offset=0,
        phy_offset=0,
        sys_flag=0x301,
    )
    (received,) = decode_messages(image, "b")
    assert (received.body, received.sys_flag) == (b"not zlib", 0x301)


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (Message("T", b"1", delay_ms=1500), {"TIMER_DELAY_MS": "1500"}),
        (Message("T", b"1", deliver_at_ms=1_800_000_000_000), {"TIMER_DELIVER_MS": "1800000000000"}),
        (Message("T", b"1"), {}),
    ],
)
def test_a_timer_has_the_property_of_5_x_clients(message: Message, wire: dict[str, str]) -> None:
    check_message(message, 100)
    assert {name: value for name, value in message.to_properties().items() if name.startswith("TIMER")} == wire


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"1", delay_ms=-1),
        Message("T", b"1", deliver_at_ms=-1),
        Message("T", b"1", delay_ms=1, deliver_at_ms=1),
        Message("T", b"1", delay_ms=1, delay_level=1),
        Message("T", b"1", properties={"TIMER_DELAY_MS": "1"}),
    ],
)
def test_a_message_that_cannot_be_a_timer_is_refused(message: Message) -> None:
    with pytest.raises(MessageInvalid):
        check_message(message, 100)


@pytest.mark.parametrize("flag", [1 << 31, -(1 << 31) - 1])
def test_a_flag_beyond_32_bits_is_refused(flag: int) -> None:
    """Fault: In a batch it raised struct.error."""
    with pytest.raises(MessageInvalid, match="does not fit 32 bits"):
        check_message(Message("T", b"1", flag=flag), 100)
