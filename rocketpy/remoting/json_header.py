"""The JSON serialisation of a header: one object, UTF-8, in the spelling of fastjson.

Written compact and with sorted keys, absent values left out, all extFields as strings (Go refuses anything else).
Read leniently, as fastjson reads it: keys in any order and case, unknown keys, numbers and booleans in extFields,
unknown languages. Absent numbers are 0.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from rocketpy.codes import LanguageCode
from rocketpy.errors import HeaderInvalid, NumberInvalid
from rocketpy.message.numbers import INT_MAX, int_or, parse_int

from .frame import HeaderFields, format_bool, language_or_none

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
# Numbers stay text: extFields want them as they were spelled, and no digit string can be made expensive.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False)
_PLAIN: Any = json.JSONDecoder(strict=False)  # Any: typeshed leaves scan_once out
_scan: Callable[[str, int], tuple[Any, int]] = _PLAIN.scan_once  # of a text without blanks around it
_NAMES = [language.name for language in LanguageCode]  # by number
assert list(LanguageCode) == list(range(len(_NAMES)))
_TEXT = {str}
_NUMBERS = ("code", "version", "opaque", "flag")
_numbers_of = operator.itemgetter(*_NUMBERS)
_SPELLED = frozenset(
    ("code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version")
)
_SPELLING = {key.lower(): key for key in _SPELLED}
_made = tuple.__new__  # of a named tuple: the class itself takes three times as long
_LANGUAGES = {language.name: language for language in LanguageCode}


def encode_header(fields: HeaderFields) -> bytes:
    """Return the bytes of a header; a lone surrogate in a string becomes `?`, as in Java."""
    code, language, version, opaque, flag, remark, ext_fields = fields
    text = None if ext_fields is None else json_of_fields(ext_fields)
    return join_header(code, language, version, opaque, flag, remark, text)


def join_header(
    code: int,
    language: LanguageCode | None,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields_text: str | None,
) -> bytes:
    """As `encode_header`, with the JSON of the extFields."""
    name = _NAMES[LanguageCode.OTHER if language is None else language]
    ext_fields = "" if ext_fields_text is None else f'"extFields":{ext_fields_text},'
    quoted = "" if remark is None else f'"remark":{_ENCODER.encode(remark)},'
    return (
        f'{{"code":{int(code)},{ext_fields}"flag":{flag},"language":"{name}",'
        f'"opaque":{opaque},{quoted}"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode("utf-8", "replace")


def json_of_fields(ext_fields: dict[str, str]) -> str:
    """The compact JSON of extFields, names in order."""
    return _ENCODER.encode(ext_fields)


def decode_header(header: bytes) -> HeaderFields:
    """Read a header.

    Raises:
        HeaderInvalid: not UTF-8, not a JSON object, nested beyond all measure, or a number field holds no number.
    """
    try:
        return _as_written(header) or _fields(_object(header))
    except UnicodeDecodeError as exc:
        raise HeaderInvalid(f"JSON header is not UTF-8: {exc}") from exc
    except ValueError as exc:
        raise HeaderInvalid(f"header is not JSON: {exc}") from exc
    except RecursionError:
        raise HeaderInvalid(f"JSON header of {len(header)} bytes is nested too deeply") from None


def _as_written(header: bytes) -> HeaderFields | None:
    """Return the fields of a header in the form that brokers and clients write; None: it is to be read leniently."""
    if b"\\u" in header and _SURROGATE_ESCAPE.search(header):
        return None
    text = header.decode()
    try:
        decoded, end = _scan(text, 0)
        code, version, opaque, flag = _numbers_of(decoded)
        language = _LANGUAGES[decoded["language"]]
    except (StopIteration, ValueError, LookupError, TypeError):
        return None
    if not (type(code) is type(version) is type(opaque) is type(flag) is int):
        return None
    remark, ext_fields = decoded.get("remark"), decoded.get("extFields")
    if (
        end != len(text)
        or not 0 <= code | version | opaque | flag <= INT_MAX  # so is each of them
        or not decoded.keys() <= _SPELLED
        or not (remark is None or type(remark) is str)
        or not (ext_fields is None or (type(ext_fields) is dict and set(map(type, ext_fields.values())) <= _TEXT))
    ):
        return None
    return _made(HeaderFields, (code, language, version, opaque, flag, remark, ext_fields))


def _object(header: bytes) -> dict[str, object]:
    decoded = _DECODER.decode(header.decode("utf-8"))
    if not isinstance(decoded, dict):
        raise HeaderInvalid(f"JSON header is not an object but {type(decoded).__name__}")
    has_surrogates = b"\\u" in header and _SURROGATE_ESCAPE.search(header)
    return _without_lone_surrogates(decoded) if has_surrogates else decoded


def _fields(decoded: dict[str, object]) -> HeaderFields:
    values = decoded
    if not decoded.keys() <= _SPELLED:
        values = {_SPELLING.get(key.lower(), key): value for key, value in decoded.items()}
    code, version, opaque, flag = (_number(values, key) for key in _NUMBERS)
    return HeaderFields(
        code,
        _language(values.get("language")),
        version,
        opaque,
        flag,
        _text(values.get("remark")),
        _ext_fields(values.get("extFields")),
    )


def _number(values: dict[str, object], key: str) -> int:
    value = values.get(key)
    if value is None:
        return 0
    if not isinstance(value, str):
        raise HeaderInvalid(f"header field {key} is not a number but {type(value).__name__}")
    try:
        return parse_int(value)
    except NumberInvalid as exc:
        raise HeaderInvalid(f"header field {key}: {exc}") from None


def _language(value: object) -> LanguageCode | None:
    if not isinstance(value, str):
        return None
    language = _LANGUAGES.get(value) or _LANGUAGES.get(value.upper())
    return language_or_none(int_or(value, -1)) if language is None else language


def _text(value: object) -> str | None:
    """A value as fastjson puts it into a string: numbers as spelled, booleans by name, objects as their JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return format_bool(value)
    return _ENCODER.encode(value)


def _ext_fields(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise HeaderInvalid(f"extFields is not an object but {type(value).__name__}")
    if set(map(type, value.values())) <= _TEXT:
        return value
    return {key: text for key, item in value.items() if (text := _text(item)) is not None}


def _without_lone_surrogates(value: object) -> dict[str, object]:
    """Halves of surrogate pairs are no characters: left in, they would fail later, wherever the text is encoded."""
    scrubbed = _DECODER.decode(_LONE_SURROGATE.sub("?", json.dumps(value, ensure_ascii=False)))
    assert isinstance(scrubbed, dict)
    return scrubbed
