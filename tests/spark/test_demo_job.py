"""The demonstration of `make spark-demo`, small: its steps give what was sent, and its plots are there."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from rocketpy.startup.cli.command_line import cli

COUNT = 2000


def test_every_step_gives_what_was_sent(commands_use_session: None, tmp_path: Path) -> None:
    target = tmp_path / "demo"
    command = ["pipeline", "demo", str(target), "--messages", str(COUNT), "--json"]
    found = CliRunner().invoke(cli, command)
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    steps = {row["step"]: row["messages"] for row in report["tables"]["steps"]}
    assert steps == dict.fromkeys(("send", "read", "stream", "archive"), COUNT)
    assert len(report["checks"]) == 5 and all(report["checks"].values())
    for name in ("throughput.png", "latency.png"):
        assert (target / name).read_bytes().startswith(b"\x89PNG")
    assert "archive" in found.stderr and json.loads((target / "report.json").read_text()) == report


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    found = CliRunner().invoke(cli, ["pipeline", "demo", str(tmp_path)])
    assert found.exit_code == 2 and "is not empty" in found.stderr and (tmp_path / "thesis.txt").exists()
