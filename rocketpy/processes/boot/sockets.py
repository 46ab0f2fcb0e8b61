"""The listening sockets of a broker: they stay open until it ends, while the processes behind them come and go."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.config.rocketpy_config import METRICS_PORT_FREE
from rocketpy.errors import ConfigError
from rocketpy.reactor.acceptor import BACKLOG, open_listener

from .service_manager import ServiceManager

logger = logging.getLogger(__name__)


@attrs.frozen
class Sockets:
    """The listening sockets of one broker."""

    listeners: Sequence[socket.socket]  # the main and the VIP port
    replication: socket.socket | None  # the HA port; None: a slave
    metrics: socket.socket | None  # None: metrics are off

    @property
    def fds(self) -> tuple[int, ...]:
        return tuple(one.fileno() for one in (*self.listeners, self.replication, self.metrics) if one is not None)


@contextlib.contextmanager
def open_sockets(settings: BrokerSettings, manager: ServiceManager) -> Iterator[Sockets]:
    """Listen on every port of the broker, by the sockets of `manager` where it has them.

    Raises:
        ConfigError, TransportError: a port cannot be used.
    """
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(listener) for listener in _listeners(settings, manager)]
        replication = None if settings.is_slave else stack.enter_context(_replication_listener(settings, manager))
        manager.close_rest()  # its port may be that of metrics now
        metrics = _metrics_listener(settings)
        if metrics is not None:
            stack.enter_context(metrics)
        yield Sockets(listeners, replication, metrics)


def listen(
    manager: ServiceManager, host: str, port: int, *, key: str = "listenPort", backlog: int = BACKLOG
) -> socket.socket:
    """Return the socket that the service manager has for this port, or open one. Raises: as open_listener."""
    if taken := manager.take(host, port, key=key, backlog=backlog):
        return taken[0]
    try:
        listener = open_listener(host, port, key=key, backlog=backlog)
    except ConfigError:  # in use, perhaps by a kept socket of a former address
        if not manager.drop(port):
            raise
        listener = open_listener(host, port, key=key, backlog=backlog)
    manager.keep(host, port, [listener.fileno()])
    return listener


def _listeners(settings: BrokerSettings, manager: ServiceManager) -> list[socket.socket]:
    """Return the main and the VIP port, listening."""
    host, backlog = settings.server.bind_address, settings.server.server_socket_backlog
    main = listen(manager, host, settings.server.listen_port, backlog=backlog)
    try:
        vip = listen(manager, host, settings.vip_port, key="listenPort (listenPort - 2 is used too)", backlog=backlog)
    except BaseException:
        main.close()
        raise
    return [main, vip]


def _replication_listener(settings: BrokerSettings, manager: ServiceManager) -> socket.socket:
    """Return the HA port, which slaves dial."""
    return listen(
        manager,
        settings.server.bind_address,
        settings.store.ha_listen_port,
        key="listenPort (listenPort + 1 is the replication port)",
    )


def _metrics_listener(settings: BrokerSettings) -> socket.socket | None:
    """Return the listening socket of metrics; None: they are off. It stays open until the broker ends, so that a
    restarted manager has the same port."""
    host, port, own = settings.rocketpy.metrics_host, settings.rocketpy.metrics_port, settings.server.listen_port
    if port == 0:
        return None
    from rocketpy.metrics.address import DEFAULT_PORT, listen, listen_by_default, port_of

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
