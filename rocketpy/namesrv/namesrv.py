"""The name server: one process, one trio loop, no state on disk but the key-value table.

Source: RocketMQ 4.9 `NamesrvController`, `BrokerHousekeepingService`, `NamesrvStartup`.
"""

from __future__ import annotations

import errno
import logging
import math
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from rocketpy.config import NamesrvSettings, TlsMode
from rocketpy.errors import ConfigError
from rocketpy.faults import Faults
from rocketpy.logs import LogLimit, and_more
from rocketpy.networks import parse_networks
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.request_log import sampled
from rocketpy.transport.duties import Duty, as_duty, rest, run_duty
from rocketpy.transport.limits import ChannelLimits
from rocketpy.transport.server import RemotingServer, TaskStatus
from rocketpy.transport.streams import listening_port, open_listeners

from .kv_config import KVConfigManager
from .processor import NamesrvProcessor
from .route_info import RouteInfoManager

if TYPE_CHECKING:
    from rocketpy.remoting.abc import Processor
    from rocketpy.tls import TlsStatistics
    from rocketpy.transport.tls import TlsAcceptor

    from .access import AccessControl, AccessStatistics

logger = logging.getLogger(__name__)

SCAN_FIRST_S = 5.0
BEAT_S = 1.0
SCAN_INTERVAL_S = 10.0
LATE_S = 5.0  # a scan later than this means that the process was paused
FORGET_INTERVAL_S = 2.0
LEAVING_INTERVAL_S, LEAVING_REST_S = 0.5, 2.0  # while a master is leaving, and while none is: LEAVING_MS is 3 s
KV_LOG_FIRST_S = 60.0
KV_LOG_INTERVAL_S = 600.0
KV_LOGGED_MAX = 100
REMOVALS_LOGGED_MAX = 20  # a minute of each reason: more than brokers that go together
DESCRIPTORS_KEPT = 64  # of the limit of open files, for what is no connection
Listeners: TypeAlias = Mapping[str, Sequence[trio.SocketListener]]
READY_LINE = "The Name Server boot success. serializeType=JSON"


@attrs.frozen(kw_only=True)
class NamesrvStatistics:
    """Counters; the fields are those of `metrics.NamesrvSnapshot`."""

    brokers: int
    clusters: int
    topics: int
    connections: int
    requests: Mapping[str, int]
    faults: Mapping[str, int]
    registrations_refused: int
    tls: TlsStatistics | None = None  # None: TLS is off
    access: AccessStatistics | None = None  # None: there is no access control


