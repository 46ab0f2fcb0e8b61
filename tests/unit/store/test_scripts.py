"""Every script in scripts/ prints what it says. tests/support/golden.py has the form, store_script.py the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import golden
from tests.support.store_script import StoreScript

pytestmark = pytest.mark.usefixtures("utc")
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, tmp_path: Path) -> None:
    script = StoreScript(tmp_path / "store")
    try:
        golden.check(path, script.run)
    finally:
        script.close()


def test_a_script_that_prints_something_else_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(golden.UPDATE_VARIABLE, raising=False)
    path = tmp_path / "wrong.txt"
    path.write_text("> open\n---\ntrusted: log ends at 7\n")
    script = StoreScript(tmp_path / "store")
    with pytest.raises(AssertionError, match="ROCKETPY_UPDATE_SCRIPTS"):
        golden.check(path, script.run)
    script.close()


def test_the_form() -> None:
    script = "# about\n> say a\n> say b\n---\nwrong\n\n# only words\n\n> say\n---\n"
    replayed = golden.replay(script, lambda command: command.split()[1:] or [""])
    assert replayed == "# about\n> say a\n> say b\n---\na\nb\n\n# only words\n\n> say\n---\n.\n"
    assert golden.replay(replayed, lambda command: command.split()[1:] or [""]) == replayed
    with pytest.raises(ValueError, match="lines begin with"):
        golden.replay("say\n---\n", lambda command: [])
