"""Frames and headers in C: captured headers, the dialect of the fast JSON reader, every truncation."""

import json

import pytest

from rocketpy.errors import FrameTooLarge, HeaderInvalid, NumberInvalid
from rocketpy.remoting.frame import FRAME_SIZE_MAX, HeaderFields, SerializeType
from tests.support import core_formats as core
from tests.support.cases import cases
from tests.support.core_formats import FrameStart, lib

FIELDS_MAX = lib.RP_FIELDS_MAX
ROCKETMQ_REQUEST = bytes.fromhex(
    "001e 00 0199 0000004d 00000000 00000000 0000001b 0005 746f706963 00000002 4a54 0007 71756575654964 00000001 30"
)
SEND_REPLY = (
    b'{"code":0,"extFields":{"queueId":"0","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100007CA70000000000000000","queueOffset":"0"},"flag":1,"language":"JAVA","opaque":1,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)


def fields_of(
    code: int, version: int, opaque: int, flag: int, remark: str | None, ext_fields: dict[str, str]
) -> HeaderFields:
    return HeaderFields(code, None, version, opaque, flag, remark, ext_fields)


def json_parse(text: str | bytes) -> HeaderFields | None:
    return core.decode_header(SerializeType.JSON, text.encode() if isinstance(text, str) else text)


def rocketmq_parse(header: bytes) -> HeaderFields | None:
    return core.decode_header(SerializeType.ROCKETMQ, header)


# --- frames -----------------------------------------------------------------------------------------------------------


def test_frame_of_the_captured_request() -> None:
    frame = bytes.fromhex("00000034 01000030") + ROCKETMQ_REQUEST
    expected = FrameStart(56, SerializeType.ROCKETMQ, ROCKETMQ_REQUEST, b"")
    assert core.cut_frame(frame, FRAME_SIZE_MAX) == expected
    assert core.cut_frame(frame + b"next", FRAME_SIZE_MAX) == expected
    for size in range(len(frame)):
        assert core.cut_frame(frame[:size], FRAME_SIZE_MAX) == FrameStart(0 if size < 4 else 56)


def test_largest_frame() -> None:
    assert core.cut_frame(b"\x00\xff\xff\xfc", FRAME_SIZE_MAX) == FrameStart(FRAME_SIZE_MAX)
    with pytest.raises(FrameTooLarge):
        core.cut_frame(b"\x00\xff\xff\xfd", FRAME_SIZE_MAX)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02\x00"])
def test_what_is_no_frame_is_too_large(start: bytes) -> None:
    with pytest.raises(FrameTooLarge):
        core.cut_frame(start, FRAME_SIZE_MAX)


@pytest.mark.parametrize(
    "head",
    [
        "00000003",  # does not even hold the descriptor
        "00000000",
        "00000008 02000004",  # a serialisation that does not exist
        "00000008 00000005",  # a header longer than the frame
    ],
)
def test_bad_heads_are_found_before_the_frame_is_there(head: str) -> None:
    with pytest.raises(HeaderInvalid):
        core.cut_frame(bytes.fromhex(head), FRAME_SIZE_MAX)


# --- ROCKETMQ ---------------------------------------------------------------------------------------------------------


def test_rocketmq_header() -> None:
    parsed = rocketmq_parse(ROCKETMQ_REQUEST)
    assert parsed == fields_of(30, 409, 77, 0, None, {"topic": "JT", "queueId": "0"})


def test_rocketmq_truncations_are_invalid() -> None:
    for size in range(len(ROCKETMQ_REQUEST)):
        with pytest.raises(HeaderInvalid):
            rocketmq_parse(ROCKETMQ_REQUEST[:size])


def rocketmq_header(fields: bytes, *, remark: bytes = b"", language: int = 9, code: int = -1) -> bytes:
    head = code.to_bytes(2, "big", signed=True) + bytes([language]) + b"\x01\x3d" + b"\xff" * 4 + b"\x00\x00\x00\x01"
    return head + len(remark).to_bytes(4, "big") + remark + len(fields).to_bytes(4, "big") + fields


def rocketmq_field(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value


def test_rocketmq_empty_texts_are_null() -> None:
    fields = rocketmq_field(b"a", b"") + rocketmq_field(b"", b"x") + rocketmq_field(b"b", "Ω".encode())
    parsed = rocketmq_parse(rocketmq_header(fields, language=200) + b"ignored")
    assert parsed == fields_of(-1, 317, -1, 1, None, {"b": "Ω"})


def test_rocketmq_remark() -> None:
    parsed = rocketmq_parse(rocketmq_header(b"", remark=b"FOUND"))
    assert parsed == fields_of(-1, 317, -1, 1, "FOUND", {})


@pytest.mark.parametrize(
    "fields",
    [
        b"\xff\xff",  # negative key size
        b"\x00\x01a\xff\xff\xff\xff",  # negative value size
        b"\x00\x01a\x00\x00\x00\x02b",
        b"\x00",
        b"\x00\x01a\x00\x00\x00",
    ],
)
def test_rocketmq_sizes_beyond_their_block_are_invalid(fields: bytes) -> None:
    with pytest.raises(HeaderInvalid):
        rocketmq_parse(rocketmq_header(fields) + b"more bytes than it lacks")


def test_rocketmq_what_is_for_the_slow_path() -> None:
    many = b"".join(rocketmq_field(b"k%d" % i, b"v") for i in range(FIELDS_MAX))
    assert rocketmq_parse(rocketmq_header(many)) is not None
    assert rocketmq_parse(rocketmq_header(many + rocketmq_field(b"k", b"v"))) is None
    assert rocketmq_parse(rocketmq_header(rocketmq_field(b"k", b"\xff"))) is None
    assert rocketmq_parse(rocketmq_header(b"", remark=b"\xed\xa0\x80")) is None


def test_unknown_serialisation_is_invalid() -> None:
    with pytest.raises(HeaderInvalid):
        core.decode_header(2, ROCKETMQ_REQUEST)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_header_of_java() -> None:
    ext_fields = {
        "queueId": "0",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "msgId": "7F00000100007CA70000000000000000",
        "queueOffset": "0",
    }
    assert json_parse(SEND_REPLY) == fields_of(0, 409, 1, 1, None, ext_fields)


def test_json_header_of_go() -> None:
    text = '{"code":10,"language":"GO","version":317,"opaque":-7,"flag":0,"remark":"","extFields":{}}'
    assert json_parse(text) == fields_of(10, 317, -7, 0, "", {})


def test_json_truncations_are_invalid_or_not_understood() -> None:
    for size in range(len(SEND_REPLY)):
        text = SEND_REPLY[:size]
        if text.endswith(b"}") and size > 1:
            assert json_parse(text) is None
        else:
            with pytest.raises(HeaderInvalid):
                json_parse(text)


@pytest.mark.parametrize("indent", [None, 0, 3, "\t"])
def test_json_order_and_space_do_not_matter(indent: int | str | None) -> None:
    members = json.loads(SEND_REPLY)
    shuffled = {key: members[key] for key in sorted(members, key=lambda key: key[::-1])}
    text = " \r\n\t" + json.dumps(shuffled, indent=indent) + "\n "
    assert json_parse(text) == json_parse(SEND_REPLY)


def test_json_escapes_are_undone_wherever_they_stand() -> None:
    """At every distance from the start of a value, so that each lane of the fast scan meets one."""
    for distance in range(20):
        value = "x" * distance + 'KEYS\u0001k"1\\\u0002/\b\f\n\r\t' + "𝄞Ω" + "y" * distance
        text = json.dumps({"code": 310, "opaque": 1, "remark": value, "extFields": {"i": value, "ü" * distance: "z"}})
        with_raw = text.replace("\\u03a9", "Ω").replace("\\u00fc", "ü")
        expected = fields_of(310, 0, 1, 0, value, {"i": value, "ü" * distance: "z"})
        assert json_parse(with_raw) == expected


def test_json_values_may_be_bare_and_null_is_absent() -> None:
    text = (
        '{"code":1,"opaque":2,"flag":null,"remark":null,"language":null,'
        '"extFields":{"a":7,"b":-0,"c":true,"d":false,"e":null,"f":""}}'
    )
    parsed = json_parse(text)
    assert parsed == fields_of(1, 0, 2, 0, None, {"a": "7", "b": "-0", "c": "true", "d": "false", "f": ""})


def test_json_last_of_several_fields_wins() -> None:
    parsed = json_parse('{"code":1,"opaque":2,"extFields":{"a":"1","a":"2"}}')
    assert parsed is not None
    assert parsed.ext_fields == {"a": "2"}


@pytest.mark.parametrize("language", ['"RUST"', '"KLINGON"', "9", "14", "-1", "true", '""'])
def test_json_language_is_never_refused(language: str) -> None:
    assert json_parse(f'{{"code":1,"opaque":2,"language":{language}}}') == fields_of(1, 0, 2, 0, None, {})


@cases(
    "text",
    [
        '{"code":1}',
        '{"opaque":1}',
        '{"code":null,"opaque":1}',
        "{}",
        "{ }",
        '{"code":1,"opaque":2,"unknown":3}',
        '{"Code":1,"opaque":2}',
        '{"code":1,"opaque":2,"code":1}',
        '{"code":1,"opaque":2,"remark":null,"remark":"x"}',
        '{"code":"1","opaque":2}',
        '{"code":1.0,"opaque":2}',
        '{"code":1e3,"opaque":2}',
        '{"code":01,"opaque":2}',
        '{"code":+1,"opaque":2}',
        '{"code":-,"opaque":2}',
        '{"code":2147483648,"opaque":2}',
        '{"code":1,"opaque":2,}',
        '{"code":1 "opaque":2}',
        '{"code":1,"opaque":2}}',
        '{"code":1,"opaque":2}{}',
        '{"code":1,"opaque":2,"extFields":"x"}',
        '{"code":1,"opaque":2,"extFields":[]}',
        '{"code":1,"opaque":2,"extFields":{"a":{}}}',
        '{"code":1,"opaque":2,"extFields":{"a":[]}}',
        '{"code":1,"opaque":2,"extFields":{"a":1.5}}',
        '{"code":1,"opaque":2,"extFields":{"a":tru}}',
        '{"code":1,"opaque":2,"extFields":{"\\u0061":"x"}}',
        '{"code":1,"opaque":2,"extFields":{"a":"\\x"}}',
        '{"code":1,"opaque":2,"extFields":{"a":"\\ud800"}}',
        '{"code":1,"opaque":2,"extFields":{"a":"\\ud800\\u0041"}}',
        '{"code":1,"opaque":2,"extFields":{"a":"\\udc00"}}',
        '{"code":1,"opaque":2,"extFields":{"a":"raw\ttab"}}',
        '{"code":1,"opaque":2,"extFields":{"a":"x',
        '{"code":1,"opaque":2,"remark":7}',
        '{"code":1,"opaque":2,"serializeTypeCurrentRPC":0}',
        "{'code':1,'opaque':2}",
        "{code:1,opaque:2}",
        '{"code":1,"opaque":2}//}',
    ],
)
def test_json_what_is_for_the_slow_path(text: str) -> None:
    if text.endswith("}"):
        assert json_parse(text) is None
    else:
        with pytest.raises(HeaderInvalid):
            json_parse(text)


def test_json_too_many_fields_are_for_the_slow_path() -> None:
    def header(count: int) -> str:
        return json.dumps({"code": 1, "opaque": 2, "extFields": {"null": None} | {f"k{i}": "v" for i in range(count)}})

    assert json_parse(header(FIELDS_MAX)) is not None
    assert json_parse(header(FIELDS_MAX + 1)) is None


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80"])
def test_json_bad_utf8_is_for_the_slow_path(bad: bytes) -> None:
    for place in (b'{"code":1,"opaque":2,"remark":"%s"}', b'{"code":1,"opaque":2,"extFields":{"%s":"long enough"}}'):
        assert json_parse(place % bad) is None


@cases("text", ["", " ", "{", "}", "[]", "null", "GET / HTTP/1.1", '"{}"'])
def test_json_what_is_no_object_is_invalid(text: str) -> None:
    with pytest.raises(HeaderInvalid):
        json_parse(text)


# --- escapes and integers ---------------------------------------------------------------------------------------------


@cases("text", ["\\", "\\u", "\\u12", "\\u123g", "\\ud834", "\\ud834\\u0041", "\\ud834x", "\\udd1e", "\\x"])
def test_malformed_escapes(text: str) -> None:
    with pytest.raises(HeaderInvalid):
        core.unescape_json(b"good" + text.encode())


def test_unescape() -> None:
    assert core.unescape_json(rb"a\u0001\u00e9\u20AC\uD834\udd1e\\\"\/\b\f\n\r\t") == 'a\x01é€𝄞\\"/\b\f\n\r\t'.encode()
    assert core.unescape_json(b"") == b""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0),
        (b"+7", 7),
        (b"-0", 0),
        (b"-2147483648", -(1 << 31)),
        (b"2147483647", (1 << 31) - 1),
        (b"0" * 50 + b"1", 1),
    ],
)
def test_parse_int32(text: bytes, value: int) -> None:
    assert core.parse_int(text) == core.parse_long(text) == value


@cases("text", [b"", b"-", b"+", b"1.0", b"1e3", b" 1", b"1 ", b"0x1", b"--1", b"\xd9\xa1", b"9" * 5000])
def test_parse_what_is_no_integer(text: bytes) -> None:
    for parse in (core.parse_int, core.parse_long):
        with pytest.raises(NumberInvalid):
            parse(text)


def test_parse_range() -> None:
    assert core.parse_long(b"9223372036854775807") == (1 << 63) - 1
    assert core.parse_long(b"-9223372036854775808") == -(1 << 63)
    for text in (b"2147483648", b"-2147483649"):
        with pytest.raises(NumberInvalid):
            core.parse_int(text)
    for text in (b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616"):
        with pytest.raises(NumberInvalid):
            core.parse_long(text)
