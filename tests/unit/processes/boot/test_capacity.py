"""The defaults of connectionsMax and selectorWorkersMax."""

import resource
from pathlib import Path

import pytest

from rocketpy.config import Machine, NamesrvSettings, load_broker_config
from rocketpy.processes.boot import capacity, namesrv
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
    assert capacity.connections_max(descriptors, memory, selectors) == expected


@pytest.mark.parametrize(
    ("descriptors", "memory", "at_start", "expected"),
    [
        (1 << 20, 24 * GIB, 1, 1),  # one selector has them all
        (65_536, 24 * GIB, 1, 1),  # the LimitNOFILE of the units
        (20_000, 24 * GIB, 1, 4),  # 4 of 19 800
        (20_000, 24 * GIB, 4, 4),
        (20_000, 2 * GIB, 1, 2),  # memory for 32 768
        (1_024, 24 * GIB, 2, 6),  # no more than a few
        (1_024, 24 * GIB, 64, 64),
    ],
)
def test_as_many_selectors_as_open_files_of_one_process_ask_for(
    descriptors: int, memory: int, at_start: int, expected: int
) -> None:
    """Fault: A broker that might open 20 000 files refused the connections beyond, until selectorWorkers was raised."""
    assert capacity.selectors_max(descriptors, memory, at_start) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (4, 19_800)),
        ({"selectorWorkersMax": "2"}, (2, 19_800)),
        ({"connectionsMax": "300"}, (1, 300)),  # the operator wants no more
        ({"connectionsMax": "300", "selectorWorkers": "2"}, (2, 300)),
        ({"connectionsMax": "100000", "selectorWorkersMax": "3"}, (3, 19_800)),
    ],
)
def test_settings_have_the_numbers_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: tuple[int, int]
) -> None:
    monkeypatch.setattr(capacity, "raise_descriptor_limit", lambda: 20_000)
    monkeypatch.setattr(capacity, "memory_bytes", lambda: 24 * GIB)
    machine = Machine(2, "host", lambda: "127.0.0.1")
    settings = load_broker_config(None, {"storePathRootDir": "/", **given}, machine=machine)
    own = capacity.with_capacity(settings).rocketpy
    assert (own.selector_workers_max, own.connections_max) == expected


def test_the_limit_of_open_files_goes_up_as_far_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
        assert capacity.raise_descriptor_limit() >= min(soft, 1000)
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
    monkeypatch.setattr(capacity, "CGROUP_LIMIT", limit)
    whole = capacity.memory_bytes()
    limit.write_text("4096\n")
    assert whole > 4096 == capacity.memory_bytes()
