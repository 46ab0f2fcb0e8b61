"""The ROCKETMQ header: every truncation and every wrong length is HeaderInvalid."""

import pytest

from rocketpy.codes import LanguageCode
from rocketpy.errors import HeaderInvalid, LocalProtocolError
from rocketpy.remoting.frame import HeaderFields
from rocketpy.remoting.rocketmq_header import decode_header, encode_header
from tests.support.cases import cases

FIELDS = HeaderFields(
    code=-5, language=LanguageCode.GO, version=409, opaque=-1, flag=1, remark="ΩK", ext_fields={"a": "b", "key": "väg"}
)
HEADER = encode_header(FIELDS)


def test_round_trip() -> None:
    assert decode_header(HEADER) == FIELDS


@cases("size", range(len(HEADER)))
def test_truncated_header_is_refused(size: int) -> None:
    with pytest.raises(HeaderInvalid):
        decode_header(HEADER[:size])


def test_bytes_behind_the_last_field_are_ignored() -> None:
    assert decode_header(HEADER + b"more") == FIELDS


@pytest.mark.parametrize("position", [13, 21, 25, 29])
@pytest.mark.parametrize("value", [0x80, 0x7F, 0xFF])
def test_wrong_lengths_are_refused(position: int, value: int) -> None:
    header = bytearray(HEADER)
    header[position if position < 20 else position - 1] = value
    with pytest.raises(HeaderInvalid):
        decode_header(bytes(header))


def test_empty_texts_are_null() -> None:
    empty = HeaderFields(
        code=0, language=LanguageCode.JAVA, version=0, opaque=0, flag=0, remark="", ext_fields={"a": "", "b": "c"}
    )
    read = decode_header(encode_header(empty))
    assert read.remark is None and read.ext_fields == {"b": "c"}
    assert len(encode_header(HeaderFields(0, LanguageCode.JAVA, 0, 0, 0, None, {}))) == 21
    assert decode_header(bytes(21)).ext_fields is None


def test_unknown_language_is_none() -> None:
    header = bytearray(HEADER)
    header[2] = 200
    assert decode_header(bytes(header)).language is None


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(HeaderInvalid, match="UTF-8"):
        decode_header(HEADER.replace("Ω".encode(), b"\xff\xff"))


@pytest.mark.parametrize("change", [{"code": 40_000}, {"version": 1 << 20}, {"ext_fields": {"k" * 40_000: "v"}}])
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    values: dict[str, object] = {
        "code": 0,
        "language": None,
        "version": 0,
        "opaque": 0,
        "flag": 0,
        "remark": None,
        "ext_fields": None,
    }
    with pytest.raises(LocalProtocolError):
        encode_header(HeaderFields(**(values | change)))  # type: ignore[arg-type]  # a table of wrong values
