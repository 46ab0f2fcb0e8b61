"""Read a large JSON object member by member: a step for each, and never more of its text than a window.

    reader = JsonStream(chunks)
    for member in reader.members():          # the object's keys; each value is to be taken before the next
        if member == "table":
            for name in reader.members():    # a member that is an object itself, walked in the same way
                ... reader.value() ...
        else:
            reader.value()

Strict JSON, and beside it what the reference's files have: tables of integer keys without quotes, `{0:12,3:7}`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator

from rocketpy.errors import BodyInvalid

from .fastjson import JsonValue, without_lone_surrogates

CHUNK_BYTES = 65_536
VALUE_CHARS_MAX = 262_144
"""Characters of one value that is read whole; it bounds a step, and the window."""

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER_TABLE = re.compile(r"\{\s*-?\d{1,19}\s*:\s*-?\d{1,19}\s*(?:,\s*-?\d{1,19}\s*:\s*-?\d{1,19}\s*)*\}")
_NUMBER_PAIR = re.compile(r"(-?\d+)\s*:\s*(-?\d+)")
_DECODER = json.JSONDecoder(strict=False)


def chunks_of(data: bytes) -> Iterator[bytes]:
    """A body that is in memory, in chunks of CHUNK_BYTES."""
    return (data[position : position + CHUNK_BYTES] for position in range(0, len(data), CHUNK_BYTES))


class JsonStream:
    """One JSON text; every method raises BodyInvalid where it is not one, or a value is larger than VALUE_CHARS_MAX."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._position = 0
        self._is_complete = False  # the window holds all that is left

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; nothing for null. The caller takes each key's value."""
        if self._peek() == "n":
            self.value()
            return
        self._take("{")
        if self._peek() == "}":
            self._take("}")
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self._error("a key is not a string")
            self._take(":")
            yield key
            if self._peek() == "}":
                self._take("}")
                return
            self._take(",")

    def value(self) -> JsonValue:
        """The value that comes next, whole."""
        self._peek()
        while True:
            try:
                value, end = self._decode()
            except (ValueError, RecursionError) as exc:
                if not self._read_more():
                    raise self._error(f"expected a value ({exc})") from None
                continue
            if end == len(self._text) and isinstance(value, int | float) and self._read_more():
                continue  # a number may go on in the next chunk
            text = self._text[self._position : end]
            self._position = end
            return without_lone_surrogates(value) if "\\u" in text else value

    def end(self) -> None:
        """There must be nothing more."""
        if self._peek():
            raise self._error("unexpected text after the value")

    def _decode(self) -> tuple[JsonValue, int]:
        if self._text.startswith("{", self._position):
            table = _NUMBER_TABLE.match(self._text, self._position)
            if table is not None:
                pairs: dict[str, JsonValue] = {key: int(value) for key, value in _NUMBER_PAIR.findall(table.group())}
                return pairs, table.end()
        return _DECODER.raw_decode(self._text, self._position)

    def _peek(self) -> str:
        while True:
            blank = _BLANK.match(self._text, self._position)
            assert blank is not None
            self._position = blank.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_more():
                return ""

    def _take(self, character: str) -> None:
        if self._peek() != character:
            raise self._error(f"expected {character}")
        self._position += 1

    def _read_more(self) -> bool:
        """Add a chunk to the window; False: there is none, or the value in it is too large already."""
        if self._is_complete or len(self._text) - self._position > VALUE_CHARS_MAX:
            return False
        chunk = next(self._chunks, None)
        self._is_complete = chunk is None
        try:
            more = self._utf8.decode(chunk or b"", final=chunk is None)
        except UnicodeDecodeError as exc:
            raise BodyInvalid(f"body is not UTF-8: {exc.reason}") from None
        self._text = self._text[self._position :] + more
        self._position = 0
        return chunk is not None or more != ""

    def _error(self, reason: str) -> BodyInvalid:
        around = self._text[max(0, self._position - 20) : self._position + 20]
        return BodyInvalid(f"body is not JSON near {around!r}: {reason[:200]}")
