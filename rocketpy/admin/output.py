"""The output of commands: lines and tables like Java's mqadmin, or one JSON object per row for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from typing import TextIO, TypeVar

import attrs
import click

from .progress_bar import ProgressBar

T = TypeVar("T")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but tab and line feed


class Format(Enum):
    """`jsonl` is a second name of `json`: both print an object per line."""

    TEXT = "text"
    JSON = "json"
    JSON_LINES = "jsonl"


NAME_TITLES = ("Name", "Topic", "Group")


@attrs.frozen
class Column:
    """One column of a table: its heading without the `#`, its width (0: as wide as the text), its side."""

    title: str
    width: int = 0
    right: bool = False
    gap: int = 2  # spaces after the column

    @property
    def key(self) -> str:
        """The heading as a JSON key: `Broker Name` is broker_name, `InTPS(LOAD)` is in_tps_load."""
        words = re.sub(r"([a-z])([A-Z])", r"\1_\2", self.title)
        return re.sub(r"[^0-9a-zA-Z]+", "_", words).strip("_").lower()

    def cell(self, value: object) -> str:
        """The value padded to the width. As in Java, a longer name is cut, anything else stays whole."""
        text = str(value)
        if self.width and self.title.endswith(NAME_TITLES):
            text = text[: self.width]
        return text.rjust(self.width) if self.right else text.ljust(self.width)


@attrs.frozen
class Table:
    """Columns, and whether the heading is printed (producerConnection has none)."""

    columns: tuple[Column, ...]
    with_heading: bool = True

    def heading(self) -> str:
        return self._line([f"#{column.title}" for column in self.columns])

    def line(self, row: Sequence[object]) -> str:
        return self._line(row)

    def _line(self, cells: Sequence[object]) -> str:
        parts = [column.cell(cell) + " " * column.gap for column, cell in zip(self.columns, cells, strict=True)]
        return "".join(parts).rstrip()


@attrs.define
class Output:
    """The output of a command's results, its warnings, and the progress of long work."""

    format: Format
    print_line: Callable[[str], None]
    print_warning: Callable[[str], None]
    bar: ProgressBar

    @property
    def is_json(self) -> bool:
        return self.format is not Format.TEXT

    def write(self, text: str) -> None:
        self.bar.erase()
        self.print_line(text)

    def warn(self, text: str) -> None:
        """A line for people beside the results, on standard error."""
        self.bar.erase()
        self.print_warning(text)

    def line(self, text: str = "") -> None:
        """A line for people; programs get rows and values instead."""
        if not self.is_json:
            self.write(text)

    def record(self, **values: object) -> None:
        """An object for programs; people get lines instead."""
        if self.is_json:
            self.write(json.dumps(values, ensure_ascii=False, default=str))

    def done(self, text: str, **values: object) -> None:
        """One result: a line for people, an object for programs."""
        self.line(text)
        self.record(**values)

    def table(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        """Rows under a heading, or one object per row."""
        if not self.is_json and table.with_heading:
            self.write(table.heading())
        for row in rows:
            self.row(table, row)

    def row(self, table: Table, row: Sequence[object]) -> None:
        if self.is_json:
            keys = [column.key for column in table.columns]
            self.record(**dict(zip(keys, (value if _is_plain(value) else str(value) for value in row), strict=True)))
        else:
            self.write(table.line(row))

    def heading(self, table: Table) -> None:
        self.line(table.heading())

    def mapping(self, pairs: Sequence[tuple[str, str]], line_format: str) -> None:
        """Sorted keys and values with a printf layout, or one object."""
        if self.is_json:
            self.record(**dict(pairs))
        else:
            for key, value in pairs:
                self.write(line_format % (key, value))

    def steps(self, items: Sequence[T], what: str) -> Iterator[T]:
        """Yield the items of long work; a terminal shows how many are done."""
        return self.bar.steps(items, what)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line. A terminal gets control characters as `\\x1b`: it would obey any that a stranger has put into a
    name, a property or a body."""
    click.echo(harmless(text) if _is_terminal(sys.stderr if err else sys.stdout) else text, err=err)


def harmless(text: str) -> str:
    """The text with control characters as `\\x1b`."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def time_text(timestamp_ms: int) -> str:
    """`yyyy-MM-dd HH:mm:ss,SSS` in local time."""
    return second_text(timestamp_ms) + f",{timestamp_ms % 1000:03d}"


def second_text(timestamp_ms: int) -> str:
    """`yyyy-MM-dd HH:mm:ss` in local time."""
    return _local(timestamp_ms, "%Y-%m-%d %H:%M:%S")


def stamp_text(timestamp_ms: int) -> str:
    """`yyyyMMddHHmmssSSS` in local time."""
    return _local(timestamp_ms, "%Y%m%d%H%M%S") + f"{timestamp_ms % 1000:03d}"


def _local(timestamp_ms: int, pattern: str) -> str:
    """A time that no calendar here has, as clients may send it, stays a number."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def parse_time_ms(text: str) -> int:
    """`now` is -1; milliseconds; or `yyyy-MM-dd#HH:mm:ss:SSS` in local time. Raises ValueError."""
    if text == "now":
        return -1
    if text.lstrip("-").isdecimal():
        return int(text)
    return int(datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").timestamp() * 1000)


def java_map(pairs: dict[int, str] | dict[str, str]) -> str:
    """A map as Java prints it: `{0=10.0.0.11:10911, 1=10.0.0.12:10911}`."""
    return "{" + ", ".join(f"{key}={value}" for key, value in pairs.items()) + "}"
