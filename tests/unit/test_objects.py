"""csrc/objects.py compiles a C file again when its source, a header, its command or the compiler has changed, and only
then."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from tests.support.rules import ROOT

COMPILER = ["cc", "-O0"]


@attrs.define(eq=False)
class Built:
    """One C file with a header, compiled."""

    objects: ModuleType
    directory: Path
    compiler: list[str] = attrs.field(factory=lambda: [*COMPILER])
    version: str = "cc 1"

    @property
    def source(self) -> Path:
        return self.directory / "one.c"

    @property
    def target(self) -> Path:
        return self.directory / "build" / "one.o"

    def compile(self) -> bool:
        """Returns: whether the compiler ran."""
        before = self.target.stat().st_ino if self.target.exists() else None
        self.objects.compile_one(self.source, self.target, self.compiler, self.version)
        return self.target.stat().st_ino != before


@pytest.fixture
def built(tmp_path: Path) -> Built:
    spec = importlib.util.spec_from_file_location("objects_under_test", ROOT / "csrc" / "objects.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "one.h").write_text("int one(void);\n")
    (tmp_path / "one.c").write_text('#include "one.h"\nint one(void) { return 1; }\n')
    found = Built(module, tmp_path)
    assert found.compile() and not found.compile()
    return found


@pytest.mark.parametrize("name", ["one.c", "one.h"])
def test_a_file_that_was_written(built: Built, name: str) -> None:
    path = built.directory / name
    path.write_text(path.read_text() + "\n")
    assert built.compile() and not built.compile()


def test_a_header_that_is_gone(built: Built) -> None:
    (built.directory / "one.h").unlink()
    built.source.write_text("int one(void) { return 1; }\n")
    assert built.compile()


def test_another_command_or_compiler(built: Built) -> None:
    built.compiler.append("-DX")
    assert built.compile() and not built.compile()
    built.version = "cc 2"
    assert built.compile() and not built.compile()


def test_a_list_of_headers_that_was_not_written(built: Built) -> None:
    """The compiler was killed while it wrote it; the object is an older one."""
    built.target.with_suffix(".d").write_text("")
    assert built.compile() and not built.compile()


def test_a_source_that_was_written_while_the_compiler_ran(built: Built) -> None:
    slow = built.directory / "slow.py"
    slow.write_text(
        f"import pathlib, subprocess, sys\nsubprocess.run(['cc', *sys.argv[1:]], check=True)\n"
        f"path = pathlib.Path({str(built.source)!r})\npath.write_text(path.read_text() + '//\\n')\n"
    )
    built.compiler = [sys.executable, str(slow)]
    assert built.compile() and built.compile()


def test_a_list_of_objects_changes_when_a_file_is_gone(built: Built) -> None:
    path = built.directory / "list"
    built.objects.write_if_changed(path, "a\nb")
    before = path.stat().st_mtime_ns
    built.objects.write_if_changed(path, "a\nb")
    assert path.stat().st_mtime_ns == before
    built.objects.write_if_changed(path, "a")
    assert path.read_text() == "a"
