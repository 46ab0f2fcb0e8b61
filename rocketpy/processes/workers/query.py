"""The main of a query worker: queries of the store behind the reactor's rings, under one trio loop."""

from __future__ import annotations

import attrs
import trio

from rocketpy.broker.current_settings import CurrentSettings
from rocketpy.broker.processors.queries import queries_by_code
from rocketpy.faults import Faults
from rocketpy.reactor.crashed_request import drop_crashed_request
from rocketpy.reactor.pools import QUERY
from rocketpy.reactor.request_server import RequestServer
from rocketpy.reactor.ring import RingReader
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.transport.duties import Duty, as_duty, run_duty

from .request_server_main import RequestServerMain

STORE_TRIM_S = 60.0


@attrs.frozen(eq=False)
class QueryMain(RequestServerMain):
    """`main` of a query worker: reads the store, owns nothing."""

    async def _run(self, context: WorkerContext, store: MessageStore) -> None:
        topology, faults = self.topology, Faults()
        drop_crashed_request(context.block, topology)
        settings = CurrentSettings(self.settings)
        server = RequestServer(
            block=context.block,
            inputs=[RingReader(ring) for ring in topology.inputs(context.name)],
            gateway=self._gateway(context, faults),
            processors=queries_by_code(store, settings),
            table=self.table,
            role=QUERY,
            on_settings=settings.apply,
            faults=faults,
            deaths=self._selector_deaths(),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_duty, Duty("trimming the store", STORE_TRIM_S, as_duty(store.trim)), faults)
            context.report_ready()
            await server.run()
            nursery.cancel_scope.cancel()
