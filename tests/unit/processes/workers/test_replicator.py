"""The replicator of a master gets the values of the settings."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the loop is C")

from rocketpy.config import BrokerSettings
from rocketpy.processes.workers.replicator import ReplicatorMain, master_limits
from rocketpy.reactor.ring import STOP_LEAVE
from rocketpy.reactor.topology import REPLICATOR, ReactorSizes, Topology
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.control_block import ControlBlock
from tests.support.inherited import inherited
from tests.support.master_rig import close_topology
from tests.support.waiting import is_readable, wait_until

LIMITS = [
    ({"ha_send_heartbeat_interval": 77}, {"heartbeat_ns": 77_000_000}),
    ({"ha_housekeeping_interval": 77}, {"housekeeping_ns": 77_000_000}),
    ({"ha_transfer_batch_size": 7777}, {"frame_max": 7777}),
    ({"max_ha_transfer_byte_in_second": 77}, {"bytes_per_second": 77}),
    ({"ha_connections_max": 7}, {"slaves_max": 7}),
    ({"slave_timeout": 77}, {"stall_ns": 77_000_000}),
    ({"ha_secret_file": "/a/secret"}, {"rocketpy_only": True}),
]


def with_store(**changes: Any) -> BrokerSettings:
    settings = BrokerSettings()
    return attrs.evolve(settings, store=attrs.evolve(settings.store, **changes))


@pytest.mark.parametrize(("change", "effect"), LIMITS)
def test_limits_of_the_loop(change: dict[str, Any], effect: dict[str, Any]) -> None:
    before, after = master_limits(BrokerSettings()), master_limits(with_store(**change))
    assert after == before | effect != before


@pytest.mark.parametrize(("addresses", "is_admitted"), [("127.0.0.0/8", True), ("10.0.0.0/8,::1", False)])
def test_who_may_be_a_slave(tmp_path: Path, addresses: str, is_admitted: bool) -> None:
    """The worker itself, in a child, stopped as the supervisor would."""
    (tmp_path / "commitlog").mkdir()
    settings = with_store(ha_addresses=addresses, store_path_root_dir=str(tmp_path))
    control = ControlBlock(tmp_path / "control", settings.store.mapped_file_size_commit_log)
    topology, table = Topology.create(ReactorSizes()), SlaveTable()
    block = topology.blocks[REPLICATOR]
    with contextlib.closing(control), socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        main = ReplicatorMain(inherited(settings, topology, control, table), listener, b"")
        pid = os.fork()
        if pid == 0:
            try:
                main(WorkerContext(REPLICATOR, block, lambda: None))
            finally:
                os._exit(0)
        with socket.create_connection(listener.getsockname()) as slave:
            if is_admitted:
                wait_until(lambda: bool(table.slaves(0)), "the slave in the table")
            else:
                assert is_readable(slave.fileno(), 30) and slave.recv(1) == b""
                assert table.closed()["stranger"] == 1
            block.order(STOP_LEAVE)
            os.waitpid(pid, 0)
    close_topology(topology)
