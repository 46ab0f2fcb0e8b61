"""The load driver gets the name that counts as built only when it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from cffi import FFI

from bench import driver
from bench.driver import build_driver

COMPLETE = b"complete"


def compile_half(_self: FFI, tmpdir: str) -> str:
    """Like a compiler that is killed."""
    (Path(tmpdir) / "_driver.abi3.so").write_bytes(COMPLETE[:4])
    raise KeyboardInterrupt


def compile_whole(_self: FFI, tmpdir: str) -> str:
    path = Path(tmpdir) / "_driver.abi3.so"
    path.write_bytes(COMPLETE)
    return str(path)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "load.h").write_text("int load(void);\n")
    monkeypatch.setattr(build_driver, "HERE", tmp_path)
    return tmp_path


def test_a_build_that_is_killed_leaves_nothing(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FFI, "compile", compile_half)
    with pytest.raises(KeyboardInterrupt):
        build_driver.build()
    assert driver.is_stale(sources) and [path.name for path in sources.iterdir()] == ["load.h"]


def test_a_complete_build_has_its_name(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FFI, "compile", compile_whole)
    built = build_driver.build()
    assert built.parent == sources and built.read_bytes() == COMPLETE and not driver.is_stale(sources)
    assert {path.name for path in sources.iterdir()} == {"load.h", built.name}
