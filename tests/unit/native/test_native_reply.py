"""Replies of the fast path: read back by the header reader, and refused where they do not fit."""

import json
from types import ModuleType

import attrs
import pytest

from rocketpy.native import Native
from rocketpy.native.abc import (
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    FrameCut,
    ParsedHeader,
    PullReply,
    SendReply,
)

SEND = SendReply(
    serialize_type=SERIALIZE_JSON,
    opaque=-77,
    code=10,
    version=409,
    queue_id=3,
    queue_offset=(1 << 63) - 1,
    message_ids=b"7F00000100007CA70000000000000000",
    region=b"DefaultRegion",
    trace_on=True,
)
PULL = PullReply(
    serialize_type=SERIALIZE_JSON,
    opaque=1,
    code=19,
    version=409,
    suggest_which_broker_id=0,
    next_begin_offset=5,
    min_offset=1,
    max_offset=(1 << 63) - 1,
    body_size=1000,
    remark=b"PULL_NOT_FOUND",
)
BOTH = pytest.mark.parametrize("serialize_type", [SERIALIZE_JSON, SERIALIZE_ROCKETMQ])


@BOTH
def test_send_reply(native: Native, serialize_type: int) -> None:
    frame = native.send_reply_encode(attrs.evolve(SEND, serialize_type=serialize_type))
    assert native.frame_cut(frame, 4096) == FrameCut(len(frame), serialize_type, len(frame) - 8)
    ext_fields = {
        "msgId": "7F00000100007CA70000000000000000",
        "queueId": "3",
        "queueOffset": "9223372036854775807",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert native.header_parse(serialize_type, frame[8:]) == ParsedHeader(10, 409, -77, 1, 3, None, ext_fields)


@BOTH
def test_pull_reply_counts_the_body_that_follows(native: Native, serialize_type: int) -> None:
    head = native.pull_reply_encode(attrs.evolve(PULL, serialize_type=serialize_type))
    assert native.frame_cut(head + bytes(1000), 4096) == FrameCut(len(head) + 1000, serialize_type, len(head) - 8)
    ext_fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "1",
        "maxOffset": "9223372036854775807",
    }
    assert native.header_parse(serialize_type, head[8:]) == ParsedHeader(19, 409, 1, 1, 3, "PULL_NOT_FOUND", ext_fields)


@BOTH
def test_empty_texts_are_left_out(native: Native, serialize_type: int) -> None:
    reply = attrs.evolve(SEND, serialize_type=serialize_type, message_ids=b"", region=b"", trace_on=False, queue_id=-1)
    parsed = native.header_parse(serialize_type, native.send_reply_encode(reply)[8:])
    assert parsed is not None
    assert parsed.ext_fields == {"queueId": "-1", "queueOffset": "9223372036854775807", "TRACE_ON": "false"}
    pull = attrs.evolve(PULL, serialize_type=serialize_type, remark=b"")
    parsed = native.header_parse(serialize_type, native.pull_reply_encode(pull)[8:])
    assert parsed is not None
    assert parsed.remark is None


def test_json_is_sorted_and_compact_like_the_reference(native: Native) -> None:
    header = native.pull_reply_encode(PULL)[8:]
    members = json.loads(header)
    assert list(members) == sorted(members)
    assert header == json.dumps(members, separators=(",", ":")).encode()


@BOTH
def test_what_does_not_fit_is_not_written(core: ModuleType, serialize_type: int) -> None:
    """At every capacity below the need: 0, and not a byte behind the room."""
    ffi, lib = core.ffi, core.lib
    ids, region = ffi.from_buffer("uint8_t[]", SEND.message_ids), ffi.from_buffer("uint8_t[]", SEND.region)
    reply = ffi.new(
        "rp_send_reply *",
        {
            "serialize_type": serialize_type,
            "version": 409,
            "message_ids": ids,
            "message_ids_size": len(ids),
            "region": region,
            "region_size": len(region),
        },
    )
    out = ffi.new("uint8_t[]", 512)
    size = lib.rp_send_reply_encode(reply, out, 512)
    assert 100 < size < 512
    for capacity in range(size):
        ffi.memmove(out, b"\xaa" * 512, 512)
        assert lib.rp_send_reply_encode(reply, out, capacity) == 0
        assert bytes(ffi.buffer(out + capacity, 512 - capacity)) == b"\xaa" * (512 - capacity)
    assert lib.rp_send_reply_encode(reply, out, size) == size
