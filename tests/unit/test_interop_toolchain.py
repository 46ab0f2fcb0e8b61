"""Programs of the interop tests get the name that counts as built only when they are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import toolchain


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
