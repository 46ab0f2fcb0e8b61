"""The file that a running server keeps its changed settings in: read as it is, changed in place, replaced whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocketpy.atomic_file import write_atomically
from rocketpy.errors import ConfigError

from . import properties
from .settings import read_as


def change_file(path: Path, changes: Mapping[str, str]) -> None:
    """Give the keys of `changes` their new values; a file that is not there begins empty. Waits for the disk.

    Raises:
        ConfigError: the file cannot be read or written, or somebody has damaged it; it is as it was.
    """
    try:
        before = path.read_bytes().decode("utf-8") if path.exists() else ""
        write_atomically(path, properties.replace(before, changes, read_as).encode())
    except OSError as exc:
        raise ConfigError(f"cannot be changed: {exc}", file=path) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"is not UTF-8 text at byte {exc.start}", file=path) from exc
    except properties.PropertiesError as exc:
        raise ConfigError(exc.reason, file=path, line=exc.line) from exc
