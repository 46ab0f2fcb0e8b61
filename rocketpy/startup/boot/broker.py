"""Runs a broker: connects all parts, from its settings to the close of its store.

    open sockets -> open (and recover) the store -> blocks and rings -> fork workers -> serve -> stop -> close the store

Before the store is open nothing on the disk is changed, so an error found before costs nothing. Modules of the workers
are imported while the store is being opened: opening is mostly C and the disk, imports are mostly Python.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.config.rocketpy_config import METRICS_PORT_FREE
from rocketpy.errors import ConfigError
from rocketpy.native import require_core
from rocketpy.reactor.acceptor import open_listener
from rocketpy.reactor.supervisor import Supervisor
from rocketpy.reactor.worker_spec import WorkerSpec

from .capacity import connections_max, memory_bytes, raise_descriptor_limit
from .logs import set_up_logging
from .store_opening import StoreOpening

logger = logging.getLogger(__name__)


def run_broker(
    settings: BrokerSettings,
    *,
    beside: Callable[[], Sequence[WorkerSpec]] = lambda: (),
    ready_lines: Callable[[BrokerSettings], Sequence[str]] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; in the main thread of a process without other threads.

    Args:
        beside: workers that live and end with the broker (a name server of its own).
        ready_lines: lines to print when it serves, from the final settings; the reference's line by default.
    Returns: the exit status: 0 after a clean stop.
    Raises:
        ConfigError, TransportError, StoreError, NativeMissing: one line each; nothing was started.
    """
    if settings.store.is_automatic:
        raise ConfigError("automatic is being built, and does not serve yet; use plain", key="haMode")
    require_core()
    set_up_logging(settings.rocketpy.log_level)
    for note in settings.notes:
        logger.warning("%s", note)
    say = ready_lines or (lambda settings: [ready_line(settings)])
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(listener) for listener in _listeners(settings)]
        replication = None if settings.is_slave else stack.enter_context(_replication_listener(settings))
        metrics = _metrics_listener(settings)
        if metrics is not None:
            stack.enter_context(metrics)
            settings = _with(settings, metrics_port=metrics.getsockname()[1])
        settings = _with_connections_max(settings)
        opening = StoreOpening(settings.store)
        clean = False
        try:
            from .memory import fill_pools, trim_before_fork
            from .worker_list import Topology, manager_memory, reactor_sizes, worker_specs

            specs = list(beside())
            opened = opening.wait()
            most, selectors = settings.rocketpy.connections_max, settings.rocketpy.selector_workers
            logger.info("each of %d selectors accepts up to %d connections (connectionsMax)", selectors, most)
            topology = Topology.create(reactor_sizes(settings))
            memory = manager_memory(settings, opened)
            specs += worker_specs(settings, topology, opened, memory, listeners, replication, metrics)
            supervisor = Supervisor(
                specs,
                stop_timeout_s=settings.rocketpy.stop_timeout_millis / 1000,
                on_ready=lambda: print("\n".join(say(settings)), flush=True),
            )
            trim_before_fork()
            filling = fill_pools()
            status = supervisor.run()
            del filling
            clean = status == 0
        finally:
            opening.close(clean=clean)
    return status


def ready_line(settings: BrokerSettings) -> str:
    """The line that the reference prints when a broker serves."""
    place = f"[{settings.broker.broker_name}, {settings.broker_addr}]"
    known = f" and name server is {settings.broker.namesrv_addr}" if settings.broker.namesrv_addr else ""
    return f"The broker{place} boot success. serializeType=JSON{known}"


def _replication_listener(settings: BrokerSettings) -> socket.socket:
    """The HA port, which slaves dial."""
    return open_listener(
        settings.server.bind_address,
        settings.store.ha_listen_port,
        key="listenPort (listenPort + 1 is the replication port)",
    )


def _metrics_listener(settings: BrokerSettings) -> socket.socket | None:
    """The listening socket of metrics. It stays open until the broker ends, so that a restarted manager has the same
    port."""
    host, port, own = settings.rocketpy.metrics_host, settings.rocketpy.metrics_port, settings.server.listen_port
    if port == 0:
        return None
    from rocketpy.metrics import listen, listen_by_default, port_of
    from rocketpy.metrics.address import DEFAULT_PORT

    if port != METRICS_PORT_FREE:
        return listen(host, port)
    listener = listen_by_default(host, avoid=(own - 2, own, own + 1))
    if port_of(listener) != DEFAULT_PORT:
        logger.warning(
            "port %d is in use: serving metrics on port %d instead (set metricsPort to choose one)",
            DEFAULT_PORT,
            port_of(listener),
        )
    return listener


def _with_connections_max(settings: BrokerSettings) -> BrokerSettings:
    """The settings with the default of connectionsMax for this machine."""
    descriptors, selectors = raise_descriptor_limit(), settings.rocketpy.selector_workers
    if settings.rocketpy.connections_max:
        return settings
    return _with(settings, connections_max=connections_max(descriptors, memory_bytes(), selectors))


def _with(settings: BrokerSettings, **changes: Any) -> BrokerSettings:
    return attrs.evolve(settings, rocketpy=attrs.evolve(settings.rocketpy, **changes))


def _listeners(settings: BrokerSettings) -> list[socket.socket]:
    """The main and the VIP port, listening."""
    host, backlog = settings.server.bind_address, settings.server.server_socket_backlog
    main = open_listener(host, settings.server.listen_port, backlog=backlog)
    try:
        vip = open_listener(host, settings.vip_port, key="listenPort (listenPort - 2 is used too)", backlog=backlog)
    except BaseException:
        main.close()
        raise
    return [main, vip]
