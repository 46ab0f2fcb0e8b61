"""Arguments that several commands have: properties, and the place of a store.

Short: functions that commands share, which could otherwise not import each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from rocketpy.errors import ConfigError

STORE_VARIABLE = "ROCKETPY_STORE_PATH_ROOT_DIR"  # that of storePathRootDir; its module would bring all properties along


def default_store() -> Path:
    """Return the store of the environment, or `rocketpy` in the user's data directory."""
    return Path(os.environ.get(STORE_VARIABLE) or data_directory() / "rocketpy")


def data_directory() -> Path:
    """Return the user's data directory (XDG)."""
    data = os.environ.get("XDG_DATA_HOME")
    return Path(data) if data else Path.home() / ".local" / "share"


def pairs(settings: Iterable[str]) -> dict[str, str]:
    """Return the values of --set KEY=VALUE by key. Raises click.UsageError."""
    try:
        return key_values(settings, "--set")
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from None


def key_values(given: Iterable[str], option: str) -> dict[str, str]:
    """Return the values of an option that takes KEY=VALUE, by key. Raises ConfigError."""
    found: dict[str, str] = {}
    for one in given:
        key, equals, value = (part.strip() for part in one.partition("="))
        if not equals or not key:
            raise ConfigError(f'"{one}" is not KEY=VALUE', key=option)
        found[key] = value
    return found
