"""What one turn of a master's replicator does for many connections: none waits for all others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from tests.support.master_rig import MasterRig, report, unsent
from tests.support.waiting import wait_until

TURN_BYTES = 1 << 20  # for all slaves that are far behind
FRAME = 32_768


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[MasterRig]:
    rig = MasterRig(tmp_path)
    yield rig
    rig.close()


def sent_in_a_turn(rig: MasterRig) -> int:
    before = rig.table.sent_bytes
    rig.turn(1)
    return rig.table.sent_bytes - before


def test_slaves_that_are_far_behind_share_a_turn(rig: MasterRig) -> None:
    """Fault: Sixteen slaves catching up delayed another slave's acknowledgements by 64 MiB of reading."""
    slaves = [rig.connect() for _ in range(8)]
    rig.append(3 << 20)
    for slave in slaves:
        slave.sendall(report(1))
        wait_until(lambda slave=slave: unsent(slave) == 0, "the kernel to deliver a report")
    rig.turn(1)  # reads the reports
    turns = [sent_in_a_turn(rig) for _ in range(8)]
    assert 0 < max(turns) <= TURN_BYTES + FRAME
    assert all(slave.sent_bytes for slave in rig.slaves()), "each has its turn"


def test_a_slave_near_the_end_waits_for_nobody_s_turn(rig: MasterRig) -> None:
    rig.append(3 << 20)
    near = [rig.connect(len(rig.log)) for _ in range(2)]
    far = [rig.connect() for _ in range(6)]
    for slave in far:
        slave.sendall(report(1))
        wait_until(lambda slave=slave: unsent(slave) == 0, "the kernel to deliver a report")
    for _ in range(5):
        new = rig.append(1000)
        rig.turn(1)
        for slave in near:
            slave.settimeout(60)
            assert slave.recv(1 << 20)[12:] == new
    assert any(state.sent_bytes > 5000 for state in rig.slaves())


def test_who_opens_most_connections_loses_one(rig: MasterRig) -> None:
    """Another address keeps its place in the handshake, though it began first."""
    slow = rig.connect(host="127.0.0.2")
    strangers = []
    for _ in range(2 * lib.RP_HANDSHAKES_MAX):
        strangers.append(rig.connect(host="127.0.0.3"))
        rig.now_ns += 1
    assert rig.is_open(slow)
    first_open = lib.RP_HANDSHAKES_MAX + 1
    assert [rig.is_open(stranger) for stranger in strangers[first_open - 1 : first_open + 1]] == [False, True]
    rig.append(100)
    rig.say(slow, 100)
    assert rig.replicated == 100


@pytest.mark.parametrize(
    ("address", "is_one_host"),
    [("2001:db8::%x", True), ("2001:db8:0:%x::1", False), ("::ffff:10.0.0.%d", False), ("10.0.0.%d", False)],
)
def test_an_ipv6_network_is_one_host(rig: MasterRig, address: str, is_one_host: bool) -> None:
    """The oldest goes where each host has one connection; else one of the host that has most.
    Fault: An IPv6 /64 counted as many hosts on the HA port and pushed out slaves in the handshake."""
    slow = rig.connect(host="127.0.0.2")
    peers = []
    for number in range(lib.RP_HANDSHAKES_MAX):
        own, peer = socket.socketpair()
        peers.append(peer)
        assert rig.master._begin(own, (address % number, 5))
        rig.now_ns += 1
    assert rig.is_open(slow) is is_one_host
    for peer in peers:
        peer.close()


def test_epochs_that_slaves_are_sent_are_set_once(rig: MasterRig) -> None:
    """Fault: Setting a master's epochs a second time freed the list in use by its slaves."""
    epochs = ffi.new("rp_epoch[2]")
    assert lib.rp_master_set_epochs(rig.master._pointer, epochs, 2) == Status.OK
    assert lib.rp_master_set_epochs(rig.master._pointer, epochs, 2) == Status.INVALID