class NameServer:
    """Registers brokers and tells clients where topics are.

    Lifecycle: create it (reads the key-value table), `listen()`, `run()` until cancelled. A broker is removed when its
    connection closes; the scan removes brokers whose connection hangs.
    """

    def __init__(self, settings: NamesrvSettings) -> None:
        """Raises ConfigError: the key-value table is damaged, or a file of a certificate or of accounts is unusable."""
        self._server_config = settings.server
        self.routes = RouteInfoManager()
        self._kv = KVConfigManager.load(Path(settings.namesrv.kv_config_path))
        self._processor = NamesrvProcessor(settings, self.routes, self._kv, _now_ms)
        self.faults = Faults()
        self.tls = _tls_acceptor(settings)
        """None: TLS is off."""
        self._access = _access_control(settings, self._processor)
        processor, sample = self._access or self._processor, settings.rocketpy.request_log_sample
        self._server = RemotingServer(
            RequestTable({}, default=sampled({0: processor}, sample)[0], faults=self.faults),
            connection_listeners=[self],
            limits=ChannelLimits(
                idle_s=settings.server.server_channel_max_idle_time_seconds,
                frame_size_max=settings.rocketpy.frame_max_length,
            ),
            proxies=parse_networks(settings.rocketpy.proxy_protocol_from),
            acceptor=self.tls,
        )
        self.port = settings.server.listen_port
        self._scanned_at_s = -math.inf
        self._removals = LogLimit(lines=REMOVALS_LOGGED_MAX)

    def refresh(self) -> None:
        """Read key-value table and accounts again, and a changed certificate: in a forked worker, before it serves.

        Raises:
            ConfigError: one of them cannot be used.
        """
        self._kv.reload()
        if self.tls is not None:
            self.tls.refresh()
        if self._access is not None:
            self._access.refresh()

    @property
    def settings(self) -> NamesrvSettings:
        """The current settings; run-time updates replace them."""
        return self._processor.settings

    async def listen(self, passed: Mapping[str, Sequence[socket.socket]] = MappingProxyType({})) -> Listeners:
        """Return the sockets to `run` with.

        Args:
            passed: sockets that listen already; for others, listen on the addresses of the configuration.

        Raises:
            ConfigError: an address cannot be listened on, in one line that says why.
        """
        opened: dict[str, Sequence[trio.SocketListener]] = {}
        for name, (host, port) in self.settings.listeners.items():
            ours = [trio.SocketListener(trio.socket.from_stdlib_socket(one)) for one in passed.get(name, ())]
            opened[name] = ours or await _listen(name, host, port, self._server_config.server_socket_backlog)
        self.port = listening_port(opened[""][0])
        return opened

    async def run(
        self,
        listeners: Listeners,
        *,
        task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled."""
        self._scanned_at_s = trio.current_time()
        self._server.connections_max = _connections_max()
        self._server.address_connections_max = self.settings.rocketpy.address_connections_max or math.inf
        async with trio.open_nursery() as nursery:
            for name, sockets in listeners.items():
                await nursery.start(partial(self._server.run, sockets, name=name))
            for duty in self.duties():
                nursery.start_soon(run_duty, duty, self.faults)
            if obstacle := self._kv.obstacle:  # routes need no disk, so it serves
                logger.error("key-value table %s cannot be changed: %s", self.settings.namesrv.kv_config_path, obstacle)
            logger.info("serving on %s:%d", self._server_config.bind_address, self.port)
            task_status.started(None)

    def duties(self) -> list[Duty]:
        """The background duties."""
        return [
            Duty("dropping silent brokers", SCAN_INTERVAL_S, as_duty(self._scan), first_s=SCAN_FIRST_S),
            Duty("dropping masters that have left", LEAVING_INTERVAL_S, self._drop_leaving),
            Duty("forgetting brokers that are gone", FORGET_INTERVAL_S, self._processor.forget_gone_brokers),
            Duty("logging the key-value table", KV_LOG_INTERVAL_S, as_duty(self._log_kv), first_s=KV_LOG_FIRST_S),
            *([self.tls.duty()] if self.tls is not None else ()),
            *([self._access.duty()] if self._access is not None else ()),
        ]

    def connection_closed(self, connection: int) -> None:
        """Remove the brokers that registered on it (remoting.abc.ConnectionListener)."""
        for addr in self.routes.connection_closed(connection, _now_ms()):
            self._warn("removed broker %s: its connection was closed%s", addr)

    def statistics(self) -> NamesrvStatistics:
        """Plain numbers; safe to read from another thread."""
        return NamesrvStatistics(
            brokers=len(self.routes.live_brokers),
            clusters=self.routes.cluster_count,
            topics=self.routes.topic_count,
            connections=len(self._server.channels),
            requests=dict(self._processor.requests),
            faults=dict(self.faults.counts),
            registrations_refused=self._processor.admission.refused,
            tls=None if self.tls is None else self.tls.statistics(),
            access=None if self._access is None else self._access.statistics(),
        )

    def _scan(self) -> None:
        """Remove brokers that have been silent for two minutes, and close their connections."""
        late_s = trio.current_time() - self._scanned_at_s - SCAN_INTERVAL_S
        self._scanned_at_s = trio.current_time()
        if late_s > LATE_S:
            logger.warning(
                "this process was paused for %.1f s (stopped, frozen or short of CPU): no broker is removed because "
                "of it",
                late_s,
            )
            self.routes.forgive_silence(_now_ms())
        gone = self.routes.expire(_now_ms())
        channels = {channel.connection: channel for channel in self._server.channels} if gone else {}
        for addr, connection in gone:
            self._warn("removed broker %s: it has not registered for two minutes%s", addr)
            if connection in channels:
                channels[connection].close()

    async def _drop_leaving(self) -> None:
        while True:
            for addr in self.routes.drop_leaving(_now_ms()):
                text = "removed master %s: it has left, and no other master of its group has registered%s"
                self._warn(text, addr)
            await rest(LEAVING_INTERVAL_S if self.routes.has_leaving else LEAVING_REST_S)

    def _warn(self, text: str, addr: str) -> None:
        """Log a removal: a stranger who registers and leaves again and again must not fill the log."""
        if told := self._removals.take(text):
            logger.warning(text, addr, and_more(told))

    def _log_kv(self) -> None:
        for namespace, values in self._kv.table.items():
            more = max(0, len(values) - KV_LOGGED_MAX)
            some = dict(islice(values.items(), KV_LOGGED_MAX))
            logger.info("key-value table, %s: %s%s", namespace, some, f" and {more} more" if more else "")


def run_namesrv(
    settings: NamesrvSettings,
    started: Callable[[NameServer, Listeners], None] = lambda server, listeners: None,
    passed: Mapping[str, Sequence[socket.socket]] = MappingProxyType({}),
    beat: Callable[[float], None] = lambda now_s: None,
) -> int:
    """Run a name server in this process, until SIGTERM or SIGINT. Must be called in the main thread.

    Args:
        started: called once it serves, after the ready line is on standard output.
        passed: sockets that listen already, of a service manager, by the names of `settings.listeners`.
        beat: called each BEAT_S by the loop that serves, with the time of its clock.
    Returns: the exit status.
    Raises:
        ConfigError: the port is taken, or the key-value table is damaged.
    """
    server = NameServer(settings)
    for note in settings.notes:
        logger.warning("configuration: %s", note)
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:  # ignored before and after the receiver: a second signal to a server that is stopping does not kill it
        trio.run(_serve_until_signal, server, started, passed, beat)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


async def _serve_until_signal(
    server: NameServer,
    started: Callable[[NameServer, Listeners], None],
    passed: Mapping[str, Sequence[socket.socket]],
    beat: Callable[[float], None],
) -> None:
    listeners = await server.listen(passed)  # outside of a nursery: else the error of a port in use would be a group
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, listeners)
            print(READY_LINE, flush=True)
            started(server, listeners)
            nursery.start_soon(_beat, beat)
            async for number in signals:
                logger.info("stopping on %s", signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                break


async def _beat(beat: Callable[[float], None]) -> None:
    while True:
        beat(trio.current_time())
        await rest(BEAT_S)


def _connections_max() -> float:
    """Return the number of connections that the limit of open files leaves room for."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if descriptors == resource.RLIM_INFINITY else max(1, descriptors - DESCRIPTORS_KEPT)


async def _listen(name: str, host: str, port: int, backlog: int) -> Sequence[trio.SocketListener]:
    port_key, host_key = ("listenPort", "bindAddress") if not name else ("listeners", "listeners")
    try:
        return await open_listeners(host, port, backlog=backlog)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            remedy = f"stop it (ss -ltnp 'sport = :{port}') or choose another port"
            raise ConfigError(f"{host}:{port} is in use by another process; {remedy}", key=port_key) from exc
        if exc.errno == errno.EACCES:
            raise ConfigError(f"{host}:{port} needs privileges; choose a port above 1023", key=port_key) from exc
        raise ConfigError(f"cannot listen on {host}:{port}: {exc.strerror or exc}", key=host_key) from exc


def _tls_acceptor(settings: NamesrvSettings) -> TlsAcceptor | None:
    tls = settings.tls
    if not tls.is_served:
        return None
    from rocketpy.tls import Certificates  # nothing of TLS is in memory where it is off
    from rocketpy.transport.tls import TlsAcceptor

    return TlsAcceptor(
        Certificates.of_server(tls),
        is_plain_served=tls.tls_server_mode is TlsMode.PERMISSIVE,
        handshake_s=settings.rocketpy.tls_handshake_timeout_millis / 1000,
    )


def _access_control(settings: NamesrvSettings, processor: Processor) -> AccessControl | None:
    if not settings.namesrv.acl_enable:
        return None
    from .access import AccessControl  # no accounts, and no YAML, are in memory where it is off

    return AccessControl(settings, processor)


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
