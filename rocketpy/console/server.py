"""Server: what the console runs, from its settings to its end."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.errors import ConfigError, RocketError
from rocketpy.faults import Faults, printable
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.host import format_host
from rocketpy.networks import Network, is_in, network_of, parse_address

from .alarm_file import AlarmSettings, read_alarm_file
from .guard import BODY_S, PLACE_S, REQUEST_S, Guard
from .login import REVIEW_S, AccountFile, Sessions
from .settings import ConsoleSettings

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from .alarms import Alarms
    from .guard import App
    from .notices import Notifier

logger = logging.getLogger(__name__)

EXTRA = ("starlette", "uvicorn", "jinja2")
TIMEOUT_S = 3.0  # of one request to a broker or name server
ALARMS_S = 5.0
CERTIFICATE_S = 5.0
CONNECTIONS_MAX = 256
CLIENT_CONNECTIONS_MAX = 64  # of one address, or /64 of IPv6, that is no proxy
IDLE_CONNECTION_S = 15  # also the time for the head of a request
READ_S = 10.0  # for the client to read an answer that took all its time
ANSWERED_S = BODY_S + PLACE_S + REQUEST_S + READ_S  # from the head of a request until its client has read the answer
UNREAD_BYTES_MAX = 64 * 1024  # of answers, before the next one waits
HEAD_BYTES_MAX = 16 * 1024
BACKLOG = 128
END_S = 3  # for requests that are in progress when the console ends


def run_console(settings: ConsoleSettings, make_admin: Callable[..., Admin], **options: Any) -> int:
    """Serve until a signal. `options` are the name servers and the security of the admin client.

    Raises:
        ConfigError: one line; nothing was opened.
    """
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not installed: pip install 'rocketpy-mq[console]'")
    alarms = read_alarm_file(settings.alarms) if settings.alarms is not None else AlarmSettings()
    accounts = AccountFile(settings.accounts) if settings.accounts is not None else None
    if accounts is not None:
        accounts.check()
    certificates = _Certificates(settings)
    admin = make_admin(timeout=TIMEOUT_S, **options)
    if not admin.options.name_server_list and not admin.options.address_server_url:
        raise ConfigError("no name server is named: give -n HOST:PORT or NAMESRV_ADDR")
    with contextlib.closing(listener(settings)) as listening:
        if settings.is_secret_in_clear:
            logger.warning("secret keys come without TLS; give --certificate and --key, or put a proxy in front")
        aio.run(_Serving(settings, alarms, accounts, certificates).run, admin, listening)
    return 0


def _protocol() -> type[H11Protocol]:
    """Return uvicorn's protocol with limits that it lacks: for the head of a request, and until its answer is read."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """Ends connections of clients that send or read too slowly.

        It closes one on which no request has begun for IDLE_CONNECTION_S, also if bytes of a head come. It aborts one
        whose client has not read the answer ANSWERED_S after the request began: a mere close would wait for the client.
        """

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX)  # that of TLS is larger
            self._head = self.loop.call_later(IDLE_CONNECTION_S, self._close_idle)
            self._answered = self.loop.call_later(ANSWERED_S, self._abort_unread)

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:  # a request has begun
                self._answered.cancel()
                self._answered = self.loop.call_later(ANSWERED_S, self._abort_unread)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._head.cancel()
            self._head = self.loop.call_later(IDLE_CONNECTION_S, self._close_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            self._head.cancel()
            self._answered.cancel()
            super().connection_lost(exc)

        def _close_idle(self) -> None:
            if not self._is_in_progress and not self.transport.is_closing():  # TLS forgets how to abort if closed twice
                self.transport.close()

        def _abort_unread(self) -> None:
            transport = self.transport
            if self._is_in_progress or transport.is_closing() or transport.get_write_buffer_size():
                transport.abort()
            else:
                self._answered = self.loop.call_later(ANSWERED_S, self._abort_unread)

        @property
        def _is_in_progress(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

    return Protocol


class LimitedLines(logging.Filter):
    """Passes one line in a minute of each place in uvicorn: clients cause them before the guard sees a request."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        told = self._limit.take((record.pathname, record.lineno))
        record.msg = f"{record.msg}{and_more(told)}"
        return told > 0


