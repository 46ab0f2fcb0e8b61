"""The twins agree: on whatever hypothesis can build, on the same with bytes changed, cut off or added.

Seeded by the test itself (derandomised): a failure comes back on every run.
"""

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.errors import RocketError
from rocketpy.native import Native, choose
from rocketpy.native.abc import (
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    Host,
    ParsedHeader,
    PullReply,
    Record,
    RecordView,
    SendReply,
)
from rocketpy.remoting import json_header, rocketmq_header

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rocketpy.native._rocketpy") is None, reason="the core is not built"
)
seeded = settings(derandomize=True, max_examples=300, deadline=None)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
OFFSETS = st.integers(0, (1 << 63) - 1)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65535))
PROPERTIES = st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"KEYS", b"TAGS", b"v", b"\xe6\xa0"])).map(b"".join)
RECORDS = st.builds(
    Record,
    topic=st.binary(max_size=130),
    body=st.binary(max_size=300),
    properties=PROPERTIES,
    properties_tail=PROPERTIES,
    queue_id=INT32,
    flag=INT32,
    queue_offset=UINT64,
    phy_offset=UINT64,
    sys_flag=INT32,
    reconsume_times=INT32,
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    store_timestamp_ms=INT64,
    store_host=HOSTS,
    prepared_transaction_offset=INT64,
)
PLAIN = st.text(st.sampled_from("ABCdef0123456789,_-.")).map(str.encode)
TEXTS = st.text(st.characters(codec="utf-8"))


def outcome(call: Callable[[], Any]) -> Any:
    """The value, or the class of the error: reasons may be worded differently."""
    try:
        return call()
    except RocketError as exc:
        return type(exc)


def agree(call: Callable[[Native], Any]) -> Any:
    """What both twins made of it."""
    in_c, in_python = (outcome(lambda twin=twin: call(twin)) for twin in (choose("c"), choose("python")))
    assert in_c == in_python
    return in_c


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


@seeded
@given(st.binary(max_size=600), st.integers(0, (1 << 32) - 1))
def test_crc32(data: bytes, crc: int) -> None:
    agree(lambda twin: twin.crc32(data, crc))


@seeded
@given(RECORDS)
def test_record_encode(record: Record) -> None:
    agree(lambda twin: twin.record_size(record))
    image = agree(lambda twin: twin.record_encode(record))
    if isinstance(image, bytes):
        view = agree(lambda twin: twin.record_decode(image, check_crc=True))
        assert isinstance(view, RecordView)
        assert (view.topic, view.body, view.born_host) == (record.topic, record.body, record.born_host)


IMAGES = RECORDS.map(lambda record: outcome(lambda: choose("python").record_encode(record))).filter(
    lambda image: isinstance(image, bytes)
)


@seeded
@given(mutations(IMAGES), st.booleans())
def test_record_decode_of_damaged_images(image: bytes, check_crc: bool) -> None:
    agree(lambda twin: twin.record_decode(image, check_crc=check_crc))


@seeded
@given(
    mutations(st.builds(lambda size, rest: size.to_bytes(4, "big") + rest, st.integers(0, 40), st.binary(max_size=40)))
)
def test_frame_cut(data: bytes) -> None:
    agree(lambda twin: twin.frame_cut(data, 30))


@seeded
@given(json_headers())
def test_json_header(header: bytes) -> None:
    parsed = agree(lambda twin: twin.header_parse(SERIALIZE_JSON, header))
    if isinstance(parsed, ParsedHeader):
        assert_slow_path_agrees(parsed, json_header.decode_header(header))


@seeded
@given(mutations(json_headers()))
def test_damaged_json_header(header: bytes) -> None:
    agree(lambda twin: twin.header_parse(SERIALIZE_JSON, header))


@seeded
@given(rocketmq_headers())
def test_rocketmq_header(header: bytes) -> None:
    parsed = agree(lambda twin: twin.header_parse(SERIALIZE_ROCKETMQ, header))
    if isinstance(parsed, ParsedHeader):
        assert_slow_path_agrees(parsed, rocketmq_header.decode_header(header))


@seeded
@given(mutations(rocketmq_headers()))
def test_damaged_rocketmq_header(header: bytes) -> None:
    agree(lambda twin: twin.header_parse(SERIALIZE_ROCKETMQ, header))


def assert_slow_path_agrees(parsed: ParsedHeader, fields: Any) -> None:
    """What the fast reader understands, the lenient one of the slow path understands the same way."""
    assert (parsed.code, parsed.version, parsed.opaque, parsed.flag) == (
        fields.code,
        fields.version,
        fields.opaque,
        fields.flag,
    )
    assert parsed.language == (255 if fields.language is None else fields.language)
    assert parsed.remark == fields.remark
    assert parsed.ext_fields == (fields.ext_fields or {})


@seeded
@given(mutations(TEXTS.map(lambda text: json.dumps(text)[1:-1].encode())))
def test_json_unescape(text: bytes) -> None:
    agree(lambda twin: twin.json_unescape(text))


@seeded
@given(mutations((INT64 | st.integers(-(1 << 70), 1 << 70)).map(lambda number: b"%d" % number)))
def test_parse_integers(text: bytes) -> None:
    agree(lambda twin: twin.parse_int32(text))
    agree(lambda twin: twin.parse_int64(text))


@seeded
@given(
    st.builds(
        SendReply,
        serialize_type=st.sampled_from([SERIALIZE_JSON, SERIALIZE_ROCKETMQ]),
        opaque=INT32,
        code=st.sampled_from([0, 10, 11, 12]),
        version=st.integers(0, 32767),
        queue_id=INT32,
        queue_offset=OFFSETS,
        message_ids=PLAIN,
        region=PLAIN,
        trace_on=st.booleans(),
    )
)
def test_send_reply(reply: SendReply) -> None:
    agree(lambda twin: twin.send_reply_encode(reply))


@seeded
@given(
    st.builds(
        PullReply,
        serialize_type=st.sampled_from([SERIALIZE_JSON, SERIALIZE_ROCKETMQ]),
        opaque=INT32,
        code=st.sampled_from([0, 19, 20, 21]),
        version=st.integers(0, 32767),
        suggest_which_broker_id=INT64,
        next_begin_offset=OFFSETS,
        min_offset=OFFSETS,
        max_offset=OFFSETS,
        body_size=st.integers(0, 1 << 24),
        remark=PLAIN,
    )
)
def test_pull_reply(reply: PullReply) -> None:
    agree(lambda twin: twin.pull_reply_encode(reply))


@seeded
@given(mutations(TEXTS.map(str.encode)))
def test_hashes(text: bytes) -> None:
    agree(lambda twin: twin.string_hash(text))
    agree(lambda twin: twin.index_hash(text))


@seeded
@given(PROPERTIES, PROPERTIES | st.sampled_from([b"A", b"KEYS", b"TAGS"]))
def test_property_find(properties: bytes, name: bytes) -> None:
    agree(lambda twin: twin.property_find(properties, name))


@seeded
@given(HOSTS, UINT64)
def test_message_id(host: Host, phy_offset: int) -> None:
    agree(lambda twin: twin.message_id(host, phy_offset))


@seeded
@given(RECORDS)
def test_every_truncation_of_a_record(record: Record) -> None:
    image = choose("python").record_encode(attrs.evolve(record, topic=record.topic[:127], body=record.body[:20]))
    for size in range(0, len(image), 3):
        agree(lambda twin, size=size: twin.record_decode(image[:size], check_crc=True))
