"""A master and a slave of rocketpy: the secret, deaths on both sides, and a slave with a history of its own."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from bench.control import Control, RequestFailed
from tests.interop.own_brokers import running_slave, wait_equal_logs
from tests.support.broker import RunningBroker, running_broker
from tests.support.pair import LoneBroker, ha_status, log_files
from tests.support.waiting import wait_until

TOPIC = "Replicated"
SMALL = {"mappedFileSizeCommitLog": "262144", "maxMessageSize": "65536"}
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"} | SMALL
ROLE = {"brokerRole": "SLAVE"}
OK = 0


def send(master: RunningBroker, body: bytes = b"body") -> int:
    """The answer's code."""
    with Control("127.0.0.1", master.port, timeout_s=60.0) as control:
        try:
            return int(control.send(TOPIC, 0, body).code)
        except RequestFailed as failed:
            return failed.code


def fill(master: RunningBroker, count: int, body: bytes) -> None:
    with Control("127.0.0.1", master.port, timeout_s=60.0) as control:
        control.create_topic(TOPIC, 1)
        for number in range(count):
            with contextlib.suppress(RequestFailed):  # stored, but there is no slave
                control.send(TOPIC, 0, body + b"%d" % number)


def wait_replicated(master: RunningBroker, slave: LoneBroker) -> None:
    wait_until(lambda: send(master) == OK, "the slave to acknowledge")
    wait_equal_logs(master.store, slave.store)


def with_secret(directory: Path, name: str, secret: bytes) -> dict[str, str]:
    path = directory / name
    path.write_bytes(secret)
    return {"haSecretFile": str(path)}


def test_ha_status_of_a_pair(tmp_path: Path) -> None:
    with running_broker(SYNC) as master, running_slave(master, tmp_path / "slave", ROLE) as slave:
        fill(master, 10, b"x")
        wait_replicated(master, slave)
        wait_until(lambda: len(ha_status(master.namesrv)) == 3, "the slave's registration")
        first, second, connection = ha_status(master.namesrv)
        assert (first["role"], first["addr"], first["bid"]) == ("SYNC_MASTER", master.address, 0)
        assert (second["role"], second["addr"], second["bid"]) == ("SLAVE", slave.address, 1)
        assert second["follows"] == master.address and second["lag_bytes"] == 0
        assert (connection["state"], connection["acknowledged"], connection["lag_bytes"], connection["in_sync"]) == (
            "replicating", first["log_end"], 0, "yes",
        )  # fmt: skip


def test_a_pair_with_a_secret_over_deaths_on_both_sides(tmp_path: Path) -> None:
    secret = with_secret(tmp_path, "secret", b"a secret of 20 bytes")
    with running_broker(SYNC | secret) as master:
        fill(master, 1000, b"x" * 500)  # several files
        with running_slave(master, tmp_path / "slave", ROLE) as slave:
            wait_replicated(master, slave)
            assert "gets the log from 0 on" in master.text()
            for broker in (master, slave):
                broker.kill_worker("replicator")
                wait_replicated(master, slave)
            slave.kill_worker("send")
            wait_replicated(master, slave)
            slave.kill_all()
            fill(master, 10, b"while the slave is dead")
            slave.start()
            wait_replicated(master, slave)
            assert master.stop() == 0
            master.start()
            wait_replicated(master, slave)
            assert len(log_files(slave.store)) > 2
            assert slave.stop() == 0


@pytest.mark.parametrize("has_master_one", [True, False])
def test_a_slave_without_the_right_secret_gets_no_byte(tmp_path: Path, has_master_one: bool) -> None:
    secret = with_secret(tmp_path, "secret", b"a secret of 20 bytes")
    with running_broker(SMALL | (secret if has_master_one else {})) as master:
        fill(master, 3, b"private")
        other = with_secret(tmp_path, "other", b"not that secret, but another")
        with running_slave(master, tmp_path / "slave", ROLE | other) as slave:
            wait_until(lambda: "refused this slave (secret)" in slave.text(), "the refusal")
            wait_until(lambda: "(secret)" in master.text(), "the master's line")
            assert not log_files(slave.store)


def test_a_slave_with_a_history_of_its_own_gets_no_byte(tmp_path: Path) -> None:
    with running_broker(SMALL, store=tmp_path / "store") as first:
        fill(first, 5, b"mine")
        assert first.stop() == 0
    before = log_files(tmp_path / "store")
    with running_broker(SMALL) as master:
        fill(master, 50, b"another history")
        with running_slave(master, tmp_path / "slave", ROLE, store=tmp_path / "store") as slave:
            wait_until(lambda: "refused this slave (diverged)" in slave.text(), "the refusal")
            wait_until(lambda: "(diverged)" in master.text(), "the master's line")
            assert log_files(slave.store) == before


def test_a_slave_with_haTruncateDiverged_is_cut_and_goes_on(tmp_path: Path) -> None:
    """The master has lost the end of its log, and has gone on: the slave comes back by itself, in the same process."""
    secret = tmp_path / "secret"
    secret.write_text("known to both of them")
    secret.chmod(0o600)
    settings = SYNC | {"brokerName": "broker-a", "haSecretFile": str(secret)}
    truncates = {"haTruncateDiverged": "true", "haSecretFile": str(secret), "metricsPort": "0"}
    with running_broker(settings, store=tmp_path / "master") as master:
        fill(master, 1000, b"x" * 500)
        assert master.stop() == 0
        shutil.copytree(tmp_path / "master", tmp_path / "before")
        master.start()
        with running_slave(master, tmp_path / "slave", ROLE | truncates) as slave:
            fill(master, 50, b"what the master loses")
            wait_replicated(master, slave)
            end = sum(map(len, log_files(slave.store).values()))
            assert slave.process is not None
            process = slave.process
            assert process is not None
            master.kill_all()
            shutil.rmtree(tmp_path / "master")
            shutil.copytree(tmp_path / "before", tmp_path / "master")
            master.start()
            fill(master, 20, b"another history")
            wait_until(lambda: "cut the log at" in slave.text(), "the slave to cut its log")
            wait_replicated(master, slave)
            assert process.poll() is None and slave.text().count("cut the log at") == 1
            (kept,) = (slave.store / "diverged").iterdir()
            assert b"what the master loses49" in kept.read_bytes() and kept.stat().st_size < end
            assert not (slave.store / "cutRequest").exists()
            assert slave.stop() == 0
