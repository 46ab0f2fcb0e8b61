"""Mistakes in the options of commands: one line that names the option and the remedy, before any work is done."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli

NO_LIST = "(-n, NAMESRV_ADDR): 'localhost' is no list of name servers: write host:port;host:port, as 127.0.0.1:9876\n"


@pytest.mark.parametrize("words", [["console"], ["doctor", "--client"], ["bench", "run", "latency", "--quick"]])
def test_name_servers_without_a_port(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Commands other than mqadmin ended with a traceback."""
    monkeypatch.setattr("rocketpy.logs.set_up_logging", lambda *_: None)  # of this process
    monkeypatch.setattr(logging.getLogger(), "setLevel", lambda _: None)
    done = CliRunner().invoke(cli, [*words, "-n", "localhost"])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert done.stderr.startswith("rocketpy: ") and done.stderr.endswith(NO_LIST)


@pytest.mark.parametrize("words", [["run", "latency", "--quick"], ["soak"]])
def test_a_result_that_could_not_be_written(words: list[str], tmp_path: Path) -> None:
    """Fault: This was noticed after the load, whose result was lost."""
    done = CliRunner().invoke(cli, ["bench", *words, "-o", str(tmp_path / "none" / "result.json")])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert done.stderr.startswith(f"rocketpy: {tmp_path}/none/result.json cannot be written: ")
