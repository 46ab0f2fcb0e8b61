"""The mains of workers that serve requests under one trio loop: the common part, and that of query workers.

The common part is the open store, the loop and the reply rings; manager.py has the main of the manager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import trio

from rocketpy.broker.current_settings import CurrentSettings
from rocketpy.broker.processors.queries import queries_by_code
from rocketpy.faults import Faults
from rocketpy.reactor.channel import Gateway
from rocketpy.reactor.crashed_request import drop_crashed_request
from rocketpy.reactor.handlers import Handlers
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.pools import QUERY
from rocketpy.reactor.request_server import RequestServer
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.topology import SelectorDeaths
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.remoting.request_log import sampled
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.transport.duties import Duty, as_duty, run_duty

from .garbage_collection import short_collections
from .inherited import Inherited

STORE_TRIM_S = 60.0


@attrs.frozen(eq=False)
class RequestServerMain(ABC):
    """`main` of a worker that serves requests with a RequestServer."""

    inherited: Inherited

    def __call__(self, context: WorkerContext) -> None:
        store = MessageStore(self.inherited.settings.store, self.inherited.control)
        try:
            with short_collections():
                trio.run(self._run, context, store)
        finally:
            store.close()

    @abstractmethod
    async def _run(self, context: WorkerContext, store: MessageStore) -> None:
        """Serve requests until the worker is told to leave."""

    def _gateway(self, context: WorkerContext, faults: Faults) -> Gateway:
        topology = self.inherited.topology
        outboxes = [Outbox(RingWriter(ring)) for ring in topology.replies_from(context.name)]
        selectors = [topology.blocks[selector] for selector in topology.sizes.selectors]
        return Gateway(outboxes, faults, SelectorDeaths(selectors, topology.is_connection_gone))


@attrs.frozen(eq=False)
class QueryMain(RequestServerMain):
    """`main` of a query worker: reads the store, owns nothing."""

    async def _run(self, context: WorkerContext, store: MessageStore) -> None:
        topology, faults = self.inherited.topology, Faults()
        drop_crashed_request(context.block, topology)
        settings, access = CurrentSettings(self.inherited.settings), self.inherited.access_control()
        sample = self.inherited.settings.rocketpy.request_log_sample
        server = RequestServer(
            block=context.block,
            inputs=[RingReader(ring) for ring in topology.inputs(context.name)],
            gateway=self._gateway(context, faults),
            pools=self.inherited.pools.only_served_by(QUERY),
            handlers=Handlers(
                processors=sampled(queries_by_code(store, settings, access), sample),
                on_settings=settings.apply,
                access=access,
            ),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_duty, Duty("trimming the store", STORE_TRIM_S, as_duty(store.trim)), faults)
            context.report_ready()
            await server.run(context.beat_s)
            nursery.cancel_scope.cancel()
