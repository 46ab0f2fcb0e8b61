"""The place of a store where a command names none, and options that take KEY=VALUE."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from rocketpy.cli.settings import STORE_VARIABLE, default_store, key_values, pairs
from rocketpy.errors import ConfigError


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


def test_keys_and_values() -> None:
    given = ["key=a=b", " brokerName = broker a ", "key=", "other="]
    assert key_values(given, "--option") == pairs(given) == {"key": "", "brokerName": "broker a", "other": ""}


@pytest.mark.parametrize("text", ["x", "=x", " = x", ""])
def test_a_text_that_is_not_key_and_value(text: str) -> None:
    """Fault: `--set` and `--option` refused a text in different words, and `--option` took one without a key."""
    with pytest.raises(ConfigError) as refused:
        key_values([text], "--option")
    assert str(refused.value) == f'--option: "{text}" is not KEY=VALUE'
    with pytest.raises(click.UsageError) as wrong:
        pairs([text])
    assert wrong.value.message == f'--set: "{text}" is not KEY=VALUE'
