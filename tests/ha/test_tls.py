"""Histories of a pair with TLS and accounts everywhere: name server and members serve nobody without both; members call
each other so at both ports, where they prove a secret as well. Beside those of plain pairs, TLS workers die."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.ha import test_brokers, test_leases, test_switch_overs
from tests.support.certificates import Authority
from tests.support.ha.clients import Clients
from tests.support.ha.group import Group, real_group
from tests.support.ha.guard import Guard

DEATHS = 6
REFUSED = "its certificate is refused: unable to get local issuer certificate"
HISTORIES: list[Callable[[Group, int], None]] = [
    test_brokers.test_a_killed_master_is_replaced_and_comes_back_as_slave,
    test_brokers.test_a_master_that_comes_back_without_its_disk_copies_everything,
    test_brokers.test_a_pair_goes_on_without_etcd,
    test_leases.test_leases_that_are_revoked_by_hand,
    test_switch_overs.test_switch_overs_lose_double_and_cut_nothing,
]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Group]:
    with real_group(tmp_path, guard=Guard(tmp_path)) as group:
        yield group
        logs = [server.text() for server in (group.namesrv, *group.members.values())]
        assert not any("access control refused" in text for text in logs), "a request of this group was refused"


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__.removeprefix("test_"))
def test_a_guarded_history(pair: Group, seed: int, history: Callable[[Group, int], None]) -> None:
    history(pair, seed)


def test_a_tls_worker_that_is_killed_costs_no_epoch(pair: Group, seed: int) -> None:
    """The worker of the master has its clients and its slave; that of the slave has clients only."""
    test_brokers.test_a_worker_that_is_killed_costs_no_epoch(pair, seed, "tls 0")


def test_tls_workers_are_killed_again_and_again(pair: Group, seed: int) -> None:
    """A member whose worker is away for too long hands the mastership over."""
    choose = random.Random(seed)
    with Clients(pair.servers, pair.history, seed):
        for _ in range(DEATHS):
            name = choose.choice(list(pair.members))
            pair.wait_for(lambda name=name: "tls 0" in pair.members[name].pids(), "the TLS worker to run")
            pair.history.happened(f"kill -9 of the TLS worker of {name}")
            pair.members[name].signal_worker("tls 0", signal.SIGKILL)
            time.sleep(choose.uniform(0.2, 1.0))
        pair.wait_until_healed()
    pair.check()


def test_the_doctor_of_a_slave_calls_the_ha_port_of_its_master(pair: Group, tmp_path: Path) -> None:
    slave = pair.members[pair.other(pair.master() or "")]
    stranger = Authority(tmp_path / "strangers")
    for trusted, words in (
        ({}, "takes connections; its certificate expires in 29 days"),
        (stranger.trusting(), REFUSED),
    ):
        file = tmp_path / "broker.conf"
        own = {"listenPort": str(slave.port), "storePathRootDir": str(slave.store), "namesrvAddr": slave.namesrv}
        file.write_text("".join(f"{key}={value}\n" for key, value in (slave.settings | own | trusted).items()))
        command = [sys.executable, "-m", "rocketpy", "doctor", "-c", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"COLUMNS": "400"}, check=False)
        of_master = str(pair.members[pair.other(slave.name)].port + 1)
        found = [line for line in done.stdout.splitlines() if "replication port" in line and of_master in line]
        assert words in "".join(found) and done.returncode == bool(trusted), done


def test_a_change_of_role_needs_no_file_of_a_certificate(pair: Group, seed: int) -> None:
    """Fault: A member whose certificate file was damaged while it ran could not change its role, and stayed down."""
    with Clients(pair.servers, pair.history, seed):
        pair.wait_until_healed()
        for member in pair.members.values():
            Path(member.settings["tls.server.certPath"]).write_text("damaged")
        target = pair.other(pair.wait_for_master())
        pair.history.happened(f"damaged certificates, switch-over to {target}")
        pair.switch_over(target)
        pair.wait_for_master({target})
        pair.wait_until_healed()
    pair.check()
