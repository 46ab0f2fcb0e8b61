"""Settings and rings for the main of one worker; the shared tables that it does not use are null."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rocketpy.config import BrokerSettings
from rocketpy.native.core import ffi
from rocketpy.processes.workers.inherited import Inherited
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.topology import Topology
from rocketpy.replication.slave_table import SlaveTable


def inherited(
    settings: BrokerSettings, topology: Topology, control: Any, slaves: SlaveTable | None = None
) -> Inherited:
    null: Any = SimpleNamespace(pointer=ffi.NULL)
    return Inherited(
        settings=settings,
        topology=topology,
        control=control,
        pools=broker_pools(settings),
        delivered=null,
        halves=null,
        timers=null,
        filter_marks=null,
        slaves=slaves or SlaveTable(),
    )
