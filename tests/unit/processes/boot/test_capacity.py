"""The default of connectionsMax."""

import resource
from pathlib import Path

import pytest

from rocketpy.config import NamesrvSettings
from rocketpy.processes.boot import namesrv, sockets
from rocketpy.processes.boot.service_manager import ServiceManager

GIB = 1 << 30


@pytest.mark.parametrize(
    ("descriptors", "memory", "selectors", "expected"),
    [
        (20_000, 24 * GIB, 1, 19_800),  # open files are the limit
        (1 << 20, 4 * GIB, 1, 65_536),  # memory is
        (1 << 20, 4 * GIB, 4, 16_384),
        (1 << 30, 1 << 50, 1, 1_000_000),  # what a selector has slots for
        (100, 1 << 20, 1, 1),
    ],
)
def test_the_least_of_open_files_memory_and_slots(descriptors: int, memory: int, selectors: int, expected: int) -> None:
    """Fault: Above 10 000 connections a selector closed new ones silently."""
    assert sockets.connections_max(descriptors, memory, selectors) == expected


def test_the_limit_of_open_files_goes_up_as_far_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
        assert sockets.raise_descriptor_limit() >= min(soft, 1000)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_name_server_of_its_own_raises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a shell with 1024 it would be full with 960 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = []
    monkeypatch.setattr(namesrv, "run_namesrv", lambda *_: found.append(resource.getrlimit(resource.RLIMIT_NOFILE)))
    monkeypatch.setattr(namesrv, "set_up_logging", lambda *_: None)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
        namesrv.run_name_server(NamesrvSettings(), ServiceManager())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [(hard, hard)]


@pytest.mark.parametrize("text", ["max\n", "", None])
def test_without_a_limit_of_a_control_group_the_machine_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    limit = tmp_path / "memory.max"
    if text is not None:
        limit.write_text(text)
    monkeypatch.setattr(sockets, "CGROUP_LIMIT", limit)
    whole = sockets.memory_bytes()
    limit.write_text("4096\n")
    assert whole > 4096 == sockets.memory_bytes()
