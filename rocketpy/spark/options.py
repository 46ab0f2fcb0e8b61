"""Declarations of the options of the sources and of the sink, and their parser.

Spark hands options over as text, with keys in lower case. Each option is a field of a frozen class with its key, its
default and its meaning. An unknown key, a wrong value, and a combination that makes no sense are errors before anything
is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from rocketpy.errors import ConfigError

from .columns import nearest

T = TypeVar("T")
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode", "path"})
"""Keys that Spark adds to the options of a query."""
NOT_THERE = {
    "pushdown": "filters are not pushed down: Spark 4.3 would apply them to other queries of the DataFrame, too; "
    "choose by topic, offsets, times and subExpression",
}
"""Options that users of other connectors know, by lower-case key, and what to do without them."""
OFF = frozenset({"false", "off"})


def option(key: str, parse: Callable[[str], Any], default: Any, meaning: str) -> Any:
    """A field read from the option `key`; `default` is the parsed value."""
    return attrs.field(default=default, metadata={"key": key, "parse": parse, "meaning": meaning})


def parse_options(kind: type[T], given: Mapping[str, str], *, ignored: frozenset[str] = frozenset()) -> T:
    """An object of the attrs class `kind` from options.

    Raises:
        ConfigError: names the option, and the nearest one if its key is unknown.
    """
    fields = {field.metadata["key"].lower(): field for field in attrs.fields(kind)}  # type: ignore[arg-type]
    keys = [field.metadata["key"] for field in fields.values()]
    values = {}
    for key, text in given.items():
        if key.lower() in fields:
            field = fields[key.lower()]
            values[field.name] = _parse(field.metadata["key"], field.metadata["parse"], text)
        elif key.lower() in NOT_THERE:
            if text.strip().lower() not in OFF:
                raise ConfigError(NOT_THERE[key.lower()], key=key)
        elif key.lower() not in ignored:
            raise ConfigError(f"unknown option{nearest(key, keys)}", key=key)
    for field in fields.values():
        if field.default is attrs.NOTHING and field.name not in values:
            raise ConfigError(f"this option is required: {field.metadata['meaning']}", key=field.metadata["key"])
    return kind(**values)


def _parse(key: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(f'"{text}" {error}', key=key) from None


def required(key: str, parse: Callable[[str], Any], meaning: str) -> Any:
    """As `option`, without a default."""
    return option(key, parse, attrs.NOTHING, meaning)


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def directory(value: str) -> Path:
    """A path, or its URL: `file:///store`, or `file:/store` as Spark's catalog has it."""
    path = text(value).removeprefix("file://").removeprefix("file:")
    if "://" in path:  # in a catalog, paths without file: are of the default file system of Hadoop
        raise ValueError("is no local directory: give it as file:///…")
    return Path(path)


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(f"is no whole number from {low} to {high}")
        return int(value)

    return parse


def size(low: int, high: int) -> Callable[[str], int]:
    """Bytes: `1048576`, `1024k`, `1m`."""

    def parse(value: str) -> int:
        match = re.fullmatch(r"([0-9]{1,15})\s*([bkmgt]?)b?", value.strip().lower())
        if match is None or not low <= int(match[1]) * UNITS[match[2]] <= high:
            raise ValueError(f"is no size from {low} to {high} bytes, such as 64m")
        return int(match[1]) * UNITS[match[2]]

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    """A duration: `500ms`, `10s`, `15m`; seconds without a unit."""

    def parse(value: str) -> float:
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|)", value.strip().lower())
        if match is None or not low <= float(match[1]) * SECONDS[match[2]] <= high:
            raise ValueError(f"is no duration from {low:g} s to {high:g} s, such as 500ms or 10s")
        return float(match[1]) * SECONDS[match[2]]

    return parse


def boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value.strip().lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words, in any case."""
    known = {word.lower(): word for word in words}

    def parse(value: str) -> str:
        if value.strip().lower() not in known:
            raise ValueError(f"is none of {', '.join(words)}")
        return known[value.strip().lower()]

    return parse


def words(value: str) -> frozenset[str]:
    """Names separated by commas."""
    parts = frozenset(part.strip() for part in value.split(",")) - {""}
    if not parts:
        raise ValueError("names nothing")
    return parts


def numbers(value: str) -> frozenset[int]:
    """Whole numbers separated by commas."""
    parse = whole(0, (1 << 31) - 1)
    return frozenset(parse(part) for part in words(value))


def json_object(value: str) -> dict[str, Any]:
    """A JSON object, checked no further."""
    try:
        found = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    return found
