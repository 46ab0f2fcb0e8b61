"""JSON as fastjson writes and reads it: the dialect of all bodies.

Written compact: keys of objects sorted, null members left out, enums by name, bytes as Base64, doubles in Java's form,
NaN and infinity as null; map keys that are integers stand unquoted and those that are objects stand bare
(``{{"brokerName":"a","queueId":0,"topic":"T"}:1}``), which is not JSON but what Java and Go expect.

Read leniently: both of these forms, keys that are names without quotes, single quotes, trailing commas, NaN. An object
that is a key is given as its own compact text, so that it reads like the JSON-in-a-string form that Java also accepts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TypeAlias

from rocketpy.errors import BodyInvalid

from .json_writer import WireObject, dump_text, dumps, java_double

__all__ = ["JsonValue", "WireObject", "dump_text", "dumps", "java_double", "loads", "loads_text"]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

DEPTH_MAX = 64
TOLERANT_MAX = 1 << 20  # characters: the tolerant parser takes seconds for them, in which a client does nothing else
_NUMBER_DIGITS_MAX = 64
_DECODER = json.JSONDecoder(strict=False)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"[ \t\r\n\f\v\x00]*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|Infinity)[LSBFD]?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_PLAIN_STRING = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
# Or a string, as it is; without its end too: a match that begins never fails, so that no text is gone through twice.
_BARE_KEY = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?'
    r"|([{,]\s*+)(?:(-?[0-9]{1,19})"
    r'|(\{"brokerName":"[^"\\]*+","queueId":(?:0|[1-9][0-9]{0,8}),"topic":"[^"\\]*+"\}))\s*+:',
    re.DOTALL,
)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS: Mapping[str, bool | float | None] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": math.nan,
}


def loads(data: bytes | bytearray | memoryview, *, is_strict: bool = False) -> JsonValue:
    """Read a body.

    Args:
        is_strict: refuse what is only leniently JSON, which takes ten times as long to read.

    Raises:
        BodyInvalid: not UTF-8, not even leniently JSON, nested deeper than 64, or beyond TOLERANT_MAX and JSON neither
            as it is nor with bare integers and queues as keys.
    """
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as exc:
        raise BodyInvalid(f"body is not UTF-8: {exc}") from exc
    return loads_text(text, is_strict=is_strict)


def loads_text(text: str, *, is_strict: bool = False) -> JsonValue:
    """As `loads`, for a text."""
    try:
        value: JsonValue = _DECODER.decode(text)
    except (ValueError, RecursionError) as exc:
        if is_strict:
            raise BodyInvalid(f"body is not JSON: {exc}") from None
        value = _read_quoted(text)
        if value is None and len(text) > TOLERANT_MAX:
            raise BodyInvalid(f"body of {len(text)} characters is not JSON: {exc}") from None
        value = _Reader(text).read() if value is None else value
    return without_lone_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def _read_quoted(text: str) -> JsonValue:
    """`text` with its bare integers and queues as keys in quotes; None when that makes it no strict JSON.

    Tables of offsets are large, and the tolerant parser takes ten times as long. Queues are taken as fastjson writes
    them, which is their compact text; of any other spelling the tolerant parser makes that.
    """
    try:
        value: JsonValue = _DECODER.decode(_BARE_KEY.sub(_quoted_key, text))
    except (ValueError, RecursionError):
        return None
    return value


def _quoted_key(match: re.Match[str]) -> str:
    before, number, queue = match.groups()
    if before is None:
        return match.group()
    quoted = number if number is not None else queue.replace('"', '\\"')
    return f'{before}"{quoted}":'


def without_lone_surrogates(value: JsonValue) -> JsonValue:
    """Halves of surrogate pairs are no characters: left in, they would fail later, wherever the text is encoded."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise BodyInvalid("body is nested too deeply") from None
    return _DECODER.decode(_LONE_SURROGATE.sub("?", text))  # type: ignore[no-any-return]  # decode gives Any


class _Reader:
    """The tolerant parser: for what is not quite JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._is_in_key = False

    def read(self) -> JsonValue:
        value = self._value(0)
        self._skip_blank()
        if self.position != len(self.text):
            raise self._error("unexpected text after the value")
        return value

    def _error(self, reason: str) -> BodyInvalid:
        around = self.text[max(0, self.position - 20) : self.position + 20]
        return BodyInvalid(f"body is not JSON at character {self.position}, near {around!r}: {reason}")

    def _skip_blank(self) -> None:
        blank = _BLANK.match(self.text, self.position)
        assert blank is not None
        self.position = blank.end()

    def _peek(self) -> str:
        self._skip_blank()
        return self.text[self.position : self.position + 1]

    def _value(self, depth: int) -> JsonValue:
        if depth > DEPTH_MAX:
            raise self._error(f"nested deeper than {DEPTH_MAX}")
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first in ('"', "'"):
            return self._string(first)
        word = _NAME.match(self.text, self.position)
        if word is not None and word.group() in _WORDS:
            self.position = word.end()
            return _WORDS[word.group()]
        return self._number()

    def _number(self) -> int | float:
        match = _NUMBER.match(self.text, self.position)
        if match is None or match.end() - match.start() > _NUMBER_DIGITS_MAX:
            raise self._error("expected a value")
        self.position = match.end()
        literal = match.group().rstrip("LSBFD")
        return int(literal) if literal.lstrip("+-").isdigit() else float(literal)

    def _array(self, depth: int) -> list[JsonValue]:
        self.position += 1
        values: list[JsonValue] = []
        while self._peek() != "]":
            values.append(self._value(depth + 1))
            self._comma_or("]")
        self.position += 1
        return values

    def _object(self, depth: int) -> dict[str, JsonValue]:
        self.position += 1
        members: dict[str, JsonValue] = {}
        while self._peek() != "}":
            key = self._key(depth + 1)
            if self._peek() != ":":
                raise self._error("expected a colon after the key")
            self.position += 1
            members[key] = self._value(depth + 1)
            self._comma_or("}")
        self.position += 1
        return members

    def _comma_or(self, end: str) -> None:
        follows = self._peek()
        if follows == ",":
            self.position += 1
        elif follows != end:
            raise self._error(f"expected a comma or {end}")

    def _key(self, depth: int) -> str:
        first = self._peek()
        if first in ('"', "'"):
            return self._string(first)
        name = _NAME.match(self.text, self.position)
        if name is not None:
            self.position = name.end()
            return name.group()
        if self._is_in_key:  # as text within text it would double in size with each level
            raise self._error("a key must be a string or a number, not an object within a key")
        self._is_in_key = True
        key = self._value(depth)
        self._is_in_key = False
        return str(key) if isinstance(key, int | float) else dump_text(key)

    def _string(self, quote: str) -> str:
        self.position += 1
        pieces: list[str] = []
        while True:
            plain = _PLAIN_STRING[quote].match(self.text, self.position)
            assert plain is not None
            pieces.append(plain.group())
            self.position = plain.end()
            follows = self.text[self.position : self.position + 1]
            if not follows:
                raise self._error("the text ends inside a string")
            self.position += 1
            if follows == quote:
                return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            pieces.append(self._escape())

    def _escape(self) -> str:
        letter = self.text[self.position : self.position + 1]
        self.position += 1
        digits = {"u": 4, "x": 2}.get(letter, 0)
        if not digits:
            return _ESCAPES.get(letter, letter)
        text = self.text[self.position : self.position + digits]
        if re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text) is None:
            raise self._error(f"malformed \\{letter} escape")
        self.position += digits
        return chr(int(text, 16))
