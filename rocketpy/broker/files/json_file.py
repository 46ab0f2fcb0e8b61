"""The JSON files of the managers: read with their `.bak`, written whole (rocketpy/atomic_file.py does both).

A file has the reference's format, with tabs and with integer keys without quotes, so that a Java broker can use the
directory. If neither file can be read, the reference starts with an empty table. We refuse to start, because an
operator can restore a file, but not offsets that were overwritten.

Source: RocketMQ 4.9 `ConfigManager`, `MixAll#string2File`; fastjson's pretty format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rocketpy.atomic_file import read_with_backup, write_atomically
from rocketpy.errors import BodyInvalid, ConfigError
from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.json_writer import pretty_pieces

_B = TypeVar("_B", bound=Body)


def save(path: Path, pieces: Sequence[bytes]) -> None:
    """Replace the file; on return it is on the disk. Raises: OSError."""
    write_atomically(path, pieces)


def load(path: Path) -> dict[str, Any] | None:
    """Load the object from `path`, else from its `.bak`; None if neither file exists.

    Raises:
        ConfigError: a file is there but damaged, and there is no usable `.bak`.
    """
    found = load_with_image(path)
    return None if found is None else found[0]


def load_with_image(path: Path) -> tuple[dict[str, Any], bytes] | None:
    """As `load`, with the bytes that the object was read from."""
    try:
        return read_with_backup(path, lambda data: (_decode(data), data))
    except ValueError as exc:
        advice = "restore it, or remove it and its .bak to start without"
        raise ConfigError(f"damaged, and no usable .bak beside it ({exc}); {advice}", file=path) from exc


def load_as(path: Path, kind: type[_B]) -> _B | None:
    """As `load`, and decode the object as a body of this kind.

    Raises:
        ConfigError: as `load`, and for a member that is not of its type.
    """
    document = load(path)
    with naming(path):
        return None if document is None else kind.from_json(document)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error of one of its members. Raises: ConfigError."""
    try:
        yield
    except BodyInvalid as exc:
        raise ConfigError(f"{exc}; restore the file, or remove it and its .bak to start without", file=path) from None


def table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an object within the object; empty if it is not there. Raises: BodyInvalid."""
    found = document.get(key) or {}
    if not isinstance(found, dict):
        raise BodyInvalid(f"{key} is not an object but {type(found).__name__}")
    return found


def pretty(value: object) -> str:
    """fastjson's pretty format: tabs, no blank after the colon, integer keys bare and on one line."""
    return "".join(pretty_pieces(value))


def _decode(data: bytes) -> dict[str, Any]:
    try:
        value = fastjson.loads(data)
    except BodyInvalid as exc:
        raise ValueError(str(exc)) from exc
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {type(value).__name__}")
    return value
