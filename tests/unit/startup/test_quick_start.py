"""Code of classes is kept and found again, and whatever may be wrong with the file costs nothing but time."""

from __future__ import annotations

import ctypes.util
import gc
import importlib.util
import marshal
from pathlib import Path

import attr._make
import attrs
import pytest

from rocketpy.startup.quick_start import ClassCode, quick_start

SOURCE = "def twice(n):\n    return 2 * n\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    return tmp_path / "cache" / "classes.marshal"


def run(code: ClassCode) -> int:
    names: dict[str, object] = {}
    exec(code.compile(SOURCE, "<twice>", "exec"), names)
    return names["twice"](21)  # type: ignore[operator,no-any-return]  # just defined


def test_code_is_found_by_its_text(path: Path) -> None:
    first = ClassCode(path)
    assert run(first) == 42
    first.save()
    known = marshal.loads(path.read_bytes()[len(importlib.util.MAGIC_NUMBER) :])
    assert list(known) == [("<twice>", SOURCE)]
    known["<twice>", SOURCE] = compile(SOURCE.replace("2", "3"), "<twice>", "exec")  # to see where it comes from
    path.write_bytes(importlib.util.MAGIC_NUMBER + marshal.dumps(known))
    assert run(ClassCode(path)) == 63


@pytest.mark.parametrize("content", [b"", b"old!", importlib.util.MAGIC_NUMBER, importlib.util.MAGIC_NUMBER + b"\xff"])
def test_a_file_that_is_of_no_use_is_made_anew(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    code = ClassCode(path)
    assert run(code) == 42
    code.save()
    assert run(ClassCode(path)) == 42 and path.stat().st_size > 50


def test_nothing_is_written_where_python_may_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    code = ClassCode(path)
    run(code)
    code.save()
    assert not path.exists()


def test_everything_is_as_before_afterwards(path: Path) -> None:
    find_library = ctypes.util.find_library
    with quick_start(path) as code:
        assert not gc.isenabled() and ctypes.util.find_library("pthread") is None

        @attrs.frozen
        class Point:
            x: int

        assert Point(1) == Point(1) and Point(1) != Point(2)
    assert gc.isenabled() and ctypes.util.find_library is find_library and "compile" not in vars(attr._make)
    assert path.exists() and code.compile("1", "", "eval")
