"""The load driver is built once by the processes that want it at the same time."""

from __future__ import annotations

import importlib
import threading
import time
from pathlib import Path

import pytest

import bench.driver
from bench.driver import build_driver, load_driver


def test_only_one_of_four_builds_and_none_loads_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build_driver.py").touch()
    (tmp_path / "load.c").touch()
    built = tmp_path / "_driver.cpython.so"
    builds = []
    seen: list[bytes] = []

    def build() -> Path:
        builds.append(built)
        built.write_bytes(b"half")
        time.sleep(0.05)
        built.write_bytes(b"the whole extension")
        return built

    monkeypatch.setattr(bench.driver, "HERE", tmp_path)
    monkeypatch.setattr(build_driver, "build", build)
    monkeypatch.setattr(importlib, "import_module", lambda name: seen.append(built.read_bytes()))
    threads = [threading.Thread(target=load_driver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(builds) == 1
    assert seen == [b"the whole extension"] * 4
