"""The driver's patches land where they belong, and what comes out is a frame that the protocol's rules accept."""

import json
import struct

import pytest

from rocketpy.bench.encoding import (
    OPAQUE,
    Serialize,
    Template,
    batch_template,
    frame,
    header_rocketmq,
    pull_template,
    send_template,
    unique_key_prefix,
)
from rocketpy.bench.load import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import is_signed

PREFIX = "7F00000112345678"
BORN_MS = 1795159683761


def patch(template: Template, *, opaque: int = OPAQUE, key: int = 0, offset: int = 0, stamp_ns: int = 0) -> bytes:
    """One frame as the driver sends it."""
    keys = ffi.new("uint32_t[]", template.key_at)
    described = ffi.new(
        "load_template *",
        {
            "size": len(template.frame),
            "opaque_at": template.opaque_at,
            "opaque_is_binary": template.opaque_is_binary,
            "offset_at": template.offset_at,
            "offset_digits": template.offset_digits,
            "stamp_at": template.stamp_at,
            "messages": template.messages,
            "key_count": len(template.key_at),
            "key_at": keys,
        },
    )
    data = ffi.new("uint8_t[]", template.frame)
    lib.load_patch(described, data, opaque, key, offset, stamp_ns)
    return bytes(ffi.buffer(data, len(template.frame)))


def cut(data: bytes) -> tuple[int, bytes, bytes]:
    """Serialisation, header, body."""
    size, descriptor = struct.unpack_from(">iI", data)
    assert size == len(data) - 4
    header_end = 8 + (descriptor & 0xFFFFFF)
    return descriptor >> 24, data[8:header_end], data[header_end:]


def test_json_send_carries_its_opaque_and_key() -> None:
    template = send_template("T", 3, 128, prefix=PREFIX, born_timestamp_ms=BORN_MS)
    serialize, header, body = cut(patch(template, opaque=123456789, key=0xABC))
    command = json.loads(header)
    assert (serialize, command["code"], command["opaque"], len(body)) == (0, 310, 123456789, 128)
    fields = command["extFields"]
    assert (fields["b"], fields["e"], fields["g"], fields["m"]) == ("T", "3", str(BORN_MS), "false")
    assert f"UNIQ_KEY\x01{PREFIX}{0xABC:016X}\x02" in fields["i"]
    assert b"\\u0001" in header  # as fastjson writes control characters


def test_rocketmq_send_carries_its_opaque() -> None:
    template = send_template("T", 3, 16, prefix=PREFIX, born_timestamp_ms=BORN_MS, serialize=Serialize.ROCKETMQ)
    serialize, header, body = cut(patch(template, opaque=OPAQUE + 7, key=1))
    assert (serialize, len(body)) == (1, 16)
    assert struct.unpack_from(">hbhiiii", header) == (310, 0, 407, OPAQUE + 7, 0, 0, len(header) - 21)
    assert f"{PREFIX}{1:016X}".encode() in header


def test_rocketmq_header_as_java_writes_it() -> None:
    """GET_MAX_OFFSET, captured from a Java client, but for the version."""
    fixed = "001e 00 0197 0000004d 00000000 00000000 0000001b"
    fields = "0005 746f706963 00000002 4a54 0007 71756575654964 00000001 30"
    assert header_rocketmq(30, {"topic": "JT", "queueId": "0"}, 77) == bytes.fromhex(fixed + fields)


def test_each_message_of_a_batch_has_its_own_key() -> None:
    template = batch_template("T", 0, 10, 3, prefix=PREFIX, born_timestamp_ms=BORN_MS)
    _, header, body = cut(patch(template, key=41))
    assert json.loads(header)["extFields"]["m"] == "true"
    entry_size = struct.unpack_from(">i", body)[0]
    assert len(body) == 3 * entry_size
    for index in range(3):
        assert f"{PREFIX}{41 + index:016X}".encode() in body[index * entry_size : (index + 1) * entry_size]


@pytest.mark.parametrize("serialize", Serialize)
@pytest.mark.parametrize("offset", [0, 9, 10, 4294967296])
def test_pull_carries_its_offset(serialize: Serialize, offset: int) -> None:
    template = pull_template("T", 1, 32, len(str(offset)), serialize=serialize)
    _, header, _ = cut(patch(template, offset=offset))
    if serialize is Serialize.JSON:
        assert json.loads(header)["extFields"]["queueOffset"] == str(offset)
    else:
        text = str(offset).encode()
        assert b"queueOffset" + struct.pack(">i", len(text)) + text + struct.pack(">h", 10) in header


def test_stamp_opens_the_body() -> None:
    template = send_template("T", 0, 64, prefix=PREFIX, born_timestamp_ms=BORN_MS, stamped=True)
    _, _, body = cut(patch(template, stamp_ns=1 << 40))
    assert int.from_bytes(body[:8], "big") == 1 << 40
    assert len(body) == 64


@pytest.mark.parametrize("serialize", Serialize)
def test_head_of_an_answer(serialize: Serialize) -> None:
    data = frame(17, {"topic": "T"}, b"body", serialize=serialize, opaque=OPAQUE + 5)
    code, opaque = ffi.new("int32_t *"), ffi.new("uint32_t *")
    assert lib.load_read_head(data, len(data), code, opaque) == 0
    assert (code[0], opaque[0]) == (17, OPAQUE + 5)


def test_head_that_is_longer_than_its_frame_is_refused() -> None:
    data = struct.pack(">iI", 8, 5) + b"{}{}"
    assert lib.load_read_head(data, len(data), ffi.new("int32_t *"), ffi.new("uint32_t *")) == -1


@pytest.mark.parametrize("serialize", Serialize)
def test_a_signed_send_is_signed_whatever_its_opaque(serialize: Serialize) -> None:
    account = "access-key", "secret-key"
    template = send_template("T", 1, 64, prefix=PREFIX, born_timestamp_ms=BORN_MS, serialize=serialize, account=account)
    request = RemotingCommand.decode(patch(template, opaque=OPAQUE + 7, key=9))
    assert request.opaque == OPAQUE + 7
    assert is_signed(request, "secret-key") and not is_signed(request, "secret-kez")


def test_prefixes_differ() -> None:
    assert len(unique_key_prefix()) == 16
    assert unique_key_prefix() != unique_key_prefix()
