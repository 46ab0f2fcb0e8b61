"""The compiled formats agree with `rocketpy.message` and `rocketpy.remoting`, which say what a format means.

On whatever hypothesis can build, and on the same with bytes changed, cut off or added. Seeded by the test itself
(derandomised): a failure comes back on every run.
"""

import json
import zlib
from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.errors import HeaderInvalid, RocketError
from rocketpy.message import numbers, record, tags
from rocketpy.message.host import Host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.properties import decode_properties, find_property, join_properties
from rocketpy.remoting import json_header, rocketmq_header
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fields import HeaderFields
from rocketpy.remoting.frame import FrameCutter, SerializeType
from rocketpy.remoting.headers.pull import PullMessageResponseHeader
from rocketpy.remoting.headers.send import SendMessageResponseHeader
from tests.support import core_formats as core
from tests.support.core_formats import FrameStart

seeded = settings(derandomize=True, max_examples=300, deadline=None, database=None)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSETS = st.integers(0, (1 << 63) - 1)
ADDRESSES = st.ip_addresses(v=4) | st.ip_addresses(v=6).filter(lambda address: address.ipv4_mapped is None)
HOSTS = st.tuples(ADDRESSES.map(str), st.integers(0, 65535))
PROPERTIES = st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"KEYS", b"TAGS", b"v", b"\xe6\xa0"])).map(b"".join)
TEXTS = st.text(st.characters(codec="utf-8"))
PLAIN = st.text(st.sampled_from("ABCdef0123456789,_-."))
RECORDS = st.fixed_dictionaries(
    {
        "topic": st.text(st.characters(codec="utf-8"), max_size=50),
        "body": st.binary(max_size=300),
        "properties": PROPERTIES,
        "queue_id": INT32,
        "flag": INT32,
        "queue_offset": OFFSETS,
        "phy_offset": OFFSETS,
        "sys_flag": INT32,
        "reconsume_times": INT32,
        "born_timestamp_ms": INT64,
        "born_host": HOSTS,
        "store_timestamp_ms": INT64,
        "store_host": HOSTS,
        "prepared_transaction_offset": INT64,
    }
)


def outcome(call: Callable[[], Any]) -> Any:
    """The value, or the class of the error: reasons may be worded differently."""
    try:
        return call()
    except RocketError as exc:
        return type(exc)


def agree(in_c: Callable[[], Any], in_python: Callable[[], Any]) -> Any:
    """What both made of it."""
    expected = outcome(in_python)
    assert outcome(in_c) == expected
    return expected


@st.composite
def mutations(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """An original with a few bytes changed, taken out, put in, or its end cut off."""
    image = bytearray(draw(originals))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(image)))
        what = draw(st.sampled_from(["change", "remove", "insert", "cut"]))
        if what == "change" and at < len(image):
            image[at] = draw(st.sampled_from(b'\x00\x01\x7f\x80\xff {}[]":,\\u0n-') | st.integers(0, 255))
        elif what == "remove":
            del image[at : at + draw(st.integers(1, 4))]
        elif what == "insert":
            image[at:at] = draw(st.binary(max_size=4) | st.sampled_from([b'"', b"\\", b"null", b"\\ud834", b" ", b","]))
        elif what == "cut":
            del image[at:]
    return bytes(image)


