"""Programs and archives of the interop tests get the name that counts as built only when they are complete."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.interop import archives, toolchain


def test_a_go_program_whose_build_is_killed_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [b"half", b"whole"]

    def build(command: list[str], _source: Path) -> None:
        data = written.pop(0)
        Path(command[command.index("-o") + 1]).write_bytes(data)
        if data == b"half":
            raise KeyboardInterrupt

    monkeypatch.setenv("ROCKETPY_INTEROP_CACHE", str(tmp_path))
    monkeypatch.setattr(toolchain, "need", lambda tool: tool)
    monkeypatch.setattr(toolchain, "run_build", build)
    with pytest.raises(KeyboardInterrupt):
        toolchain.go_program()
    assert toolchain.go_program().read_bytes() == b"whole"
    assert toolchain.go_program().read_bytes() == b"whole" and written == []


def test_an_archive_is_used_when_it_is_complete(tmp_path: Path) -> None:
    assert archives.flags(tmp_path) == []

    def killed(flags: Iterable[str]) -> None:
        begun(flags).write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archives.make(tmp_path, killed)
    assert archives.flags(tmp_path) == []
    archives.make(tmp_path, lambda flags: None)  # a JVM that writes none
    archives.make(tmp_path, lambda flags: begun(flags).touch())
    assert f"-XX:SharedArchiveFile={archives.archive_of(tmp_path)}" in archives.flags(tmp_path)
    archives.make(tmp_path, killed)  # it is there


def begun(flags: Iterable[str]) -> Path:
    """The file that the JVM is told to write."""
    (path,) = (flag.split("=", 1)[1] for flag in flags if flag.startswith("-XX:ArchiveClassesAtExit="))
    return Path(path)
