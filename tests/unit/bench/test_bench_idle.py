"""bench.idle: figures of processes add up to those that the bars are for, and its settings are those of a broker."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from bench.idle import CPU_BAR, PSS_BAR, Figures, bars, everything, total
from rocketpy.acl.credentials import read_credentials
from rocketpy.bench import proc
from rocketpy.config import load_broker_config


@pytest.mark.parametrize(("cpu", "pss", "holds"), [(0.2, 30.0, [True, True]), (0.3, 20.0, [False, True])])
def test_processes_are_judged_together(cpu: float, pss: float, holds: list[bool]) -> None:
    figures = total({"manager": Figures(cpu, 1.5, pss), "store": Figures(CPU_BAR - 0.2, 2.0, PSS_BAR / 2)})
    assert figures.wakes_per_s == 3.5 and figures.cells[1] == "3.50"
    assert [row.holds for row in bars(figures)] == holds


def test_everything_is_on(tmp_path: Path) -> None:
    settings = load_broker_config(None, everything(tmp_path, 5557), {"HOME": str(tmp_path)})
    assert settings.tls.is_served and settings.broker.acl_enable and settings.rocketpy.metrics_port == 5557
    assert len(settings.rocketpy.shown_names) == 4
    assert read_credentials(tmp_path / "credentials.yml").access_key == "bench-broker"


def test_wake_ups_and_cpu_of_a_process_are_counted() -> None:
    """Each wait of a thread for another one is a wake-up; a thread that has ended keeps its CPU."""
    pid = os.getpid()
    wakes, cpu_s = proc.wakes(pid), proc.own_cpu_s(pid)
    rounds = 20
    barrier = threading.Barrier(2)

    def meet() -> None:
        for _ in range(rounds):
            barrier.wait()

    thread = threading.Thread(target=meet)
    thread.start()
    meet()
    woken = proc.wakes(pid)
    thread.join()
    assert woken > wakes and proc.own_cpu_s(pid) > cpu_s
    assert proc.wakes(2**22 + 1) == 0