@st.composite
def json_headers(draw: st.DrawFn) -> bytes:
    """Headers that are right, or nearly so; compact and not, with escapes and without."""
    scalars = TEXTS | INT64 | st.booleans() | st.none()
    members = {
        "code": INT32,
        "extFields": st.dictionaries(TEXTS, scalars, max_size=6) | st.none(),
        "flag": INT32 | st.none(),
        "language": st.sampled_from(["JAVA", "GO", "PYTHON", "KLINGON", 3, 99, None]),
        "opaque": INT32,
        "remark": TEXTS | st.none(),
        "serializeTypeCurrentRPC": st.sampled_from(["JSON", None]),
        "version": INT32 | st.none(),
    }
    keys = draw(st.lists(st.sampled_from(list(members)), unique=True).map(lambda some: ["code", "opaque", *some]))
    header = {key: draw(members[key]) for key in keys}
    text = json.dumps(header, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    return text.encode()


@st.composite
def rocketmq_headers(draw: st.DrawFn) -> bytes:
    texts = TEXTS.map(str.encode) | st.binary(max_size=8)
    fields = b"".join(
        len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value
        for key, value in draw(st.lists(st.tuples(texts, texts), max_size=5))
    )
    remark = draw(texts)
    head = draw(st.binary(min_size=13, max_size=13))
    return head + len(remark).to_bytes(4, "big") + remark + len(fields).to_bytes(4, "big") + fields


# --- records ----------------------------------------------------------------------------------------------------------


@seeded
@given(st.binary(max_size=600), st.integers(0, (1 << 32) - 1))
def test_crc32(data: bytes, crc: int) -> None:
    assert core.crc32(data, crc) == zlib.crc32(data, crc)
    assert core.crc32(data) & 0x7FFFFFFF == record.body_crc(data)


@seeded
@given(RECORDS, PROPERTIES)
def test_record_encode(fields: dict[str, Any], tail: bytes) -> None:
    joined = fields | {"properties": join_properties(fields["properties"], tail)}
    image = agree(
        lambda: core.encode_record(**fields, properties_tail=tail),
        lambda: record.encode_record(**joined),
    )
    if isinstance(image, bytes):
        assert core.record_size(**joined) == len(image)
        agree_on_image(image, check_crc=True)


def agree_on_image(image: bytes, *, check_crc: bool) -> None:
    in_python = outcome(lambda: record.decode_record(image, check_crc=check_crc))
    if isinstance(in_python, record.StoredRecord):  # C reads 16 bits of a port, Python all 32 that are stored
        in_python = attrs.evolve(
            in_python, born_host=port_in_16_bits(in_python.born_host), store_host=port_in_16_bits(in_python.store_host)
        )
    assert outcome(lambda: core.decode_record(image, check_crc=check_crc)) == in_python


def port_in_16_bits(host: Host) -> Host:
    return host[0], host[1] & 0xFFFF


IMAGES = RECORDS.map(lambda fields: outcome(lambda: record.encode_record(**fields))).filter(
    lambda image: isinstance(image, bytes)
)


@seeded
@given(mutations(IMAGES), st.booleans())
def test_record_decode_of_damaged_images(image: bytes, check_crc: bool) -> None:
    agree_on_image(image, check_crc=check_crc)


@seeded
@given(st.integers(0, 40), st.binary(max_size=30))
def test_blanks_and_zeros(size: int, rest: bytes) -> None:
    blank = size.to_bytes(4, "big") + record.BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    agree_on_image(blank + rest, check_crc=True)
    agree_on_image(bytes(size), check_crc=True)


@seeded
@given(RECORDS, st.binary(min_size=4, max_size=4))
def test_stored_crc(fields: dict[str, Any], crc: bytes) -> None:
    """Of an empty body it does not matter."""
    for body in (fields["body"], b""):
        image = outcome(lambda body=body: record.encode_record(**fields | {"body": body}))
        if isinstance(image, bytes):
            agree_on_image(image[:8] + crc + image[12:], check_crc=True)


@seeded
@given(IMAGES)
def test_every_truncation_of_a_record(image: bytes) -> None:
    for size in range(0, len(image), 3):
        agree_on_image(image[:size], check_crc=True)


# --- hashes, properties, ids, numbers ---------------------------------------------------------------------------------


@seeded
@given(mutations(TEXTS.map(str.encode)))
def test_hashes(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    assert core.string_hash(raw) == tags.string_hash(text)
    assert core.index_hash(raw) == tags.index_hash(text)


@seeded
@given(PROPERTIES, PROPERTIES.filter(lambda name: b"\0" not in name) | st.sampled_from([b"A", b"KEYS", b"TAGS"]))
def test_find_property(properties: bytes, name: bytes) -> None:
    assert core.find_property(properties, name) == find_property(properties, name)


WORDS = st.text(st.sampled_from("ab "))


@seeded
@given(st.dictionaries(st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS"]), WORDS))
def test_index_keys(properties: dict[str, str]) -> None:
    encoded = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    assert core.index_keys("T", encoded.encode()) == tags.index_keys("T", decode_properties(encoded))
    assert core.lib.RP_INDEX_KEYS_MAX == tags.INDEX_KEYS_MAX  # C leaves the limit to dispatch


@seeded
@given(HOSTS, OFFSETS)
def test_offset_message_id(host: Host, phy_offset: int) -> None:
    assert core.encode_offset_message_id(host, phy_offset) == encode_offset_message_id(host, phy_offset)


@seeded
@given(mutations((INT64 | st.integers(-(1 << 70), 1 << 70)).map(lambda number: b"%d" % number)))
def test_parse_numbers(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    agree(lambda: core.parse_int(raw), lambda: numbers.parse_int(text))
    agree(lambda: core.parse_long(raw), lambda: numbers.parse_long(text))


# --- frames -----------------------------------------------------------------------------------------------------------

FRAME_SIZE_MAX = 30


def cut_in_python(data: bytes) -> FrameStart:
    """C looks at the descriptor as soon as it is there, Python when the frame is whole: so make it whole."""
    size = int.from_bytes(data[:4], "big") + 4 if len(data) >= 4 else 0
    cutter = FrameCutter(frame_size_max=FRAME_SIZE_MAX)
    cutter.feed(data)
    frame = cutter.next_frame()
    if frame is None:
        if len(data) >= 8:
            cutter.feed(bytes(size - len(data)))
            assert cutter.next_frame() is not None
        return FrameStart(size)
    return FrameStart(size, frame.serialize_type, frame.header, frame.body or b"")


@seeded
@given(
    mutations(st.builds(lambda size, rest: size.to_bytes(4, "big") + rest, st.integers(0, 40), st.binary(max_size=40)))
)
def test_cut_frame(data: bytes) -> None:
    agree(lambda: core.cut_frame(data, FRAME_SIZE_MAX), lambda: cut_in_python(data))


# --- headers ----------------------------------------------------------------------------------------------------------


def decode_header(serialize_type: SerializeType, header: bytes) -> Any:
    """The fields as the fast reader gives them: it skips the language, and an absent map is an empty one."""
    module = rocketmq_header if serialize_type is SerializeType.ROCKETMQ else json_header
    fields = outcome(lambda: module.decode_header(header))
    if isinstance(fields, HeaderFields):
        return attrs.evolve(fields, language=None, ext_fields=fields.ext_fields or {})
    return fields


def agree_on_header(serialize_type: SerializeType, header: bytes) -> Any:
    """What the fast reader takes, the lenient one takes the same way; what it refuses, the lenient one refuses. It may
    also leave a header to the lenient one. Returns what the fast reader made of it."""
    in_c = outcome(lambda: core.decode_header(serialize_type, header))
    if in_c is not None:
        assert in_c == decode_header(serialize_type, header)
    return in_c


@seeded
@given(json_headers())
def test_json_header(header: bytes) -> None:
    """What clients write is read fast, unless a key has an escape."""
    has_plain_keys = all(is_plain_key(key, header) for key in json.loads(header).get("extFields") or {})
    assert isinstance(agree_on_header(SerializeType.JSON, header), HeaderFields) == has_plain_keys


def is_plain_key(key: str, header: bytes) -> bool:
    return f'"{key}"'.encode() in header


@seeded
@given(mutations(json_headers()))
def test_damaged_json_header(header: bytes) -> None:
    agree_on_header(SerializeType.JSON, header)


@seeded
@given(rocketmq_headers())
def test_rocketmq_header(header: bytes) -> None:
    """All that is well-formed is read fast."""
    in_c = agree_on_header(SerializeType.ROCKETMQ, header)
    assert isinstance(in_c, HeaderFields) or decode_header(SerializeType.ROCKETMQ, header) is HeaderInvalid


@seeded
@given(mutations(rocketmq_headers()))
def test_damaged_rocketmq_header(header: bytes) -> None:
    agree_on_header(SerializeType.ROCKETMQ, header)


@seeded
@given(mutations(TEXTS.map(lambda text: json.dumps(text)[1:-1].encode())))
def test_unescape_json(raw: bytes) -> None:
    """C takes escapes and leaves all other bytes as they are."""
    unescaped = outcome(lambda: core.unescape_json(raw))
    try:
        expected = json.loads(b'"' + raw.replace(b'\\"', b"\\u0022").replace(b'"', b"\\u0022") + b'"', strict=False)
        expected.encode()
    except ValueError:
        return  # not UTF-8, or an escape that C refuses as well: cases are in tests/unit/native/test_native_header.py
    assert unescaped == expected.encode()


# --- replies ----------------------------------------------------------------------------------------------------------


def agree_on_reply(reply: bytes, body: bytes, expected: RemotingCommand) -> None:
    """The same command in as many bytes; in binary, where the order of the fields is ours, the same bytes."""
    whole = reply + body
    assert RemotingCommand.decode(whole) == expected
    assert len(whole) == len(expected.encode())
    if expected.serialize_type is SerializeType.ROCKETMQ:
        assert whole == expected.encode()


def response(serialize_type: SerializeType, opaque: int, code: int, remark: str, header: Any) -> RemotingCommand:
    command = RemotingCommand.response(code, remark or None, header)
    command.opaque, command.serialize_type = opaque, serialize_type
    return command


@seeded
@given(
    st.sampled_from(SerializeType),
    INT32,
    st.sampled_from([0, 10, 11, 12]),
    st.builds(
        SendMessageResponseHeader,
        msg_id=PLAIN.filter(bool),
        queue_id=INT32,
        queue_offset=OFFSETS,
        region=PLAIN.filter(bool) | st.none(),
        trace_on=st.booleans(),
    ),
)
def test_send_reply(kind: SerializeType, opaque: int, code: int, header: SendMessageResponseHeader) -> None:
    reply = core.encode_send_reply(kind, opaque, code, header)
    agree_on_reply(reply, b"", response(kind, opaque, code, "", header))


@seeded
@given(
    st.sampled_from(SerializeType),
    INT32,
    st.sampled_from([0, 19, 20, 21]),
    st.builds(
        PullMessageResponseHeader,
        suggest_which_broker_id=INT64,
        next_begin_offset=OFFSETS,
        min_offset=OFFSETS,
        max_offset=OFFSETS,
    ),
    PLAIN,
    st.binary(max_size=50),
)
def test_pull_reply(
    kind: SerializeType, opaque: int, code: int, header: PullMessageResponseHeader, remark: str, body: bytes
) -> None:
    reply = core.encode_pull_reply(kind, opaque, code, header, remark, len(body))
    expected = response(kind, opaque, code, remark, header)
    expected.body = body or None
    agree_on_reply(reply, body, expected)


@seeded
@given(
    st.sampled_from(SerializeType),
    INT32,
    st.sampled_from([1, 2, 13, 14]),
    PLAIN.filter(bool),
    st.none() | PLAIN.filter(bool),
    st.booleans(),
)
def test_error_reply(
    kind: SerializeType, opaque: int, code: int, remark: str, region: str | None, trace_on: bool
) -> None:
    """Of a send it names the region; of a pull it has no fields."""
    reply = core.encode_error_reply(kind, opaque, code, remark, region, trace_on=trace_on)
    expected = response(kind, opaque, code, remark[: core.lib.RP_ERROR_REMARK_MAX], None)
    if region is not None:
        fields = {"MSG_REGION": region[: core.lib.RP_ERROR_REGION_MAX], "TRACE_ON": "true" if trace_on else "false"}
        expected.ext_fields = fields
    agree_on_reply(reply, b"", expected)
