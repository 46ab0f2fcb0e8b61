"""Arguments that several commands have: properties, and the place of a store.

Short: functions that commands share, which could otherwise not import each other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

STORE_VARIABLE = "ROCKETPY_STORE_PATH_ROOT_DIR"  # that of storePathRootDir; its module would bring all properties along


def default_store() -> Path:
    """Return the store of the environment, or `rocketpy` in the user's data directory."""
    return Path(os.environ.get(STORE_VARIABLE) or data_directory() / "rocketpy")


def data_directory() -> Path:
    """Return the user's data directory (XDG)."""
    data = os.environ.get("XDG_DATA_HOME")
    return Path(data) if data else Path.home() / ".local" / "share"


def pairs(settings: Sequence[str]) -> dict[str, str]:
    """Return the values of --set KEY=VALUE by key."""
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
        found[key.strip()] = value.strip()
    return found
