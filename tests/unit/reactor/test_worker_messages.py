"""Messages between workers: the layouts are C's, and what Python writes Python and C read back."""

from __future__ import annotations

import socket
import struct

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path import filter_messages
from rocketpy.native.core import ffi, lib
from rocketpy.reactor import worker_messages
from rocketpy.reactor.channel import Gateway, RingChannel
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.fast_path import Delivery, MessageToPut, SendRequest, TimerState, Traffic

CHANNEL = RingChannel(7, Peer("10.0.0.1", 5), False, Gateway([]))


def c_record(name: str, fields: dict[str, object], tail: bytes = b"") -> bytes:
    """The record as C would lay it out."""
    record = ffi.new(f"{name} *", fields)
    return bytes(ffi.buffer(record)) + tail


ORIGIN = {"connection": 5 << 56 | 9 << 32 | 1, "received_ns": 77, "listener": 1}
SEND = {
    "opaque": -3,
    "code": 310,
    "version": 409,
    "flags": 0,
    "queue_id": 2,
    "sys_flag": 8,
    "message_flag": 5,
    "reconsume_times": 1,
    "max_reconsume_times": 16,
    "default_topic_queue_nums": 4,
    "born_timestamp_ms": 1 << 41,
    "prepared_transaction_offset": 6,
    "token": 1 << 60,
    "topic_size": 1,
    "group_size": 2,
    "default_topic_size": 3,
    "properties_size": 4,
    "body_size": 5,
    "unit_mode": 1,
}
STRINGS = b"TGGDDDpropbody!"


def send_request(flags: int = 0) -> SendRequest:
    return worker_messages.decode_send(c_record("rp_msg_send", {**SEND, "flags": flags}, STRINGS), CHANNEL)


def test_a_send_is_read_as_c_wrote_it() -> None:
    request = send_request()
    wanted = {key: value for key, value in SEND.items() if key not in ("flags", "token", "max_reconsume_times")}
    for key in ("opaque", "code", "version", "queue_id", "sys_flag", "message_flag", "reconsume_times"):
        assert getattr(request, key) == wanted[key]
    assert (request.topic, request.producer_group, request.default_topic) == ("T", "GG", "DDD")
    assert (request.properties, request.body) == (b"prop", b"body!")
    assert (request.born_timestamp_ms, request.unit_mode, request.max_reconsume_times) == (1 << 41, True, None)
    assert request.wait_store and not (request.is_oneway or request.is_batch or request.is_rocketmq)


@pytest.mark.parametrize(
    ("flag", "changed"),
    [
        ("RP_REQUEST_ONEWAY", {"is_oneway": True}),
        ("RP_REQUEST_ROCKETMQ", {"is_rocketmq": True}),
        ("RP_REQUEST_BATCH", {"is_batch": True}),
        ("RP_REQUEST_NO_WAIT", {"wait_store": False}),
        ("RP_REQUEST_HAS_WAIT", {"has_wait": True}),
        ("RP_REQUEST_HAS_MAX_RECONSUME", {"max_reconsume_times": 16}),
    ],
)
def test_flags_of_a_send(flag: str, changed: dict[str, object]) -> None:
    flagged = send_request(getattr(lib, flag))
    assert attrs.evolve(flagged, raw=b"") == attrs.evolve(send_request(), raw=b"", **changed)


def test_a_resolved_send_keeps_what_is_not_given() -> None:
    request = send_request(lib.RP_REQUEST_ADD_CLUSTER)
    record = worker_messages.resolve_send(request, topic=None, queue_id=None, properties=None, sys_flag=None)
    at = ffi.offsetof("rp_msg_send", "flags")
    assert struct.unpack_from("=I", record, at)[0] == lib.RP_REQUEST_ADD_CLUSTER | lib.RP_REQUEST_RESOLVED
    assert record[:at] + record[at + 4 :] == request.raw[:at] + request.raw[at + 4 :]


def test_a_resolved_send_with_everything_changed() -> None:
    request = send_request(lib.RP_REQUEST_ADD_CLUSTER)
    record = worker_messages.resolve_send(request, topic="OTHER", queue_id=9, properties=b"", sys_flag=1)
    again = worker_messages.decode_send(record, CHANNEL)
    assert (again.topic, again.queue_id, again.properties, again.sys_flag) == ("OTHER", 9, b"", 1)
    assert (again.producer_group, again.body, again.opaque) == (request.producer_group, request.body, request.opaque)
    flags = struct.unpack_from("=I", record, ffi.offsetof("rp_msg_send", "flags"))[0]
    assert flags == lib.RP_REQUEST_RESOLVED  # stored exactly as given: no CLUSTER


