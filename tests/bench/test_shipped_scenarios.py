"""Each scenario file that rocketpy ships runs: small, without errors, and with the figures that it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.bench import scenario
from tests.support import preloaded

RATE = {"messages_per_s", "send_p99_us", "broker_cpu_us", "broker_pss_mib"}
READ = {"reads_per_s", "read_p99_us"}
DISK = {"disk_bytes_per_byte", "disk_bytes_per_read", "disk_waits_per_read", "cached_share", "raw_reads_per_s"}
FIGURES = {
    "access-control": RATE,
    "backlog": {*RATE, "consumed_per_s", "drain_s"},
    "batches": {*RATE, "end_to_end_p99_us"},
    "cold-backlog": {*DISK, "consumed_per_s", "drain_s"},
    "cold-reads": {*READ, *DISK},
    "connections": {*RATE, "heartbeat_p99_us"},
    "delays": {*RATE, "end_to_end_p99_us"},
    "filters": {"consumed_per_s", "passed_per_s", "drain_s", "broker_cpu_us"},
    "latency": {*RATE, "end_to_end_p999_us"},
    "queues": RATE,
    "ramp": {*RATE, "end_to_end_p99_us"},
    "random-reads": READ,
    "recovery": {*RATE, "recovery_s"},
    "replicated": RATE,
    "sizes": RATE,
    "soak": {*RATE, "consumed_per_s"},
    "sync-flush": RATE,
    "throughput": RATE,
    "tls": {*RATE, "end_to_end_p99_us"},
    "transactions": {*RATE, "consumed_per_s"},
}


def run(directory: Path, name: str) -> dict[str, Any]:
    """Run a scenario; return the figures of its last point."""
    out = directory / "out.json"
    words = [*preloaded.COMMAND, "bench", "run", name, "--quick", "--store", str(directory), "-o", str(out)]
    done = preloaded.run(words, timeout=180)
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(out.read_text())["points"]
    assert point["name"] == scenario.read(name)[-1].name
    (found,) = point["runs"]
    assert found["errors"] == {}
    figures: dict[str, Any] = found["figures"]
    return figures


@pytest.mark.parametrize("name", scenario.shipped())
def test_a_shipped_scenario_runs(name: str, tmp_path: Path) -> None:
    figures = run(tmp_path, name)
    assert figures.keys() >= FIGURES[name]
    positive = {key for key in figures if key.endswith(("_per_s", "_p50_us"))} - {"raw_reads_per_s"}  # tmpfs: none
    assert all(figures[key] > 0 for key in positive)
    if name == "filters":
        assert figures["consumed_per_s"] == pytest.approx(figures["passed_per_s"] / 10, rel=0.1)
    if name.startswith("cold-"):
        assert 0 <= figures["cached_share"] <= 1


def test_each_shipped_scenario_has_its_figures() -> None:
    assert FIGURES.keys() == scenario.shipped().keys()
