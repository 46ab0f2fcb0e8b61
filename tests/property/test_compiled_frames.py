"""The compiled frames, headers and replies agree with `rocketpy.remoting`, which says what a format means.

On whatever hypothesis can build, and on the same with bytes changed, cut off or added.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.errors import HeaderInvalid
from rocketpy.remoting import json_header, rocketmq_header
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FrameCutter, HeaderFields, SerializeType
from rocketpy.remoting.headers.pull import PullMessageResponseHeader
from rocketpy.remoting.headers.send import SendMessageResponseHeader
from tests.support import core_formats as core
from tests.support.agreement import INT32, INT64, OFFSETS, PLAIN, TEXTS, agree, damaged, outcome, seeded
from tests.support.core_formats import FrameStart


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


# --- frames -----------------------------------------------------------------------------------------------------------


@seeded
@given(
    damaged(st.builds(lambda size, rest: size.to_bytes(4, "big") + rest, st.integers(0, 40), st.binary(max_size=40)))
)
def test_cut_frame(data: bytes) -> None:
    agree(lambda: core.cut_frame(data, FRAME_SIZE_MAX), lambda: cut_in_python(data))


def decode_header(serialize_type: SerializeType, header: bytes) -> Any:
    """The fields as the fast reader gives them: it skips the language, and an absent map is an empty one."""
    module = rocketmq_header if serialize_type is SerializeType.ROCKETMQ else json_header
    fields = outcome(lambda: module.decode_header(header))
    if isinstance(fields, HeaderFields):
        return fields._replace(language=None, ext_fields=fields.ext_fields or {})
    return fields


def agree_on_header(serialize_type: SerializeType, header: bytes) -> Any:
    """What the fast reader takes, the lenient one takes the same way; what it refuses, the lenient one refuses. It may
    also leave a header to the lenient one. Returns what the fast reader made of it."""
    in_c = outcome(lambda: core.decode_header(serialize_type, header))
    if in_c is not None:
        assert in_c == decode_header(serialize_type, header)
    return in_c


# --- headers ----------------------------------------------------------------------------------------------------------


@seeded
@given(json_headers())
def test_json_header(header: bytes) -> None:
    """What clients write is read fast, unless a key has an escape."""
    has_plain_keys = all(is_plain_key(key, header) for key in json.loads(header).get("extFields") or {})
    assert isinstance(agree_on_header(SerializeType.JSON, header), HeaderFields) == has_plain_keys


def is_plain_key(key: str, header: bytes) -> bool:
    return f'"{key}"'.encode() in header


@seeded
@given(damaged(json_headers()))
def test_damaged_json_header(header: bytes) -> None:
    agree_on_header(SerializeType.JSON, header)


@seeded
@given(rocketmq_headers())
def test_rocketmq_header(header: bytes) -> None:
    """All that is well-formed is read fast."""
    in_c = agree_on_header(SerializeType.ROCKETMQ, header)
    assert isinstance(in_c, HeaderFields) or decode_header(SerializeType.ROCKETMQ, header) is HeaderInvalid


@seeded
@given(damaged(rocketmq_headers()))
def test_damaged_rocketmq_header(header: bytes) -> None:
    agree_on_header(SerializeType.ROCKETMQ, header)


@seeded
@given(damaged(TEXTS.map(lambda text: json.dumps(text)[1:-1].encode())))
def test_unescape_json(raw: bytes) -> None:
    """C takes escapes and leaves all other bytes as they are."""
    unescaped = outcome(lambda: core.unescape_json(raw))
    try:
        expected = json.loads(b'"' + raw.replace(b'\\"', b"\\u0022").replace(b'"', b"\\u0022") + b'"', strict=False)
        expected.encode()
    except ValueError:
        return  # not UTF-8, or an escape that C refuses as well: cases are in tests/unit/native/test_native_header.py
    assert unescaped == expected.encode()


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


# --- replies ----------------------------------------------------------------------------------------------------------


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
