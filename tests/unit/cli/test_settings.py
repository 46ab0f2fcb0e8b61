"""The place of a store where a command names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.cli.settings import STORE_VARIABLE, default_store


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home directory, and an environment that names no store."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (STORE_VARIABLE, "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_store_is_in_the_data_directory_of_the_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_store() == home / ".local/share/rocketpy"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_store() == Path("/data/rocketpy")


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: In a container `rocketpy doctor` looked at the user's data directory instead of the store of the image."""
    monkeypatch.setenv(STORE_VARIABLE, "/var/lib/rocketpy/store")
    assert default_store() == Path("/var/lib/rocketpy/store")