def test_a_put_of_our_own_is_internal_and_resolved() -> None:
    message = MessageToPut("TOPIC", 3, b"body", b"props", born_host=("::1", 99), wait_store=False, sys_flag=4)
    record = worker_messages.encode_put(message, token=123, received_ns=5)
    origin = worker_messages.decode_origin(record)
    assert origin.connection == worker_messages.CONNECTION_INTERNAL and origin.peer == Peer("::1", 99)
    read = worker_messages.decode_send(record, CHANNEL)
    assert (read.topic, read.queue_id, read.body, read.properties) == ("TOPIC", 3, b"body", b"props")
    assert not read.wait_store
    token = ffi.cast("rp_msg_send *", ffi.from_buffer(record)).token
    assert token == 123


def test_a_delivery_crosses_in_the_place_of_the_group() -> None:
    message = MessageToPut("TOPIC", 3, b"body", b"props", delivery=Delivery(5, 1 << 40, 7))
    record = worker_messages.encode_put(message, token=1, received_ns=5)
    request = ffi.cast("rp_msg_send *", ffi.from_buffer(record))
    assert request.flags & lib.RP_REQUEST_DELIVERY and request.group_size == ffi.sizeof("rp_delivery")
    delivery = ffi.new("rp_delivery *")
    ffi.memmove(delivery, record[-len(b"bodyprops") - request.group_size :], request.group_size)
    assert (delivery.level, delivery.phy_offset, delivery.queue_offset) == (5, 1 << 40, 7)
    read = worker_messages.decode_send(record, CHANNEL)
    assert (read.topic, read.body, read.properties) == ("TOPIC", b"body", b"props")


def test_a_pull_is_read_as_c_wrote_it_and_handed_back_marked() -> None:
    fields = {
        "opaque": 1,
        "code": 11,
        "version": 3,
        "flags": lib.RP_REQUEST_ROCKETMQ,
        "queue_id": 4,
        "max_msg_nums": 5,
        "sys_flag": 6,
        "queue_offset": 1 << 40,
        "commit_offset": -1,
        "sub_version": 8,
        "suspend_timeout_ms": 9,
        "group_size": 1,
        "topic_size": 2,
        "subscription_size": 3,
        "expression_type_size": 0,
    }
    request = worker_messages.decode_pull(c_record("rp_msg_pull", fields, b"GTTsss"), CHANNEL)
    for key in (
        "opaque",
        "code",
        "version",
        "queue_id",
        "max_msg_nums",
        "sys_flag",
        "queue_offset",
        "commit_offset",
        "sub_version",
        "suspend_timeout_ms",
    ):
        assert getattr(request, key) == fields[key]
    assert (request.consumer_group, request.topic, request.subscription, request.expression_type) == (
        "G",
        "TT",
        "sss",
        "",
    )
    assert request.is_rocketmq and not request.is_oneway
    back = worker_messages.resolve_pull(request)
    flags = lib.RP_REQUEST_ROCKETMQ | lib.RP_REQUEST_RESOLVED
    assert back == c_record("rp_msg_pull", {**fields, "flags": flags}, b"GTTsss")


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", 4), ("2001:db8::7", 6)])
def test_origin(host: str, family: int) -> None:
    address = socket.inet_pton(socket.AF_INET6 if family == 6 else socket.AF_INET, host).ljust(16, b"\0")
    record = c_record("rp_origin", {**ORIGIN, "peer": {"address": list(address), "port": 4711, "family": family}})
    assert c_record("rp_host", worker_messages.encode_host(host, 4711)) == address + struct.pack("=HBx", 4711, family)
    origin = worker_messages.decode_origin(record)
    assert (origin.connection, origin.received_ns, origin.listener) == (ORIGIN["connection"], 77, 1)
    assert origin.peer == Peer(host, 4711)


def test_an_ipv4_address_in_ipv6_is_ipv4_as_in_java() -> None:
    assert worker_messages.encode_host("::ffff:10.0.0.7", 1) == worker_messages.encode_host("10.0.0.7", 1)


