"""Access to the extension: the error when it is missing, and the names of its return codes."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import rocketpy
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message import sys_flag
from rocketpy.native import Status

INSTALLED = Path(rocketpy.__file__).parents[1]
CHECKOUT = Path(__file__).parents[3]


def without_core(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in an interpreter that cannot find the extension."""
    hide = "import sys; sys.modules['rocketpy.native._rocketpy'] = None\n"
    environment = {"PYTHONPATH": str(INSTALLED)}
    return subprocess.run(
        [sys.executable, "-c", hide + code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_core_is_absent_from_make_test_python_alone() -> None:
    """Else that target would test this checkout, with its extension, and show nothing."""
    is_without = os.environ.get("ROCKETPY_WITHOUT_CORE") == "1"
    assert (importlib.util.find_spec("rocketpy.native._rocketpy") is None) == is_without
    assert (INSTALLED != CHECKOUT) == is_without


def test_a_missing_core_is_named_with_the_remedy() -> None:
    result = without_core("from rocketpy.native import require_core\nrequire_core()")
    assert result.returncode != 0
    last_line = result.stderr.strip().splitlines()[-1]
    assert "NativeMissing: the compiled core is missing" in last_line
    assert "setup.py build_ext --inplace" in last_line


def test_a_missing_core_is_an_import_error() -> None:
    result = without_core("try:\n    import rocketpy.native.core\nexcept ImportError:\n    print('not there')")
    assert result.stdout == "not there\n", result.stderr


def test_client_and_admin_tool_do_without_the_core() -> None:
    result = without_core("import rocketpy.client.sync, rocketpy.admin.cli\nprint('here')")
    assert result.stdout == "here\n", result.stderr


def test_status_numbers_are_those_of_the_header() -> None:
    core = pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    assert {member.name: member.value for member in Status} == {
        name.removeprefix("RP_"): value for value, name in core.ffi.typeof("rp_status").elements.items()
    }


@pytest.mark.parametrize(
    ("c_type", "prefix", "codes"),
    [
        ("rp_request_code", "RP_CODE_", RequestCode.__members__),
        ("rp_response_code", "RP_RESPONSE_", ResponseCode.__members__),
        ("rp_sys_flag", "RP_SYS_FLAG_", vars(sys_flag)),
    ],
)
def test_numbers_of_the_protocol_are_those_of_python(c_type: str, prefix: str, codes: Mapping[str, object]) -> None:
    core = pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    named = {name.removeprefix(prefix): value for value, name in core.ffi.typeof(c_type).elements.items()}
    assert named and named == {name: codes.get(name) for name in named}


def test_client_and_admin_tool_do_without_what_windows_lacks(tmp_path: Path) -> None:
    result = without_core(
        "import asyncio, click, os, rich.table, socket, ssl, trio\n"
        "sys.platform = 'win32'\n"
        "for name in ('fcntl', 'termios', 'resource', 'pwd', 'grp'): sys.modules[name] = None\n"
        "for name in ('O_DIRECTORY', 'fchmod', 'geteuid', 'getuid', 'fork'): delattr(os, name)\n"
        "import rocketpy.client.sync, rocketpy.admin.cli\n"
        "from pathlib import Path\n"
        "from rocketpy.atomic_file import write_atomically\n"
        f"write_atomically(Path({str(tmp_path / 'offsets.json')!r}), b'here', mode=0o600)\n"
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "offsets.json").read_bytes() == b"here"


def test_without_linux_servers_say_that_they_need_it() -> None:
    result = without_core("sys.platform = 'darwin'\nfrom rocketpy.native import require_core\nrequire_core()")
    assert "which needs Linux, and this is darwin" in result.stderr.strip().splitlines()[-1]
