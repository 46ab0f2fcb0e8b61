"""The properties of failover reach the rules and the client for etcd."""

from __future__ import annotations

import importlib.util
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rocketpy.config import BrokerSettings, load_broker_config
from rocketpy.errors import ConfigError
from rocketpy.failover.etcd.access import access
from rocketpy.failover.rules.records import GroupConfig
from rocketpy.processes.boot import member
from rocketpy.processes.boot.sockets import Sockets
from rocketpy.processes.member import coordinator_main, require_client
from rocketpy.processes.member.coordinator_main import member_settings, place
from rocketpy.processes.member.guardian import Child
from rocketpy.processes.member.replaced_master import ReplacedMaster
from rocketpy.processes.member.tree import MemberMemory, Parked, Role
from rocketpy.tls import Certificates
from tests.support.certificates import Authority

MEMBER = {
    "haMode": "automatic",
    "haEtcdAddresses": "http://one:2379,http://two:2379",
    "haMember": "b",
    "haMembers": "a,b",
    "brokerRole": "SYNC_MASTER",
    "brokerId": "2",
    "brokerIP1": "10.0.0.2",
    "brokerIP2": "10.1.0.2",
}


def load(**changes: str) -> BrokerSettings:
    return load_broker_config(None, MEMBER | changes, {"HOME": "/nowhere"})


def test_the_rules_get_what_is_configured() -> None:
    changes = {"haLeaseSeconds": "9", "haServeWithoutLease": "false", "haMaxTimeSlaveNotCatchup": "1500"}
    changes |= {"haUnhealthySeconds": "8", "haEtcdCompactHours": "2"}
    found = member_settings(load(**changes, mappedFileSizeCommitLog="104857600", minInSyncReplicas="2"))
    assert found.config == GroupConfig(
        format=1, mode="sync", file_size=104_857_600, members=("a", "b"), in_sync_min=2, flush="ASYNC_FLUSH"
    )
    assert member_settings(load(flushDiskType="SYNC_FLUSH")).config.flush == "SYNC_FLUSH"
    assert (found.member, found.lease_s, found.keep_up_s, found.without_lease) == ("b", 9, 1.5, False)
    assert found.keep_history_s == 7200 and member_settings(load()).keep_history_s == 86_400
    assert found.fault_s == 8 and member_settings(load()).fault_s == 5
    assert not found.may_store(1) and found.may_store(2)
    asynchronous = member_settings(load(brokerRole="ASYNC_MASTER", minInSyncReplicas="2"))
    assert asynchronous.config.mode == "async" and asynchronous.may_store(1)
    where = place(load())
    assert (where.address, where.ha_address, where.broker_id) == ("10.0.0.2:10911", "10.1.0.2:10912", 2)


def test_etcd_is_reached_as_configured(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("a b#\nnot this\n")
    found = access(load(haEtcdUser="broker", haEtcdPasswordFile=str(file)).store)
    assert (found.addresses, found.user, found.password) == (("http://one:2379", "http://two:2379"), "broker", "a b#")
    assert found.tls is None and "a b#" not in repr(found)


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b"\n", "no password"), (b"\xff", "not UTF-8")])
def test_a_password_that_cannot_be_read(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=why) as caught:
        access(load(haEtcdUser="broker", haEtcdPasswordFile=str(file)).store)
    assert caught.value.key == "haEtcdPasswordFile"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_certificates(tmp_path: Path) -> None:
    cert, key, wrong = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "wrong.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=etcd -keyout {key} -out {cert}"
    subprocess.run(words.split(), check=True, capture_output=True, timeout=60)
    wrong.write_text("no certificate")
    https = {"haEtcdAddresses": "https://one:2379"}
    by_system = access(load(**https).store).tls
    assert by_system is not None and by_system.verify_mode is ssl.CERT_REQUIRED and by_system.check_hostname
    own = access(load(**https, haEtcdCaFile=str(cert), haEtcdCertFile=str(cert), haEtcdKeyFile=str(key)).store).tls
    assert own is not None and own.check_hostname and own.verify_mode is ssl.CERT_REQUIRED
    assert [dict(pair[0] for pair in one["subject"]) for one in own.get_ca_certs()] == [{"commonName": "etcd"}]
    for name, files in (
        ("haEtcdCaFile", {"haEtcdCaFile": str(wrong)}),
        ("haEtcdCaFile", {"haEtcdCaFile": str(tmp_path / "none")}),
        ("haEtcdCertFile", {"haEtcdCertFile": str(cert), "haEtcdKeyFile": str(wrong)}),
    ):
        with pytest.raises(ConfigError, match="cannot use") as caught:
            access(load(**https, **files).store)
        assert caught.value.key == name


@pytest.mark.parametrize("uses_tls", [True, False])
def test_a_coordinator_that_starts_again_has_the_certificates_of_the_guardian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uses_tls: bool
) -> None:
    """Fault: Each start of a coordinator loaded the certificates anew, and failed if their files had gone."""
    authority = Authority(tmp_path / "certificates")
    own = {"storePathRootDir": str(tmp_path), "haUseTLS": str(uses_tls).lower(), "useTLS": "true"}
    settings = load(**own, **authority.trusting(), **{"tls.config.file": "/dev/null"})
    certificates = Certificates.of_client(settings.tls)
    authority.ca_file.unlink()
    used: list[Certificates | None] = []
    parked = Parked()

    class Guardian:
        def __init__(self, memory: MemberMemory, coordinator: Child, *others: object) -> None:
            self.run = lambda: coordinator.main(Role())

    def run_coordinator(settings: BrokerSettings, memory: MemberMemory, bell: int, calls: Certificates | None) -> int:
        used.append(ReplacedMaster.of(settings, memory.block, lambda: None, calls).calls)
        os.close(bell)
        return 0

    monkeypatch.setattr(member, "Guardian", Guardian)
    monkeypatch.setattr(member, "Parked", lambda: parked)
    monkeypatch.setattr(member, "share_memory", lambda: None)
    monkeypatch.setattr(coordinator_main, "run_coordinator", run_coordinator)
    unused: Any = None
    assert member.run_member(settings, Sockets((), None, None), unused, lambda: None, unused, certificates) == 0
    assert used == [certificates if uses_tls else None]
    parked.into.close()
    parked.out.close()


def test_the_client_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'rocketpy-mq\[failover\]'"):
        require_client()
