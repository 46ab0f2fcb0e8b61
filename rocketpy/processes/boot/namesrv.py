"""A name server: on its own, or as a worker beside a broker (`rocketpy standalone`)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

import attrs
import trio

from rocketpy.config import NamesrvSettings
from rocketpy.namesrv import Listeners, NameServer, run_namesrv
from rocketpy.reactor.ring import WorkerBlock
from rocketpy.reactor.worker_spec import StopPhase, WorkerContext, WorkerSpec
from rocketpy.transport.duties import shared_time

from ...logs import set_up_logging
from ..workers.garbage_collection import short_collections
from .capacity import raise_descriptor_limit
from .service_manager import ServiceManager

NAMESRV = "namesrv"


def run_name_server(settings: NamesrvSettings, manager: ServiceManager) -> int:
    """Run a name server in this process until SIGTERM or SIGINT; its exit status.

    Raises:
        ConfigError: the port is taken, or the key-value table is damaged; one line.
    """
    set_up_logging(settings.rocketpy.log_level, settings.rocketpy.log_format)
    raise_descriptor_limit()
    backlog = settings.server.server_socket_backlog
    passed = {
        name: manager.take(host, port, key="listeners" if name else "listenPort", backlog=backlog)
        for name, (host, port) in settings.listeners.items()
    }
    manager.close_rest()

    def started(server: NameServer, listeners: Listeners) -> None:
        for name, (host, port) in settings.listeners.items():
            if not passed[name]:
                manager.keep(host, port, [one.socket.fileno() for one in listeners[name]])
        _serve_metrics(settings, server)
        manager.tell_ready()

    return run_namesrv(settings, started, passed, manager.beat)


def _serve_metrics(settings: NamesrvSettings, server: NameServer) -> None:
    if settings.rocketpy.metrics_port <= 0:  # a name server has no port of its own choice
        return
    from rocketpy.metrics.collector import NamesrvCollector  # only now, only here
    from rocketpy.metrics.endpoint import serve
    from rocketpy.metrics.process_memory import process_memory
    from rocketpy.metrics.snapshot import AccessSnapshot, NamesrvSnapshot, TlsSnapshot

    def take() -> NamesrvSnapshot:
        memory = process_memory(os.getpid())
        counted = attrs.asdict(server.statistics(), recurse=False)
        tls, access = counted.pop("tls"), counted.pop("access")
        return NamesrvSnapshot(
            **counted,
            tls=None if tls is None else TlsSnapshot(**attrs.asdict(tls)),
            access=None if access is None else AccessSnapshot(**attrs.asdict(access)),
            rss_bytes=memory.rss_bytes if memory else None,
        )

    own, acceptor = settings.rocketpy, server.tls
    contexts = (lambda: acceptor.context) if own.metrics_use_tls and acceptor is not None else None
    serve(own.metrics_host, own.metrics_port, NamesrvCollector(take), contexts)


def namesrv_spec(settings: NamesrvSettings, listeners: Mapping[str, socket.socket]) -> WorkerSpec:
    """Return a name server as a worker. Listeners are opened before the fork, so that a restart loses no connection.

    So are its files read: what a child makes takes pages of its own (memory.py).

    Raises:
        ConfigError: one of the files cannot be used.
    """
    return WorkerSpec(
        name=NAMESRV,
        role=NAMESRV,
        block=WorkerBlock(NAMESRV, 255),
        main=NamesrvMain(NameServer(settings), listeners),
        keep_fds=tuple(listener.fileno() for listener in listeners.values()),
        stop_phase=StopPhase.SELECTORS,
    )


@attrs.frozen(eq=False)
class NamesrvMain:
    """`main` of the name server worker."""

    server: NameServer
    listeners: Mapping[str, socket.socket]

    def __call__(self, context: WorkerContext) -> None:
        with short_collections():
            trio.run(self._run, context)

    async def _run(self, context: WorkerContext) -> None:
        server = self.server
        server.refresh()
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, await server.listen({name: [one] for name, one in self.listeners.items()}))
            context.report_ready()
            while not context.block.stop:
                context.block.beat(time.monotonic_ns())
                context.block.prepare_sleep()
                with trio.move_on_at(shared_time(trio.current_time(), context.beat_s)):
                    await trio.lowlevel.wait_readable(context.block.doorbell)
                context.block.awake()
            nursery.cancel_scope.cancel()
