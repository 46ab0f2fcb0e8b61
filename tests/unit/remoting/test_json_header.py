"""The JSON header: what fastjson accepts is accepted, the rest is HeaderInvalid and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.codes import LanguageCode
from rocketpy.errors import HeaderInvalid
from rocketpy.remoting import json_header
from rocketpy.remoting.frame import HeaderFields
from rocketpy.remoting.json_header import decode_header, encode_header
from tests.support.cases import cases


def fields(**changes: object) -> HeaderFields:
    values: dict[str, object] = {
        "code": 0,
        "language": None,
        "version": 0,
        "opaque": 0,
        "flag": 0,
        "remark": None,
        "ext_fields": None,
    }
    return HeaderFields(**(values | changes))  # type: ignore[arg-type]  # a table of fields


@cases(
    "text, expected",
    [
        ("{}", fields()),
        ('{"Code":10,"OPAQUE":-1,"extfields":{"a":"b"}}', fields(code=10, opaque=-1, ext_fields={"a": "b"})),
        ('{"code":"10","flag":null,"remark":"","extFields":null}', fields(code=10, remark="")),
        (
            '{"extFields":{"i":7,"f":1.50,"t":true,"n":null,"o":{"b":1,"a":[]},"big":122222222222222222222222222222}}',
            fields(
                ext_fields={
                    "i": "7",
                    "f": "1.50",
                    "t": "true",
                    "o": '{"a":[],"b":"1"}',
                    "big": "1" + "2" * 29,
                }
            ),
        ),
        ('{"language":"KLINGON"}', fields()),
        ('{"language":"go"}', fields(language=LanguageCode.GO)),
        ('{"language":9}', fields(language=LanguageCode.GO)),
        ('{"language":{"a":1},"unknown":[1,2]}', fields()),
        (' { "code" : 1 ,\n"version":409}\t', fields(code=1, version=409)),
        ('{"code":1,"code":2}', fields(code=2)),
        ('{"remark":"a\\u0001b\\ud83d\\ude00"}', fields(remark="a\x01b😀")),
        ('{"remark":"a\\ud83d","extFields":{"\\udc00":"x"}}', fields(remark="a?", ext_fields={"?": "x"})),
        ('{"remark":"raw\x01control"}', fields(remark="raw\x01control")),
    ],
)
def test_accepted(text: str, expected: HeaderFields) -> None:
    assert decode_header(text.encode()) == expected


@cases(
    "header",
    [
        b"",
        b"[]",
        b"1",
        b'"x"',
        b"{",
        b'{"code":1}x',
        b'{"code":1.5}',
        b'{"code":2147483648}',
        b'{"opaque":true}',
        b'{"opaque":[]}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
        b'{"remark":"\xff"}',
        b"{'code':1}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"extFields":{"a":' + b"[" * 50_000,
        b'{"code":' + b"9" * 100_000 + b"}",
        b"\x00",
        b'{"code":""}',
    ],
)
def test_refused(header: bytes) -> None:
    with pytest.raises(HeaderInvalid):
        decode_header(header)


@pytest.mark.parametrize("depth", [100, 300, 900, 990, 1100, 5000])
@pytest.mark.parametrize("leaf", [b"1", b'"\\ud800"'])
def test_no_depth_of_nesting_escapes_as_recursion_error(depth: int, leaf: bytes) -> None:
    header = b'{"extFields":{"a":' + b"[" * depth + leaf + b"]" * depth + b"}}"
    try:
        assert decode_header(header).ext_fields is not None
    except HeaderInvalid as exc:
        assert "deeply" in str(exc)


NUMBERS = st.integers(-1, 1 << 31) | st.sampled_from([True, None, 1.5, "7", "x", 1 << 70, [], {}])
VALUES = st.text(max_size=3) | NUMBERS
NAMES = ("code", "version", "opaque", "flag", "language", "remark", "extFields", "Code", "other")
WRITTEN = {"code": 310, "version": 409, "opaque": 5, "flag": 0, "language": "JAVA"}


def outcome(header: bytes, *, leniently: bool) -> HeaderFields | type[Exception]:
    try:
        return json_header._fields(json_header._object(header)) if leniently else decode_header(header)
    except ValueError:
        return HeaderInvalid
    except HeaderInvalid:
        return HeaderInvalid


@given(
    changes=st.dictionaries(st.sampled_from(NAMES), VALUES | st.dictionaries(st.text(max_size=2), VALUES), max_size=3),
    left_out=st.sets(st.sampled_from(NAMES), max_size=1),
    escapes=st.booleans(),
    blank=st.sampled_from(["", "", " "]),
)
def test_headers_as_written_are_read_as_lenient_reading_does(
    changes: dict[str, object], left_out: set[str], escapes: bool, blank: str
) -> None:
    values = {name: value for name, value in (WRITTEN | changes).items() if name not in left_out}
    header = (json.dumps(values, ensure_ascii=escapes) + blank).encode("utf-8", "replace")
    assert outcome(header, leniently=False) == outcome(header, leniently=True)


def test_written_compact_sorted_and_without_nulls() -> None:
    header = encode_header(fields(code=1, language=LanguageCode.GO, remark="Ω\x01", ext_fields={"b": "2", "a": ""}))
    assert header.decode() == (
        '{"code":1,"extFields":{"a":"","b":"2"},"flag":0,"language":"GO","opaque":0,"remark":"Ω\\u0001",'
        '"serializeTypeCurrentRPC":"JSON","version":0}'
    )


def test_unknown_language_and_lone_surrogates_can_be_written() -> None:
    assert decode_header(encode_header(fields(remark="\ud800"))) == fields(remark="?", language=LanguageCode.OTHER)