class Listener(socket.socket):
    """Closes a connection beyond CONNECTIONS_MAX, or beyond CLIENT_CONNECTIONS_MAX of its client, at once, before its
    TLS handshake.

    uvicorn would only refuse its requests. Connections that say nothing would take all descriptors, those for brokers
    too, and asyncio would write thousands of lines about each that it cannot accept.
    """

    def __init__(self, listening: socket.socket, proxies: Sequence[Network]) -> None:
        super().__init__(fileno=listening.detach())
        self._proxies = proxies
        self._accepted: list[tuple[socket.socket, str]] = []  # with the network of the client

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        client = network_of(address[0])
        self._accepted = [one for one in self._accepted if one[0].fileno() >= 0]  # without those that are closed
        clients = [each for _, each in self._accepted]
        is_beyond = clients.count(client) >= CLIENT_CONNECTIONS_MAX and not self._is_proxy(address[0])
        if len(clients) >= CONNECTIONS_MAX or is_beyond:
            connection.close()
            raise BlockingIOError  # as if none had come
        self._accepted.append((connection, client))
        return connection, address

    def _is_proxy(self, host: str) -> bool:
        return is_in(parse_address(host.partition("%")[0]), self._proxies)


def listener(settings: ConsoleSettings) -> socket.socket:
    """Return a socket that listens. Raises ConfigError."""
    try:
        family = socket.getaddrinfo(settings.bind, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((settings.bind, settings.port), family=family, backlog=BACKLOG)
        return Listener(listening, settings.proxy_networks)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number is not None and number > 0 else error  # without the address, which is below
        where = format_host((settings.bind, settings.port))
        raise ConfigError(f"cannot listen on {where}: {why}; choose another --bind or --port") from error


class _Certificates:
    """The certificate of the console. New connections get the newest."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.context: ssl.SSLContext | None = None
        if (tls := settings.tls) is not None:
            from rocketpy.tls import Certificates

            self._files = Certificates.of_server(tls)
            self.context = self._files.context
            self.context.sni_callback = self._choose

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._files.context

    async def run(self) -> None:
        while self.context is not None:
            await aio.sleep(CERTIFICATE_S)
            if self._files.has_changed():
                await aio.in_thread(self._files.reload)


@attrs.frozen
class _Serving:
    """The tasks of the console."""

    settings: ConsoleSettings
    alarm_settings: AlarmSettings
    account_file: AccountFile | None
    certificates: _Certificates

    async def run(self, admin: Admin, listening: socket.socket) -> None:
        from .alarms import Alarms
        from .cluster import ClusterState
        from .message_views import MessagePages
        from .notices import Notifier
        from .poller import Poller
        from .questions import Questions
        from .views import Access, Console, application

        state, alarms = ClusterState(), Alarms(self.alarm_settings)
        access = Access(Sessions(aio.clock()), self.account_file, self.settings)
        async with admin:
            console = Console(Questions(admin, state), alarms, access)
            app = Guard(application(console, MessagePages(console).routes()), self.settings.allowed_hosts)
            notifier = Notifier(self.alarm_settings)
            async with aio.open_nursery() as nursery:
                nursery.start_soon(Poller(admin, state, self.alarm_settings).run)
                nursery.start_soon(notifier.run)
                nursery.start_soon(self._look_for_alarms, alarms, notifier, console)
                nursery.start_soon(self._review_sessions, access.sessions)
                nursery.start_soon(self.certificates.run)
                await self._serve(app, listening)
                nursery.cancel()

    async def _look_for_alarms(self, alarms: Alarms, notifier: Notifier, console: Any) -> None:
        faults = Faults(name="console")
        while True:
            await aio.sleep(ALARMS_S)
            try:
                for notice in alarms.look(console.state, console.questions.now_ms):
                    logger.info("alarm %s: %s", notice.change.value, printable(notice.condition.text))
                    notifier.tell(notice)
            except Exception as fault:  # of one round: the console and its pages go on
                faults.report("looking for alarms", fault)

    async def _review_sessions(self, sessions: Sessions) -> None:
        while self.account_file is not None:
            await aio.sleep(REVIEW_S)
            if not len(sessions):
                continue
            try:
                sessions.review(await aio.in_thread(self.account_file.digests))
            except RocketError as error:
                logger.error("sessions are kept, the accounts cannot be read: %s", printable(str(error)))

    async def _serve(self, app: App, listening: socket.socket) -> None:
        """Serve HTTP until a signal."""
        import uvicorn

        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        logging.getLogger("uvicorn.error").addFilter(LimitedLines())
        config = uvicorn.Config(
            app,
            http=_protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=IDLE_CONNECTION_S,
            timeout_graceful_shutdown=END_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        config.ssl = self.certificates.context

        class Server(uvicorn.Server):
            """Ends at a signal with status 0, where uvicorn would raise the signal again."""

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
                try:
                    yield
                finally:
                    for number, handler in before.items():
                        signal.signal(number, handler)

        scheme = "http" if self.certificates.context is None else "https"
        logger.info("console on %s://%s", scheme, format_host(listening.getsockname()[:2]))
        await Server(config).serve(sockets=[listening])
