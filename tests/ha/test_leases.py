"""Leases that end early, and members of etcd that stand still: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.clients import Clients
from tests.support.ha.disks import disk
from tests.support.ha.group import LEASE_S, Group, real_group
from tests.support.ha.needs import needs_disks

REVOCATIONS = 10
STALL_S = 12.0  # of etcd's disk: its leader is replaced meanwhile, and ends leases when it is back (issue 15247)


def test_leases_that_are_revoked_by_hand(pair: Group, seed: int) -> None:
    """The key is put back in the same epoch, or another member is elected."""
    choose = random.Random(seed)
    with Clients(pair.servers, pair.history, seed):
        for _ in range(REVOCATIONS):
            whose = choose.choice(["the master's", "a", "b"])
            lease = pair.lease_of_master() if whose == "the master's" else pair.lease_of(whose)
            if lease:
                pair.history.happened(f"the lease of {whose} is revoked")
                pair.revoke(lease)
            time.sleep(choose.uniform(0.0, 1.5))
        pair.wait_until_healed()
    pair.check()


@pytest.mark.parametrize("signals", [(signal.SIGSTOP, signal.SIGCONT), (signal.SIGKILL,)], ids=["stopped", "killed"])
def test_etcd_loses_its_leader(tmp_path: Path, seed: int, signals: tuple[signal.Signals, ...]) -> None:
    """Of three. Nobody renews a lease until there is another one."""
    with real_group(tmp_path, etcd_members=3) as group:
        with Clients(group.servers, group.history, seed):
            group.wait_for_master()
            leader = group.etcd.leader()
            process = group.etcd.processes[leader]
            group.history.happened(f"{signals[0].name} of etcd's leader")
            os.kill(process.pid, signals[0])
            time.sleep(2 * LEASE_S)
            group.wait_for_master()
            if signals[-1] == signal.SIGCONT:
                os.kill(process.pid, signal.SIGCONT)
            else:
                group.etcd.kill(leader)
                group.etcd.start(leader)
            group.history.happened("it is back")
            time.sleep(LEASE_S)
            group.wait_until_healed()
        group.check()


@needs_disks
def test_the_disk_of_etcds_leader_stands_still(tmp_path: Path, seed: int) -> None:
    with (
        disk(tmp_path / "etcd" / "m0") as stalled,
        real_group(tmp_path, etcd_members=3) as group,
    ):
        with Clients(group.servers, group.history, seed):
            group.wait_for_master()
            group.etcd.lead(0)
            group.history.happened("the disk of etcd's leader stands still")
            stalled.freeze()
            try:
                time.sleep(STALL_S)
            finally:
                group.history.happened("it goes on")
                stalled.thaw()
            time.sleep(LEASE_S)
            group.wait_until_healed()
        group.check()
