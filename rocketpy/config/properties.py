"""The text form of Java `.properties`, as `broker.conf` and the bodies of codes 25, 26, 318 and 319 use it.

    # comment, or ! comment
    key = value          separators: `=`, `:` or blanks
    long.key : a value \\
        that goes on     a backslash at the end of a line continues it; the next line's indent is dropped
    path = C\\:\\\\store    \\n \\t \\r \\f \\uXXXX and any other escaped character

Lines end in \\n, \\r or \\r\\n and in nothing else: U+2028, form feeds and the like are characters of a value. `parse`
and `replace` cut with one function, so that they can never differ about what a line is.

One difference from the reference, on purpose: trailing blanks of a value are dropped. Java keeps them, and then
silently ignores `brokerId=1 ` because it is no number.

Source: `java.util.Properties#load`, `MixAll#string2Properties`, `MixAll#properties2String`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import attrs

_BLANKS = " \t\f"
_LINE_END = re.compile(r"(\r\n|\r|\n)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


CHANGES_BYTES_MAX = 64 * 1024  # of a request that changes settings: reading 16 MB would take seconds


class PropertiesError(ValueError):
    """The text is not in properties form; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@attrs.frozen
class Entry:
    """One `key=value`. `line` is where it begins, from 1; `line_end` is one past its last physical line."""

    key: str
    value: str
    line: int
    line_end: int


def parse(text: str) -> list[Entry]:
    """All entries in order; a key given twice appears twice (the last one counts, as in Java).

    Raises:
        PropertiesError: a malformed `\\uXXXX` escape.
    """
    return [_entry(logical, line, line_end) for line, line_end, logical in _logical_lines(text)]


def read_changes(body: bytes | None) -> dict[str, str]:
    """The body of a request that changes settings.

    Raises:
        PropertiesError: more than CHANGES_BYTES_MAX, not UTF-8, or no properties.
    """
    body = body or b""
    if len(body) > CHANGES_BYTES_MAX:
        raise PropertiesError(1, f"{len(body)} bytes of changes, at most {CHANGES_BYTES_MAX} are allowed")
    try:
        return as_mapping(body.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise PropertiesError(1, f"not UTF-8: {exc}") from exc


def as_mapping(text: str) -> dict[str, str]:
    """The entries as a dict, the last of equal keys winning."""
    return {entry.key: entry.value for entry in parse(text)}


def format_entry(key: str, value: str) -> str:
    """One line, without its end, that `parse` reads back as (key, value)."""
    return f"{_escaped(key, separators=True)}={_escaped(value, separators=False)}"


def format_mapping(values: Mapping[str, str]) -> str:
    """`key=value` lines, each ended by a newline: the body of codes 26 and 319.

    Values are written raw but for backslashes and line ends: the reference escapes nothing here, and readers of either
    make see the same text for every value without a backslash.
    """
    return "".join(f"{format_entry(key, value)}\n" for key, value in values.items())


def replace(text: str, changes: Mapping[str, str], read_as: Callable[[str], str] = str) -> str:
    """`text` with the values of `changes` put in place; new keys go to the end, every other line stays as it is.

    `read_as`: the key of `changes` that a key of the text is another name of, or the same.

    Raises:
        PropertiesError: as `parse`.
    """
    entries = parse(text)
    last = {read_as(entry.key): entry for entry in entries}
    lines = ["".join(line) for line in _lines(text)]
    for entry in entries:
        key = read_as(entry.key)
        if key in changes:
            lines[entry.line - 1 : entry.line_end - 1] = [""] * (entry.line_end - entry.line)
            if entry is last[key]:
                lines[entry.line - 1] = f"{format_entry(key, changes[key])}\n"
    added = [f"{format_entry(key, value)}\n" for key, value in changes.items() if key not in last]
    return _ended("".join(lines)) + "".join(added) if added else "".join(lines)


def _ended(text: str) -> str:
    """`text` with a line end where one is needed for the next line to be one of its own."""
    while text and (text[-1] not in "\r\n" or parse(f"{text}=").pop().line != len(_lines(text))):
        text += "\n"
    return text


def _lines(text: str) -> list[tuple[str, str]]:
    """Every physical line and its end; the last one, which may be empty, has none."""
    pieces = _LINE_END.split(text)
    return list(zip(pieces[::2], [*pieces[1::2], ""], strict=True))


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """(first line, one past the last, text) of each entry: comments and blank lines gone, continuations joined."""
    lines = [line for line, _ in _lines(text)]
    index = 0
    while index < len(lines):
        first = index
        logical = lines[index].lstrip(_BLANKS)
        index += 1
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical):
            logical = logical[:-1]
            if index == len(lines):
                break
            logical += lines[index].lstrip(_BLANKS)
            index += 1
        yield first + 1, index + 1, logical


def _continues(line: str) -> bool:
    """True when the line ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(logical: str, line: int, line_end: int) -> Entry:
    """Split at the first unescaped separator: blanks, then at most one `=` or `:`, then blanks."""
    position = 0
    while position < len(logical) and logical[position] not in "=:" + _BLANKS:
        position += 2 if logical[position] == "\\" else 1
    key, rest = logical[:position], logical[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return Entry(_unescaped(key, line), _unescaped(_trimmed(rest), line), line, line_end)


def _trimmed(value: str) -> str:
    """Return the value without trailing blanks; one that is escaped stays."""
    bare = value.rstrip(_BLANKS)
    return value[: len(bare) + 1] if _continues(bare) and len(bare) < len(value) else bare


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char if char != "\\" else "")
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(line, f"\\u needs four hexadecimal digits, found {digits!r}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    # \uXXXX speaks UTF-16: a pair of surrogates is one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(text: str, *, separators: bool) -> str:
    """Escape what `parse` would otherwise read differently: `;`, `:` and `=` in a value stay readable."""
    out = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    if separators:
        for separator in "=: ":
            out = out.replace(separator, "\\" + separator)
        out = f"\\{out}" if out[:1] in ("#", "!") else out
    else:
        out = f"{out[:-1]}\\ " if out[-1:] == " " else out
        out = f"\\{out}" if out[:1] == " " else out
    return out
