"""The common part of the mains of the manager and of query workers: the open store, the trio loop, reply rings."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import trio

from rocketpy.config import BrokerSettings
from rocketpy.faults import Faults
from rocketpy.reactor.channel import Gateway
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.pools import PoolTable
from rocketpy.reactor.ring import RingWriter
from rocketpy.reactor.topology import SelectorDeaths, Topology
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.reading.message_store import MessageStore

from .garbage_collection import short_collections


@attrs.frozen(eq=False)
class RequestServerMain(ABC):
    """`main` of a worker that serves requests with a RequestServer."""

    topology: Topology
    control: ControlBlock
    settings: BrokerSettings
    table: PoolTable

    def __call__(self, context: WorkerContext) -> None:
        store = MessageStore(self.settings.store, self.control)
        try:
            with short_collections():
                trio.run(self._run, context, store)
        finally:
            store.close()

    @abstractmethod
    async def _run(self, context: WorkerContext, store: MessageStore) -> None:
        """Serve requests until the worker is told to leave."""

    def _gateway(self, context: WorkerContext, faults: Faults) -> Gateway:
        return Gateway([Outbox(RingWriter(ring)) for ring in self.topology.replies_from(context.name)], faults)

    def _selector_deaths(self) -> SelectorDeaths:
        topology = self.topology
        blocks = [topology.blocks[selector] for selector in topology.sizes.selectors]
        return SelectorDeaths(blocks, topology.is_connection_gone)
