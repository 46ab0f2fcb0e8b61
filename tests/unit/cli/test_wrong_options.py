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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--address", "h:1"], "--address is of NATS or Kafka: give --target, or name brokers by -n"),
        (["--target", "nats", "-n", "h:1"], "-n is of RocketMQ: --address HOST:PORT names a server of nats"),
        (
            ["--store", "/", "-n", "h:1"],
            "--store is for servers that are started here: leave it out, or -n and --address",
        ),
        (["--set", "k=v", "-n", "h:1"], "leave it out, or --set and these keys of the scenario: broker"),
    ],
)
def test_options_of_bench_without_effect(words: list[str], message: str) -> None:
    """Fault: The first three of these options were ignored: another broker than the one meant was measured."""
    done = CliRunner().invoke(cli, ["bench", "run", "latency", "--quick", *words])
    assert done.exit_code == 2 and message in done.stderr
