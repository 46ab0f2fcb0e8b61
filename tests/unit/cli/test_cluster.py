"""Clusters on one machine: which processes a directory of configurations gives, for each sample that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.cli.cluster import Member, plan
from rocketpy.config import load_broker_config
from rocketpy.errors import ConfigError

CLUSTERS = Path(__file__).parents[3] / "deploy" / "clusters"
M, S = ("ASYNC_MASTER", 0), ("SLAVE", 1)
SYNC = ("SYNC_MASTER", 0)
MODES = {
    "1m": {"broker-a": [M]},
    "2m-noslave": {"broker-a": [M], "broker-b": [M]},
    "2m-2s-async": {"broker-a": [M, S], "broker-b": [M, S]},
    "2m-2s-sync": {"broker-a": [SYNC, S], "broker-b": [SYNC, S]},
}


def planned(mode: str, store: Path, port: int | None = None, **settings: str) -> list[Member]:
    return plan(CLUSTERS / mode, store, 9876, port, settings)


def settings_of(member: Member) -> dict[str, str]:
    return dict(word.split("=", 1) for word in member.words if "=" in word)


def test_there_is_a_sample_of_each_mode() -> None:
    assert {path.name for path in CLUSTERS.iterdir()} == {*MODES, "3m-automatic"}


def test_the_files_of_three_hosts_differ_in_what_is_the_host() -> None:
    """tests/ha/test_three_hosts.py starts them."""
    files = sorted((CLUSTERS / "3m-automatic").glob("broker-*.conf"))
    members = [load_broker_config(file) for file in files]
    assert all(settings.notes == () and settings.store.is_automatic for settings in members) and len(members) == 3
    assert {settings.store.store_path_root_dir for settings in members} == {"/var/lib/rocketpy/store"}, (
        "as in the pages"
    )
    places = {(settings.broker_addr, settings.store.ha_member, settings.broker.broker_id) for settings in members}
    assert len(places) == 3
    own = ("bindAddress", "brokerIP1", "haMember ", "brokerId")
    rest = {tuple(line for line in file.read_text().splitlines() if not line.startswith(own)) for file in files}
    assert len(rest) == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_sample_has_the_brokers_of_its_mode(mode: str) -> None:
    found: dict[str, list[tuple[str, int]]] = {}
    sizes = set()
    for path in sorted((CLUSTERS / mode).glob("*.conf"), key=lambda path: path.stem):
        settings = load_broker_config(path)
        assert settings.notes == () and settings.broker.namesrv_addr == "127.0.0.1:9876"
        own = "store" if len(MODES[mode]) == 1 else path.stem  # several brokers on one machine: a directory for each
        assert settings.store.store_path_root_dir == f"/var/lib/rocketpy/{own}"
        found.setdefault(settings.broker.broker_name, []).append(
            (settings.store.broker_role.value, settings.broker.broker_id)
        )
        sizes.add(settings.store.mapped_file_size_commit_log)
    assert found == MODES[mode] and len(sizes) == 1


@pytest.mark.parametrize("mode", MODES)
def test_name_server_first_then_masters_then_slaves(mode: str, tmp_path: Path) -> None:
    name_server, *brokers = planned(mode, tmp_path)
    assert name_server.words[0] == "namesrv" and settings_of(name_server)["listenPort"] == "9876"
    assert len(brokers) == sum(map(len, MODES[mode].values()))
    assert ["SLAVE" in broker.about for broker in brokers] == sorted("SLAVE" in broker.about for broker in brokers)
    stores = {settings_of(broker)["storePathRootDir"] for broker in brokers}
    assert stores == {str(tmp_path / broker.name) for broker in brokers}


def test_ports_and_settings_may_be_given(tmp_path: Path) -> None:
    _, *brokers = planned("2m-2s-sync", tmp_path, 20_000, flushDiskType="SYNC_FLUSH")
    assert sorted(settings_of(broker)["listenPort"] for broker in brokers) == ["20000", "20010", "20020", "20030"]
    assert {settings_of(broker)["flushDiskType"] for broker in brokers} == {"SYNC_FLUSH"}
    assert all(settings_of(broker)["listenPort"] in broker.about for broker in brokers)


def test_mistakes_cost_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration files"):
        plan(tmp_path, tmp_path, 9876, None, {})
    (tmp_path / "a.conf").write_text("listenPort = 10911\nbrokerName = a\n")
    (tmp_path / "b.conf").write_text("listenPort = 10912\nbrokerName = b\n")
    with pytest.raises(ConfigError, match=r"b\.conf and .*a\.conf both need port 1091[02]"):
        plan(tmp_path, tmp_path, 9876, None, {})
    (tmp_path / "b.conf").write_text("listenport = 10920\n")
    with pytest.raises(ConfigError, match="listenPort"):
        plan(tmp_path, tmp_path, 9876, None, {})
