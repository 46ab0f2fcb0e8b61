"""The demonstration of `make spark-demo`, small: its steps give what was sent, and its plots are there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.spark.jobs.demo import BUCKET_MS, mean_of, stored_rates

COUNT = 2000
STOPPED_S = 120.0


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


def test_the_plot_agrees_with_the_table() -> None:
    """Fault: The plot began at the first message, so its rates were higher than those of the table."""
    begin_ms, seconds = 1_000_100, 2.0
    counts = {5001: 300, 5003: 500, 5007: 200}  # nothing was stored in the first and the last parts of the step
    points = stored_rates(counts, begin_ms, seconds)
    assert points[0] == (0.0, 0.0) and points[-1][0] == pytest.approx(1.9)
    mean = mean_of({"messages_per_second": 500, "seconds": seconds})
    assert mean == {"the table's 500/s": [(0.0, 500), (2.0, 500)]}
    assert sum(rate for _, rate in points) * BUCKET_MS / 1000 / seconds == pytest.approx(500)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_too(tmp_path: Path, number: signal.Signals) -> None:
    """The demonstration is in the middle of its first step; it would send ten million messages."""
    words = [sys.executable, "-m", "rocketpy", "pipeline", "demo", "--messages", "10000000", str(tmp_path / "demo")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    try:
        assert process.stdout is not None
        assert any(line.startswith(b"broker") for line in process.stdout), (tmp_path / "log").read_text()
        assert processes_of(tmp_path / "demo/store")
        process.send_signal(number)
        assert process.wait(STOPPED_S) == 2
        assert processes_of(tmp_path / "demo/store") == []
    finally:
        if process.stdout is not None:
            process.stdout.close()
        for pid in [process.pid, *processes_of(tmp_path / "demo/store")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def processes_of(store: Path) -> list[int]:
    """The processes whose command line names this store: the supervisor of its broker and the workers."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(store).encode() in (directory / "cmdline").read_bytes():
                found.append(int(directory.name))
    return found


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    found = CliRunner().invoke(cli, ["pipeline", "demo", str(tmp_path)])
    assert found.exit_code == 2 and "is not empty" in found.stderr and (tmp_path / "thesis.txt").exists()
