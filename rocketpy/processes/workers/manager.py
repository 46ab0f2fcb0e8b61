"""The main of the manager worker: the broker's slow path behind the reactor's rings, under one trio loop."""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from rocketpy.broker.broker import BrokerController, ManagerProcess
from rocketpy.broker.clock import SystemClock
from rocketpy.broker.fast_path.ring_fast_path import Link, RingFastPath, WorkerLinks
from rocketpy.broker.memory.manager_memory import ManagerMemory
from rocketpy.config import BrokerSettings
from rocketpy.faults import Faults
from rocketpy.reactor.channel import RingChannel
from rocketpy.reactor.crashed_request import drop_crashed_request
from rocketpy.reactor.handlers import Handlers
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.request_server import RequestServer
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.topology import MANAGER, SEND, STORE, Topology
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.remoting.limits import PoolLoad
from rocketpy.remoting.request_log import sampled
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.transport.client import RemotingClient, open_remoting_client
from rocketpy.transport.connector import Connector, connect, tls_connector
from rocketpy.transport.duties import Duty, run_duty

from .garbage_collection import loading
from .request_server_main import RequestServerMain
from .shared_counts import broker_health, count_refused_send, fast_path_counters, pool_loads, replication_status

if TYPE_CHECKING:
    from rocketpy.acl.credentials import CredentialsFile
    from rocketpy.broker.fast_path.shared_limits import SharedLimits
    from rocketpy.metrics.endpoint import Endpoint
    from rocketpy.tls import Certificates
    from rocketpy.transport.signing import SigningClient

    from ..member.manager_role import ManagerRole
    from ..member.shown import MemberShown

    Measured = tuple[  # what metrics show
        Topology, BrokerSettings, BrokerController, MessageStore, SlaveTable, MemberShown | None, SharedLimits | None
    ]

logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class ManagerMain(RequestServerMain):
    """`main` of the manager worker: owns topics, groups, offsets, client tables and locks."""

    metrics: socket.socket | None  # the listening socket of metrics
    memory: ManagerMemory

    def _fast_path(self, sends: RingReader) -> RingFastPath:
        inherited, topology = self.inherited, self.inherited.topology
        settings = inherited.settings

        def link(worker: str) -> Link:
            return topology.blocks[worker], Outbox(RingWriter(topology.ring(MANAGER, worker)))

        workers = WorkerLinks(
            send=link(SEND),
            pulls=[link(pull) for pull in topology.sizes.pulls],
            store=link(STORE),
            queries=[link(query) for query in topology.sizes.queries],
            sends=sends,
            requests=[ring for worker in (SEND, *topology.sizes.pulls) for ring in topology.requests_to(worker)],
        )
        return RingFastPath(
            workers,
            queues=inherited.control,
            store_host=(settings.broker.broker_ip1, settings.server.listen_port),
            delivered=inherited.delivered,
            half_states=inherited.halves,
        )

    def _replicate(self, controller: BrokerController, passing: RemotingClient | SigningClient) -> ManagerRole | None:
        """Connect the controller with what the replicator and the coordinator say.

        Args:
            passing: for sends that are passed on to the master.
        Returns: the task that follows the coordinator's orders, if there is one.
        """
        settings, master_link, member = self.inherited.settings, self.inherited.master_link, self.inherited.member
        control, slaves, shown = self.inherited.control, self.inherited.slaves, self.inherited.shown
        controller.replication_status = lambda: replication_status(settings, control, slaves, master_link, shown)
        if master_link is not None:
            controller.table_copier.followed = lambda: master_link.followed
            controller.table_copier.stream = lambda: master_link.stream
            if member is None:
                controller.table_copier.on_found = master_link.set_master
        if member is None:
            return None
        from ..member.certainty import MasterCertainty
        from ..member.manager_role import ManagerRole, followed_address

        block, own_id, certainty = member.memory.block, settings.broker.broker_id, MasterCertainty.of(member.memory)
        controller.be_member(own_id, certainty.epoch, lambda: followed_address(block), passing)
        register_soon = controller.services.registrar.topics_changed
        return ManagerRole(block, certainty, controller.be_master, register_soon, master_link)

    def _controller(
        self,
        store: MessageStore,
        fast_path: RingFastPath,
        client: RemotingClient | SigningClient,
        faults: Faults,
        loads: Callable[[], dict[str, PoolLoad]],
    ) -> BrokerController:
        """Return the controller of this process. `loads`: of its pools."""
        inherited = self.inherited
        return BrokerController(
            inherited.settings,
            store,
            fast_path,
            client,
            ManagerProcess(
                clock=SystemClock(),
                choose=random.Random(),
                counters=lambda: fast_path_counters(inherited.topology),
                pool_loads=lambda: pool_loads(inherited.topology, inherited.pools, loads()),
                faults=faults,
                memory=self.memory,
                epoch=-1 if inherited.member is None else inherited.member.role.epoch,
                access=inherited.access_control(),
                accounts=inherited.accounts(),
                count_refused=partial(count_refused_send, inherited.topology.blocks[MANAGER]),
                health=partial(broker_health, inherited.topology),
            ),
        )

    async def _run(self, context: WorkerContext, store: MessageStore) -> None:
        inherited, topology, name = self.inherited, self.inherited.topology, context.name
        drop_crashed_request(context.block, topology)
        faults, sample = Faults(), inherited.settings.rocketpy.request_log_sample
        gateway = self._gateway(context, faults)
        inputs = {ring.producer: RingReader(ring) for ring in topology.inputs(name)}
        fast_path = self._fast_path(inputs[SEND])
        with contextlib.ExitStack() as start:
            async with self._client() as client, self._client() as passing:
                moved = start.enter_context(loading(context.block))
                controller = self._controller(store, fast_path, client, faults, lambda: server.loads())
                controller.topics_of_log.on_piece = partial(self._read_a_piece, moved)
                role = self._replicate(controller, passing)
                controller.load(
                    lambda number, peer, is_vip: RingChannel(number, peer, is_vip, gateway), topology.is_connection_gone
                )
                await controller.topics_of_log.adopt()
                server = RequestServer(
                    block=context.block,
                    inputs=list(inputs.values()),
                    gateway=gateway,
                    pools=inherited.pools,
                    handlers=Handlers(
                        processors=sampled(controller.processors(), sample),
                        request_log_sample=sample,
                        slow_path=controller,
                        fast_path=fast_path,
                        access=controller.services.access,
                        # a sample of requests is taken in their processors
                        inline={} if sample else controller.inline(),
                    ),
                )
                async with trio.open_nursery() as nursery:
                    await nursery.start(controller.run)
                    start.close()
                    gc.freeze()  # the tables stay: to collect them would block the loop for tens of ms
                    shared = inherited.slaves, inherited.shown, inherited.limits
                    measured = topology, inherited.settings, controller, store, *shared
                    await self._serve(context, server, controller, role, measured)
                    await controller.stop(unregister=not inherited.is_replaced)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[RemotingClient | SigningClient]:
        """Open a client for requests to name servers and the master."""
        file = self.inherited.certificates.credentials
        async with open_remoting_client(connector=self._connector()) as client:
            if file is None:
                yield client
                return
            from rocketpy.transport.signing import SigningClient

            yield SigningClient(client, lambda: file.credentials)

    def _connector(self) -> Connector:
        """Return how to call name servers and the master."""
        calls = self.inherited.certificates.calls
        if calls is None:
            return connect
        return tls_connector(lambda: calls.context)

    @property
    def _metrics_certificates(self) -> Certificates | None:
        """The certificates by which metrics are served; None: by plain HTTP, or not at all."""
        uses_tls = self.metrics is not None and self.inherited.settings.rocketpy.metrics_use_tls
        return self.inherited.certificates.serves if uses_tls else None

    def _read_a_piece(self, moved: Callable[[], None]) -> None:
        """Report that the long read of the log at the start moves: it is no hang, and no fault of a member."""
        moved()
        if self.inherited.member is not None:
            self.inherited.member.memory.marks.manager_moved_s = time.monotonic()

    async def _serve(
        self,
        context: WorkerContext,
        server: RequestServer,
        controller: BrokerController,
        role: ManagerRole | None,
        measured: Measured,
    ) -> None:
        """Serve until stopped, and then end the tasks beside it, also if they wait."""
        async with trio.open_nursery() as beside:
            beside.start_soon(_report_ready, context, controller, self.inherited.member is None)
            if self.metrics is not None:
                beside.start_soon(_serve_metrics, self.metrics, measured, self._metrics_certificates)
            if role is not None:
                beside.start_soon(role.run)
            for certificates in filter(None, (self.inherited.certificates.calls, self._metrics_certificates)):
                from rocketpy.transport.tls import reload_duty

                beside.start_soon(run_duty, reload_duty(certificates), server.gateway.faults)
            if (file := self.inherited.certificates.credentials) is not None:
                beside.start_soon(run_duty, _credentials_duty(file), server.gateway.faults)
            await server.run(context.beat_s)
            beside.cancel_scope.cancel()


