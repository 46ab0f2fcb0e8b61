"""The findings of `rocketpy doctor` about the machine: open files, disks, queues, ports; and about name servers."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.cli import doctor
from rocketpy.config import BrokerSettings, load_broker_config, load_namesrv_config
from rocketpy.file_systems import NO_JOURNAL
from rocketpy.store.control_block import ControlBlock


def broker(tmp_path: Path, **properties: str) -> BrokerSettings:
    return load_broker_config(
        None, {"storePathRootDir": str(tmp_path / "store"), **properties}, {"HOME": str(tmp_path)}
    )


# --- queues -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "mappings", "wanted"),
    [
        (0, 65_530, None),
        (49_146, 65_530, None),
        (49_147, 65_530, 262_144),
        (196_608, 65_530, 262_144),
        (196_608, 262_144, None),
        (196_609, 262_144, 262_148),
        (1_048_576, 262_144, 349_528),
        (1_048_576, 349_528, None),
    ],
)
def test_more_queues_than_the_kernel_maps_pages_of(count: int, mappings: int, wanted: int | None) -> None:
    found = doctor.mapped_queues(count, mappings)
    assert f"{count}; " in found.found and f"vm.max_map_count={mappings}" in found.found and not found.is_fatal
    assert found.remedy.partition(",")[0] == (f"sysctl vm.max_map_count={wanted}" if wanted else "")


def test_the_queues_of_a_store(tmp_path: Path) -> None:
    assert list(doctor.queue_findings(tmp_path)) == [], "no broker of rocketpy has served it"
    control = ControlBlock(tmp_path / "control", 1 << 30)
    for queue_id in range(5):
        control.add_queue(b"Orders", queue_id)
    control.close()
    limit = tmp_path / "max_map_count"
    limit.write_text("8\n")
    (found,) = doctor.queue_findings(tmp_path, limit)
    assert not found.remedy
    limit.write_text("4\n")
    (found,) = doctor.queue_findings(tmp_path, limit)
    assert found.found.startswith("5; the broker maps pages of 3 ") and found.remedy
    assert list(doctor.queue_findings(tmp_path, tmp_path / "none")) == [], "a kernel without this limit"


# --- name servers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "count"),
    [
        ({}, 1),
        ({"namesrvAddr": "a:1"}, 0),
        ({"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": "a:1"}, 0),
    ],
)
def test_a_broker_without_name_servers_would_not_start(
    properties: dict[str, str], count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fault: All was fine with such a file, and the next start failed."""
    doctor.examine(tmp_path, broker(tmp_path, **properties))
    assert capsys.readouterr().out.count("namesrvAddr") == count


# --- open files -------------------------------------------------------------------------------------------------------


def test_the_hard_limit_of_open_files_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: The doctor asked for a higher soft limit, which servers raise to the hard limit by themselves."""

    def remedy(soft: int, hard: int) -> str:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        return doctor._open_files().remedy

    assert remedy(1024, 524_288) == remedy(1024, resource.RLIM_INFINITY) == ""
    assert "20000" in remedy(1024, 4096)


# --- disks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def xfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "file_system_of", lambda _: "xfs")


@pytest.mark.usefixtures("xfs")
def test_the_size_of_the_files_of_the_log_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: The doctor asked for room for log files of 1 GiB, whatever the size in the file of the broker."""
    usage = type("Usage", (), {"free": 1 << 30})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    (found,) = doctor._disks(tmp_path, broker(tmp_path, mappedFileSizeCommitLog="268435456"))
    assert found.subject == "store" and not found.remedy
    (found,) = doctor._disks(tmp_path, broker(tmp_path))
    assert found.remedy.startswith("two CommitLog files of 1024 MiB")
    (found,) = doctor._disks(tmp_path, None)
    assert found.remedy.startswith("two CommitLog files of 1024 MiB")


@pytest.mark.parametrize(("kind", "remedy"), [("xfs", ""), ("btrfs", "ext4 or xfs"), (NO_JOURNAL, "journal")])
def test_file_systems_that_a_store_should_not_be_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "file_system_of", lambda _: kind)
    found = doctor._disk("store", tmp_path, "--store", 0)
    assert found.found.endswith(f"({kind})") and not found.is_fatal
    assert remedy in found.remedy and bool(remedy) == bool(found.remedy)


@pytest.mark.usefixtures("xfs")
def test_a_log_on_a_disk_of_its_own_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: The doctor did not look at the disk that storePathCommitLog names."""
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 30}))
    store, log = doctor._disks(tmp_path, broker(tmp_path, storePathCommitLog=str(tmp_path / "log" / "commitlog")))
    assert (store.subject, store.remedy) == ("store", "")
    assert log.subject == "log" and str(tmp_path / "log") in log.found and log.remedy


def test_a_directory_that_this_user_may_not_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: For a user who may not enter the directory of the store, the doctor ended with a traceback."""

    def stat(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    (found,) = doctor._disks(tmp_path / "store", None)
    assert found.is_fatal and found.found == f"{tmp_path} is not writable"


# --- ports ------------------------------------------------------------------------------------------------------------


def test_each_port_is_tried_at_the_address_where_it_is_opened(tmp_path: Path) -> None:
    """Fault: The doctor tried the port of metrics at bindAddress, and a broker of IPv6 at 127.0.0.1."""
    settings = broker(tmp_path, bindAddress="fd00::5", metricsPort="5600")
    namesrv = load_namesrv_config(None, {"bindAddress": "10.0.0.1", "metricsPort": "5601"}, {"HOME": str(tmp_path)})
    assert list(doctor._ports(settings, namesrv)) == [
        ("fd00::5", 10911, "broker"),
        ("fd00::5", 10909, "broker, VIP channel"),
        ("fd00::5", 10912, "broker, replication"),
        ("127.0.0.1", 5600, "metrics"),
        ("10.0.0.1", 9876, "name server"),
        ("127.0.0.1", 5601, "metrics"),
    ]
    assert {port for _, port, _ in doctor._ports(broker(tmp_path), None)} == {10911, 10909, 10912}
    assert {port for _, port, _ in doctor._ports(None, None)} == set(doctor.PORTS)


def test_ports_that_cannot_be_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "fine if your server is running" in doctor._port("127.0.0.1", port, "broker").remedy
    assert doctor._port("127.0.0.1", port, "broker").found == "broker: free at 127.0.0.1"
    for address, use, key in (("203.0.113.7", "broker", "bindAddress"), ("2001:db8::7", doctor.METRICS, "metricsHost")):
        found = doctor._port(address, port, use)
        assert found.is_fatal and address in found.found and found.remedy == f"correct {key} or the port"
