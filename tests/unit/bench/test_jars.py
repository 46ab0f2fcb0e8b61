"""Jars that Maven fetches: all of them or none, and the message of a Maven that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.bench import jars
from rocketpy.errors import ConfigError

ARTIFACTS = [("org.example", "broker", "4.9.7"), ("org.example", "namesrv", "4.9.7")]


def install_maven(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program `mvn` first in the search path."""
    program = directory / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def test_jars_replace_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_maven(tmp_path, monkeypatch, "mkdir lib && grep -o 'broker\\|namesrv' pom.xml | sort -u > lib/names")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "of-an-earlier-version").touch()
    jars.fetch(tmp_path / "lib", ARTIFACTS)
    assert [path.name for path in (tmp_path / "lib").iterdir()] == ["names"]
    assert (tmp_path / "lib" / "names").read_text() == "broker\nnamesrv\n"


def test_a_maven_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_maven(tmp_path, monkeypatch, "echo '[ERROR] Could not transfer artifact' && exit 1")
    with pytest.raises(ConfigError, match=r"broker 4\.9\.7, namesrv 4\.9\.7: \[ERROR\] Could not transfer artifact"):
        jars.fetch(tmp_path / "lib", ARTIFACTS)
    assert not (tmp_path / "lib").exists()