def _credentials_duty(file: CredentialsFile) -> Duty:
    from rocketpy.acl.credentials import LOOK_S

    async def look() -> None:
        await trio.to_thread.run_sync(file.refresh)  # a stat waits for ever where a mount hangs

    return Duty("loading changed credentials", LOOK_S, look)


async def _report_ready(context: WorkerContext, controller: BrokerController, waits: bool) -> None:
    """Report that this worker serves.

    `waits`: report only when name servers know the broker, because a program that waits for the ready line asks for
    routes next. A member of a group does not wait: it serves without name servers, and a silent one would be a fault of
    the member.
    """
    if waits:
        await controller.services.registrar.wait_first_round()
    context.report_ready()


async def _serve_metrics(listener: socket.socket, measured: Measured, certificates: Certificates | None) -> None:
    """Serve metrics on `listener` from the first connection on, until cancelled.

    Before, nobody needs the endpoint, which is memory (boot/memory.py).
    """
    await trio.lowlevel.wait_readable(listener)
    token = trio.lowlevel.current_trio_token()
    endpoint = await trio.to_thread.run_sync(_open_endpoint, listener, measured, token, certificates)
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(endpoint.close)  # a running scrape still needs this loop


def _open_endpoint(
    listener: socket.socket, measured: Measured, token: trio.lowlevel.TrioToken, certificates: Certificates | None
) -> Endpoint:
    from rocketpy.metrics.collector import BrokerCollector, QueueCollector
    from rocketpy.metrics.endpoint import Endpoint

    from .scrapes import Scrapes
    from .snapshot import SnapshotTaker

    scrapes = Scrapes(SnapshotTaker(*measured), token)
    collector = BrokerCollector(scrapes.snapshot, scrapes.take.settings.rocketpy.shown_names, scrapes.make)
    contexts = None if certificates is None else lambda: certificates.context

    def queues(topics: list[str]) -> QueueCollector:
        return QueueCollector(partial(scrapes.queues, topics), scrapes.make)

    return Endpoint(listener, collector, contexts, queues=queues)