def test_a_put_result_names_the_message_by_host_and_offset() -> None:
    fields = {
        "token": 5,
        "phy_offset": 0x1234,
        "queue_offset": 7,
        "store_timestamp_ms": 8,
        "code": 10,
        "queue_id": 2,
        "size": 100,
    }
    token, result = worker_messages.decode_put_result(c_record("rp_msg_put_result", fields), ("10.1.2.3", 10911))
    assert token == 5
    assert result.is_stored and result.message_id == "0A01020300002A9F0000000000001234"
    assert (result.phy_offset, result.queue_offset, result.size, result.store_timestamp_ms) == (0x1234, 7, 100, 8)
    _, refused = worker_messages.decode_put_result(
        c_record("rp_msg_put_result", {**fields, "code": 14}), ("10.1.2.3", 10911)
    )
    assert (refused.code, refused.phy_offset, refused.message_id) == (14, -1, "")
    assert result.timer_state is refused.timer_state is TimerState.PENDING


@pytest.mark.parametrize("state", list(TimerState))
def test_a_put_result_says_what_had_become_of_the_timer(state: TimerState) -> None:
    fields = {"token": 5, "code": 22, "timer_state": getattr(lib, f"RP_TIMER_STATE_{state.name}")}
    _, result = worker_messages.decode_put_result(c_record("rp_msg_put_result", fields), ("10.1.2.3", 10911))
    assert result.timer_state is state


def test_a_commit_offset() -> None:
    fields = {"offset": 1 << 40, "queue_id": 3, "group_size": 2, "topic_size": 1, "received_ns": 8_999_999}
    assert worker_messages.decode_commit_offset(c_record("rp_msg_commit_offset", fields, b"GGT")) == (
        "GG",
        "T",
        3,
        1 << 40,
        8,
    )


def test_traffic_of_sends_has_no_group() -> None:
    sums = {"messages": 5, "bytes": 1 << 40, "requests": 2, "behind_bytes": 6, "queue_id": 3, "topic_size": 1}
    assert worker_messages.decode_traffic(c_record("rp_msg_traffic", sums, b"T")) == Traffic(
        topic="T", queue_id=3, messages=5, bytes=1 << 40, requests=2, behind_bytes=6
    )


def test_tables_are_laid_out_as_c_reads_them() -> None:
    fields = {"flags": 4, "perm": 6, "read_queue_nums": 8, "write_queue_nums": 9, "topic_size": 3}
    assert worker_messages.encode_topic("abc", flags=4, perm=6, read_queue_nums=8, write_queue_nums=9) == c_record(
        "rp_msg_topic", fields, b"abc"
    )
    group = {"flags": 2, "broker_id": 1, "which_broker_when_slow": 3, "group_size": 1}
    assert worker_messages.encode_group("g", flags=2, broker_id=1, which_broker_when_slow=3) == c_record(
        "rp_msg_group", group, b"g"
    )
    subscription = {"sub_version": 5, "flags": 0, "group_size": 1, "topic_size": 2, "tag_count": 2}
    hashes = struct.pack("=ii", 2598919, 2598920)  # "TagA".hashCode(), "TagB".hashCode()
    assert filter_messages.encode_subscription("g", "tt", flags=0, sub_version=5, tags=["TagA", "TagB"]) == c_record(
        "rp_msg_subscription", subscription, hashes + b"gtt"
    )


def test_requests_to_clean_are_told_apart_by_their_bytes() -> None:
    """Fault: A deleted topic kept its queues because manager and store worker disagreed on the record."""
    asked = worker_messages.encode_clean_topic("%RETRY%g", 7)
    assert asked == c_record("rp_msg_clean_topic", {"token": 7, "topic_size": 8}, b"%RETRY%g")
    assert worker_messages.encode_clean_expired() == c_record("rp_msg_clean_topic", {}, b"")


def test_a_record_shorter_than_its_struct_is_refused() -> None:
    with pytest.raises(ValueError, match="rp_origin has 40 bytes, here are 39"):
        worker_messages.connection_of(bytes(39))


def test_a_number_beyond_its_field_is_refused() -> None:
    with pytest.raises(OverflowError):
        worker_messages.encode_put(MessageToPut("T", 1 << 31, b"", b""), token=1, received_ns=1)
