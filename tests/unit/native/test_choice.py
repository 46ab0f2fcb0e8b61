"""Which twin is taken, and what is said when it cannot be."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rocketpy.errors import ConfigError
from rocketpy.native import choose
from rocketpy.native.abc import Status

REPOSITORY = Path(__file__).parents[3]


def without_core(code: str, wish: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in an interpreter that cannot find the extension."""
    hide = "import sys; sys.modules['rocketpy.native._rocketpy'] = None\n"
    environment = {"ROCKETPY_NATIVE": wish, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", hide + code], env=environment, capture_output=True, text=True, check=False
    )


def test_python_is_taken_when_asked_for() -> None:
    assert choose("python").NAME == "python"


def test_auto_takes_the_core_where_it_is_built() -> None:
    is_built = importlib.util.find_spec("rocketpy.native._rocketpy") is not None
    name = choose("auto").NAME
    assert name == ("c" if is_built else "python")


def test_unknown_wish_is_named() -> None:
    with pytest.raises(ConfigError, match="'fast' is none of auto, c, python"):
        choose("fast")


def test_insisting_on_a_missing_core_fails_with_the_remedy() -> None:
    result = without_core("import rocketpy.native", "c")
    assert result.returncode != 0
    last_line = result.stderr.strip().splitlines()[-1]
    assert "NativeMissing: the compiled core is missing" in last_line
    assert "setup.py build_ext --inplace" in last_line


def test_the_broker_can_ask_for_the_core_when_the_twins_are_python() -> None:
    code = """
from rocketpy.errors import NativeMissing
from rocketpy.native import native, require_core
try:
    require_core()
except NativeMissing as exc:
    print(native.NAME, exc)
"""
    result = without_core(code, "python")
    assert result.stdout.startswith("python the compiled core is missing"), result.stderr


def test_status_numbers_are_those_of_the_header(core: ModuleType) -> None:
    assert {member.name: member.value for member in Status} == {
        name.removeprefix("RP_"): value for value, name in core.ffi.typeof("rp_status").elements.items()
    }
