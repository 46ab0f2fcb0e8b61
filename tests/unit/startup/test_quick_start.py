"""Code of classes is kept and found again, and whatever may be wrong with the file costs nothing but time."""

from __future__ import annotations

import ctypes.util
import gc
import hashlib
import importlib.util
import marshal
from pathlib import Path

import attr._make
import attrs
import pytest

from rocketpy.startup.boot.quick_start import DATA_AT, ClassCode, quick_start

SOURCE = "def twice(n):\n    return 2 * n\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    return tmp_path / "cache" / "classes.marshal"


def content(known: dict[bytes, bytes]) -> bytes:
    data = marshal.dumps(known)
    return importlib.util.MAGIC_NUMBER + hashlib.sha256(data).digest() + data


def run(code: ClassCode) -> int:
    names: dict[str, object] = {}
    exec(code.compile(SOURCE, "<twice>", "exec"), names)
    return names["twice"](21)  # type: ignore[operator,no-any-return]  # just defined


def test_code_is_found_by_its_text(path: Path) -> None:
    first = ClassCode(path)
    assert run(first) == 42
    first.save()
    [(key, data)] = marshal.loads(path.read_bytes()[DATA_AT:]).items()
    other = compile(SOURCE.replace("2", "3"), "<twice>", "exec")  # to see where it comes from
    path.write_bytes(content({key: marshal.dumps(other)}))
    assert run(ClassCode(path)) == 63 and data


def test_a_damaged_byte_makes_it_of_no_use(path: Path) -> None:
    code = ClassCode(path)
    run(code)
    code.save()
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x41,)) + whole[at + 1 :])
        assert run(ClassCode(path)) == 42
        path.write_bytes(whole[:at])
        assert run(ClassCode(path)) == 42


def test_the_salt_of_a_hash_makes_no_difference(path: Path) -> None:
    source = "def __hash__(self):\n        return hash((\n                {},\n                self.x\n))\n"
    code = ClassCode(path)
    first = code.compile(source.format(-3772029110603105851), "<attrs>", "exec")
    code.save()
    again = ClassCode(path)
    assert again.compile(source.format(5303761560935660020), "<attrs>", "exec") == first
    size = path.stat().st_size
    again.save()
    assert path.stat().st_size == size


@pytest.mark.parametrize("found", [b"", b"old!", importlib.util.MAGIC_NUMBER, importlib.util.MAGIC_NUMBER + b"\xff"])
def test_a_file_that_is_of_no_use_is_made_anew(path: Path, found: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(found)
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
    find_library, thresholds = ctypes.util.find_library, gc.get_threshold()
    with quick_start(path) as code:
        assert gc.get_threshold() != thresholds and ctypes.util.find_library("pthread") is None

        @attrs.frozen
        class Point:
            x: int

        assert Point(1) == Point(1) and Point(1) != Point(2)
    assert gc.get_threshold() == thresholds and ctypes.util.find_library is find_library
    assert "compile" not in vars(attr._make)
    assert path.exists() and code.compile("1", "", "eval")
