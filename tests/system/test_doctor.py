"""`rocketpy doctor -c`: what keeps a slave from following a real master is named before it is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support import preloaded
from tests.support.accounts import BROKER, write_accounts, write_credentials
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.certificates import Authority

FILE_SIZE = 1_048_576
MASTER = {"mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "65536"}


@pytest.fixture(scope="module")
def master() -> Iterator[RunningBroker]:
    with running_broker(MASTER) as running:
        yield running


def doctor(directory: Path, settings: dict[str, str]) -> tuple[int, str]:
    """Its status, and its report on one line. The table is so wide that it wraps no path."""
    file = directory / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    done = preloaded.run([*preloaded.COMMAND, "doctor", "-c", str(file)], timeout=60, env={"COLUMNS": "4000"})
    assert not done.stderr, done.stderr
    return done.returncode, " ".join(done.stdout.split())


def slave_of(master: RunningBroker, directory: Path, **others: str) -> dict[str, str]:
    return {
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "brokerName": "broker-a",
        "namesrvAddr": master.namesrv,
        "storePathRootDir": str(directory),
        **MASTER,
        **others,
    }


def test_a_slave_that_may_follow(master: RunningBroker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret of 20 bytes")
    secret.chmod(0o600)
    status, report = doctor(tmp_path, slave_of(master, tmp_path, haSecretFile=str(secret)))
    assert status == 0
    assert f"master {master.address}: log from 0 to" in report.replace("│ ", "").replace("│", "")
    assert f"{secret}: 20 bytes" in report and "takes connections" in report


@pytest.mark.parametrize(
    ("others", "texts"),
    [
        ({"brokerName": "broker-b"}, ["know no master of broker-b", "start the master"]),
        (
            {"mappedFileSizeCommitLog": "2097152"},
            [f"2097152 bytes here, {FILE_SIZE} on the master", f"set mappedFileSizeCommitLog={FILE_SIZE}"],
        ),
        ({"haSecretFile": "/nowhere/secret"}, ["cannot read /nowhere/secret", "write the same 16 bytes or more"]),
    ],
)
def test_what_keeps_a_slave_from_following(
    master: RunningBroker, tmp_path: Path, others: dict[str, str], texts: list[str]
) -> None:
    status, report = doctor(tmp_path, slave_of(master, tmp_path, **others))
    assert [text for text in texts if text not in report] == []
    assert status == int("brokerName" not in others), "a master may be started later"


def test_a_slave_of_a_master_with_accounts(tmp_path: Path) -> None:
    """The questions of doctor are signed as those of the slave will be."""
    own = write_credentials(tmp_path)
    wrong = write_credentials(tmp_path, BROKER, "wrong-secret")
    with running_broker(MASTER | write_accounts(tmp_path) | own) as master:
        status, report = doctor(tmp_path, slave_of(master, tmp_path, **own))
        assert status == 0 and f"account {BROKER}" in report
        assert f"master {master.address}: log from 0 to" in report.replace("│ ", "").replace("│", "")
        assert "Check signature failed" in doctor(tmp_path, slave_of(master, tmp_path, **wrong))[1]
        assert "No accessKey is configured" in doctor(tmp_path, slave_of(master, tmp_path))[1]
    file = Path(own["aclCredentialsFile"])
    file.chmod(0o644)
    status, report = doctor(tmp_path, slave_of(master, tmp_path, **own))
    assert status == 1 and "other users may read it or write to it; chmod 600 this file" in report


def test_the_certificate_of_a_master(tmp_path: Path) -> None:
    """Seen by a slave, and on the master itself, which shows it at both ports.
    Fault: The doctor looked for the HA port at brokerIP1, where no slave dials it if brokerIP2 is another address."""
    authority, other = Authority(tmp_path / "certificates"), Authority(tmp_path / "others")
    issued = authority.issue("127.0.0.1")
    tls = {"tls.config.file": "/dev/null", "tls.server.mode": "permissive", **issued.settings()}
    addresses = {"bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.2"}
    with running_broker(MASTER | tls | addresses) as master:
        ha = f"127.0.0.1:{master.port + 1}"

        def by_slave(trusted: Authority, **more: str) -> tuple[int, str]:
            calls = {"tls.config.file": "/dev/null", "useTLS": "true", "haUseTLS": "true", **trusted.trusting()}
            return doctor(tmp_path, slave_of(master, tmp_path, **calls, **more))

        status, report = by_slave(authority, haMasterAddress=ha)
        assert status == 0 and f"{ha}: takes connections; its certificate expires in 29 days" in report
        remedy = "give the master a certificate that names this address"
        status, report = by_slave(authority)
        assert status == 1 and "IP address mismatch, certificate is not valid for '127.0.0.2'" in report
        assert remedy in report and f"{master.address}: log from" in report
        status, report = by_slave(other, haMasterAddress=ha)
        assert status == 1 and "unable to get local issuer certificate" in report
        assert remedy in report and "start the master" not in report
        other.ca_file.write_text("damaged")
        status, report = by_slave(other, haMasterAddress=ha)
        assert status == 1 and "correct the file or the property" in report and "start the master" not in report

        own = {
            "listenPort": str(master.port),
            "storePathRootDir": str(tmp_path),
            "metricsPort": "0",
            **tls,
            **addresses,
        }
        status, report = doctor(tmp_path, own)
        assert status == 0 and report.count(f"serves {issued.certificate}") == 2
        assert f"TLS at 127.0.0.1:{master.port + 1}" in report
        assert "issue a certificate with 127.0.0.2 among its subject alternative names" in report
        issued.key.write_text("damaged")
        status, report = doctor(tmp_path, own)
        assert status == 1 and f"{issued.key} has no PEM key" in report and "correct the file or the property" in report


def test_a_master_that_does_not_know_this_machine(tmp_path: Path) -> None:
    with running_broker(MASTER | {"haAddresses": "10.0.0.0/8"}) as master:
        status, report = doctor(tmp_path, slave_of(master, tmp_path))
    assert status == 1 and "refuses 127.0.0.1" in report and "name this address in the master's haAddresses" in report


def test_a_master_whose_slaves_cannot_come(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "bindAddress": "0.0.0.0", "storePathRootDir": str(tmp_path)}
    status, report = doctor(tmp_path, settings)
    assert status == 0 and "127.0.0.0/8,::1: slaves of this machine only" in report


def test_what_was_cut_off_a_log(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "storePathRootDir": str(tmp_path), "haDivergedSizeMax": "1000"}
    assert "diverged" not in doctor(tmp_path, settings)[1]
    (tmp_path / "diverged").mkdir()
    for number in range(2):
        (tmp_path / "diverged" / f"{number:020d}-{number + 100:020d}").write_bytes(bytes(100))
    status, report = doctor(tmp_path, settings)
    assert status == 0 and f"2 files in {tmp_path}/diverged, 200 of at most 1000 bytes" in report.replace("│", "")


def test_the_port_of_a_name_server(tmp_path: Path) -> None:
    """Fault: The doctor did not look at the port that a name server's file names."""
    file = tmp_path / "namesrv.conf"
    listen_port, port = free_ports()
    file.write_text(f"listenPort={port}\nkvConfigPath={tmp_path}/kvConfig.json\n")
    words = [*preloaded.COMMAND, "doctor", "--store", str(tmp_path), "--namesrv", str(file)]
    done = preloaded.run(words, timeout=60, env={"COLUMNS": "4000"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"port {port} " in done.stdout and "port 9876" not in done.stdout and "port 10911" in done.stdout
    broker = tmp_path / "broker.conf"
    broker.write_text(f"listenPort={listen_port}\nstorePathRootDir={tmp_path}\n")
    done = preloaded.run([*words, "-c", str(broker)], timeout=60, env={"COLUMNS": "4000"})
    assert f"port {port} " in done.stdout and f"port {listen_port} " in done.stdout, done.stdout


def test_an_etcd_that_is_not_there(tmp_path: Path) -> None:
    port, _ = free_ports()
    settings = {
        "haMode": "automatic",
        "haMember": "a",
        "haMembers": "a,b",
        "brokerId": "1",
        "brokerRole": "SYNC_MASTER",
        "haEtcdAddresses": f"http://127.0.0.1:{port}",
        "storePathRootDir": str(tmp_path),
    }
    status, report = doctor(tmp_path, settings)
    assert status == 1 and "start etcd, or correct haEtcdAddresses" in report
