"""The main function of the replicator: sends the log to the slaves of this master."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from rocketpy.config import BrokerSettings, TlsMode
from rocketpy.native.core import ffi
from rocketpy.networks import parse_networks
from rocketpy.reactor.topology import REPLICATOR, SEND, STORE
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.handshake_messages import Group
from rocketpy.replication.master import Master, MasterMember
from rocketpy.replication.master_handshakes import HaPort

from .inherited import Inherited


class ReplicatorMain:
    """`main` of the replicator of a master.

    Made when the epoch that is to be served is in the epoch file.

    Raises:
        StoreError: the epoch file cannot be used.
    """

    def __init__(self, inherited: Inherited, listener: socket.socket, secret: bytes) -> None:
        """Take over the HA port, `listener`. `secret`: of the slaves; empty: none."""
        settings, topology = inherited.settings, inherited.topology
        control, slaves, orders = inherited.control, inherited.slaves, inherited.orders
        store = settings.store
        self._control, self._slaves = control, slaves
        self._port = HaPort(
            listener,
            parse_networks(store.ha_addresses),
            tls_workers=[replicators_end for replicators_end, _ in topology.ha_handoffs.values()],
            is_tls_required=settings.tls.tls_server_mode is TlsMode.ENFORCING,
        )
        self._group = Group(
            cluster=settings.broker.broker_cluster_name,
            broker_name=settings.broker.broker_name,
            file_size=int(control.header.commitlog_file_size),
            secret=secret,
        )
        self._directory = ffi.new("char[]", os.fsencode(inherited.paths.commitlog))
        self._config: Any = ffi.new(
            "rp_master_config *",
            {
                "worker": topology.blocks[REPLICATOR].pointer,
                "send": topology.blocks[SEND].pointer,
                "block": control.block,
                "table": slaves.pointer,
                "commitlog_directory": self._directory,
                "member": ffi.NULL if orders is None else orders.pointer,
                "store": topology.blocks[STORE].pointer,
                "is_durable": settings.is_sync_flush,
            }
            | master_limits(settings),
        )
        root = Path(store.store_path_root_dir)
        self._member = None if orders is None else MasterMember(orders, EpochFile(root).read())

    def __call__(self, context: WorkerContext) -> None:
        header = self._control.header
        master = Master(self._config, self._port, header, self._slaves, self._group, member=self._member)
        context.report_ready()
        while master.turn(context.beat_ns):
            pass
        master.close()


def master_limits(settings: BrokerSettings) -> dict[str, Any]:
    """Return the settings of the loop that sends the log."""
    store = settings.store
    return settings.c_fields("rp_master_config") | {
        "rocketpy_only": store.ha_secret_file is not None or store.is_automatic,
        "is_sync_master": settings.is_sync_master,
    }
