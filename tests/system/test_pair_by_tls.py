"""A master and a slave that replicate by TLS, over deaths on both sides; and pairs of which one side has no TLS."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.interop.own_brokers import running_slave, wait_equal_logs
from tests.support.broker import RunningBroker, running_broker
from tests.support.certificates import Authority
from tests.support.pair import LoneBroker
from tests.support.waiting import wait_until
from tests.system.test_own_pair import ROLE, SYNC, fill, send, wait_replicated, with_secret

TLS = {"tls.config.file": "/dev/null"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def by_tls(authority: Authority, mode: str, directory: Path) -> dict[str, str]:
    """The properties of a member of a pair with TLS everywhere."""
    settings = SYNC | TLS | authority.issue().settings() | authority.trusting() | {"tls.server.mode": mode}
    return settings | {"useTLS": "true"} | with_secret(directory, "secret", b"a secret of 20 bytes")


@pytest.fixture
def permissive(authority: Authority, tmp_path: Path) -> Iterator[RunningBroker]:
    """A master that serves both; its tools are plain."""
    with running_broker(by_tls(authority, "permissive", tmp_path)) as master:
        fill(master, 1000, b"x" * 500)  # several files
        yield master


def kill_tls(broker: RunningBroker) -> None:
    os.kill(broker.workers()["tls 0"], signal.SIGKILL)


def test_a_pair_by_tls_over_deaths_on_both_sides(permissive: RunningBroker, tmp_path: Path) -> None:
    """Holds: network, TLS of servers."""
    with running_slave(permissive, tmp_path / "slave", ROLE | {"haUseTLS": "true"}) as slave:
        wait_replicated(permissive, slave)
        assert len(os.listdir(f"/proc/{slave.workers()['replicator']}/task")) == 2, "one thread does the cipher"
        for broker in (permissive, slave):
            broker.kill_worker("replicator")
            wait_replicated(permissive, slave)
        kill_tls(permissive)
        wait_replicated(permissive, slave)
        slave.kill_all()
        fill(permissive, 10, b"while the slave is dead")
        slave.start()
        wait_replicated(permissive, slave)
        assert permissive.stop() == 0
        permissive.start()
        wait_replicated(permissive, slave)
        assert slave.stop() == 0


def test_a_plain_slave_follows_a_permissive_master(permissive: RunningBroker, tmp_path: Path) -> None:
    with running_slave(permissive, tmp_path / "slave", ROLE) as slave:
        wait_replicated(permissive, slave)


def test_an_enforcing_pair_needs_no_property_more(authority: Authority, tmp_path: Path) -> None:
    """A plain slave gets no byte of its log, and the master's line says what to do."""
    settings = by_tls(authority, "enforcing", tmp_path)
    with running_broker(settings) as master:
        with running_slave(master, tmp_path / "slave", ROLE) as slave:
            wait_until(lambda: slave_follows(slave), "the slave to follow")
            wait_equal_logs(master.store, slave.store)
        with running_slave(master, tmp_path / "plain", ROLE | {"haUseTLS": "false"}) as plain:
            wait_until(lambda: "it is not encrypted, and tls.server.mode is enforcing here" in master.text())
            assert not slave_follows(plain)


def slave_follows(slave: LoneBroker) -> bool:
    return "following the master" in slave.text()


@pytest.mark.parametrize(
    ("master", "remedy"),
    [
        ("without TLS", "set tls.server.mode=permissive or enforcing on the master"),
        ("of another authority", "give the master a certificate that names this address and is signed by an authority"),
    ],
)
def test_a_slave_that_cannot_follow_by_tls_says_what_to_do(
    authority: Authority, tmp_path: Path, master: str, remedy: str
) -> None:
    settings = SYNC | TLS
    if master == "of another authority":
        other = Authority(tmp_path / "other")
        settings |= other.issue().settings() | {"tls.server.mode": "permissive"}
    with running_broker(settings) as running:
        calls = authority.trusting() | {"useTLS": "true", "haUseTLS": "true", "tls.server.mode": "disabled"}
        calls |= {"haMasterAddress": f"127.0.0.1:{running.port + 1}"}
        with running_slave(running, tmp_path / "slave", ROLE | calls) as slave:
            wait_until(lambda: remedy in slave.text(), "the slave to say what to do")
            assert slave.text().count("cannot follow the master") == 1
            assert send(running) != 0, "the slave is not waited for"
