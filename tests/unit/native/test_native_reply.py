"""Replies of the fast path: what the client reads of them, and no byte written where they do not fit."""

import json

import attrs
import pytest

from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.pull import PullMessageResponseHeader
from rocketpy.remoting.headers.send import SendMessageResponseHeader
from tests.support.core_formats import encode_error_reply, encode_pull_reply, encode_send_reply, ffi, lib, put_texts

LONG_MAX = (1 << 63) - 1
SEND = SendMessageResponseHeader(
    msg_id="7F00000100007CA70000000000000000",
    queue_id=3,
    queue_offset=LONG_MAX,
    region="DefaultRegion",
    trace_on=True,
)
PULL = PullMessageResponseHeader(suggest_which_broker_id=0, next_begin_offset=5, min_offset=1, max_offset=LONG_MAX)
BOTH = pytest.mark.parametrize("serialize_type", SerializeType)


@BOTH
def test_send_reply(serialize_type: SerializeType) -> None:
    """Holds: trap, answers to sends have ext fields."""
    frame = encode_send_reply(serialize_type, -77, 10, SEND)
    reply = RemotingCommand.decode(frame)
    assert (reply.code, reply.opaque, reply.flag, reply.remark) == (10, -77, 1, None)
    assert reply.ext_fields == SEND.to_ext_fields()


@BOTH
def test_pull_reply_counts_the_body_that_follows(serialize_type: SerializeType) -> None:
    head = encode_pull_reply(serialize_type, 1, 19, PULL, "PULL_NOT_FOUND", 1000)
    reply = RemotingCommand.decode(head + bytes(1000))
    assert (reply.code, reply.opaque, reply.flag, reply.remark) == (19, 1, 1, "PULL_NOT_FOUND")
    assert reply.ext_fields == PULL.to_ext_fields()
    assert reply.body == bytes(1000)


@BOTH
def test_empty_texts_are_left_out(serialize_type: SerializeType) -> None:
    bare = attrs.evolve(SEND, msg_id="", region=None, trace_on=False, queue_id=-1)
    reply = RemotingCommand.decode(encode_send_reply(serialize_type, 1, 0, bare))
    assert reply.ext_fields == {"queueId": "-1", "queueOffset": str(LONG_MAX), "TRACE_ON": "false"}
    assert RemotingCommand.decode(encode_pull_reply(serialize_type, 1, 0, PULL, "", 0)).remark is None


def test_json_is_sorted_and_compact_like_the_reference() -> None:
    header = encode_pull_reply(SerializeType.JSON, 1, 19, PULL, "PULL_NOT_FOUND", 0)[8:]
    members = json.loads(header)
    assert list(members) == sorted(members)
    assert header == json.dumps(members, separators=(",", ":")).encode()


@BOTH
def test_what_does_not_fit_is_not_written(serialize_type: SerializeType) -> None:
    """At every capacity below the need: 0, and not a byte behind the room."""
    reply = ffi.new("rp_send_reply *", {"serialize_type": serialize_type, "version": 409})
    _held = put_texts(reply, message_ids=SEND.msg_id.encode(), region=b"DefaultRegion")
    out = ffi.new("uint8_t[]", 512)
    size = lib.rp_send_reply_encode(reply, out, 512)
    assert 100 < size < 512
    for capacity in range(size):
        ffi.memmove(out, b"\xaa" * 512, 512)
        assert lib.rp_send_reply_encode(reply, out, capacity) == 0
        assert bytes(ffi.buffer(out + capacity, 512 - capacity)) == b"\xaa" * (512 - capacity)
    assert lib.rp_send_reply_encode(reply, out, size) == size


@BOTH
def test_error_reply_cuts_its_texts(serialize_type: SerializeType) -> None:
    frame = encode_error_reply(serialize_type, 7, 14, "r" * 1000, "g" * 100, trace_on=True)
    assert len(frame) <= lib.RP_ERROR_REPLY_MAX
    reply = RemotingCommand.decode(frame)
    assert reply.remark == "r" * 400
    assert reply.ext_fields == {"MSG_REGION": "g" * 64, "TRACE_ON": "true"}
