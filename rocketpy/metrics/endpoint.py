"""The HTTP endpoint that Prometheus scrapes: prometheus_client's application in a thread, with TLS if it is told to.

Bounds: SCRAPES_MAX connections at once, each in a thread; further ones are closed. Of each connection the silence, and
the time from its begin to its end.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import attrs
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from rocketpy.logs import LogLimit, and_more

from .address import listen, port_of

if TYPE_CHECKING:
    import ssl

    Contexts = Callable[[], ssl.SSLContext]

logger = logging.getLogger(__name__)

SILENCE_MAX_S = 10.0  # of a client: in its handshake, its request, and in reading the answer
SCRAPE_MAX_S = 30.0  # of a client that is not silent: from its connection to the end of its answer
SCRAPES_MAX = 16
LOOK_S = 0.5  # at connections that take too long


@attrs.define(eq=False)
class _Scrape:
    """A connection to the endpoint, by a duplicate of its descriptor: TLS takes the first one over."""

    connection: socket.socket
    host: str
    due_s: float
    """When it is cut; inf: that is done."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per scrape; the process does not wait for them when it ends."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], contexts: Contexts | None, silence_max_s: float, scrape_max_s: float
    ) -> None:
        super().__init__(address, _SilentHandler, bind_and_activate=False)
        self._contexts, self._silence_max_s, self._scrape_max_s = contexts, silence_max_s, scrape_max_s
        self._limit, self._lock = LogLimit(), threading.Lock()
        self._scrapes: dict[socket.socket, _Scrape] = {}  # by the connection; guarded by `_lock`

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection, or close it; in the thread of the server."""
        with self._lock:
            is_full = len(self._scrapes) >= SCRAPES_MAX
        if is_full:
            self.shutdown_request(request)
            self._tell("closed", "closed a scrape of %s: %d others have not ended%s", client_address[0], SCRAPES_MAX)
            return
        scrape = _Scrape(request.dup(), client_address[0], time.monotonic() + self._scrape_max_s)
        with self._lock:
            self._scrapes[request] = scrape
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._end(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection; the body of its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end(request)

    def service_actions(self) -> None:
        """Cut the connections that have taken too long; in the thread of the server, every LOOK_S."""
        now_s = time.monotonic()
        with self._lock:
            late = [scrape for scrape in self._scrapes.values() if scrape.due_s <= now_s]
            for scrape in late:
                scrape.due_s = math.inf
                with contextlib.suppress(OSError):
                    scrape.connection.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and cannot write
        for scrape in late:
            self._tell("late", "closed a scrape of %s: it took more than %g s%s", scrape.host, self._scrape_max_s)

    def _end(self, request: socket.socket) -> None:
        with self._lock:  # `service_actions` uses the descriptor in it
            self._scrapes.pop(request).connection.close()

    def _tell(self, kind: str, text: str, *values: object) -> None:
        if told := self._limit.take(kind):
            logger.warning(text, *values, and_more(told))

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one scrape, in its thread."""
        request.settimeout(self._silence_max_s)
        try:
            if self._contexts is not None:
                request = self._contexts().wrap_socket(request, server_side=True)  # the whole handshake has that time
            with request:
                super().finish_request(request, client_address)
        except OSError as exc:  # ssl.SSLError is one
            self._tell("failed", "a scrape of %s failed: %s%s", client_address[0], _reason(exc))


class _Answer(io.BufferedIOBase):
    """The answer of a scrape. Every failed write raises BrokenPipeError, at which wsgiref ends without a traceback;
    TLS has other errors for it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, data: Any) -> int:
        try:
            self._connection.sendall(data)
        except OSError as exc:
            raise BrokenPipeError(_reason(exc)) from exc
        return len(data)


class _SilentHandler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.wfile = _Answer(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


class Endpoint:
    """A running endpoint on a listening socket, which it takes over; `close` it, or use it as a context manager.

    Starts a thread: not for a process that will fork.
    """

    def __init__(
        self,
        listener: socket.socket,
        collector: Collector,
        contexts: Contexts | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        scrape_max_s: float = SCRAPE_MAX_S,
        queues: Callable[[list[str]], Collector] | None = None,
    ) -> None:
        """Serve `collector`.

        Args:
            contexts: asked for the TLS of each scrape; None: they are plain.
            queues: returns the collector of a scrape that names topics, `/metrics?queues=TOPIC&queues=TOPIC`.
        """
        host, self.port = listener.getsockname()[0], port_of(listener)
        self._server = _Server((host, self.port), contexts, silence_max_s, scrape_max_s)
        self._server.socket.close()
        self._server.socket = listener
        self._server.server_name, self._server.server_port = host, self.port
        self._server.setup_environ()
        self._server.set_app(_application(collector, queues))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; returns when the thread is gone."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _application(collector: Collector, queues: Callable[[list[str]], Collector] | None) -> Callable[..., Any]:
    """Return the WSGI application: a scrape that names topics shows their queues and nothing else, so that Prometheus
    may scrape both."""

    def serve_one(collector: Collector) -> Callable[..., Any]:
        registry = CollectorRegistry()
        registry.register(collector)
        return make_wsgi_app(registry)

    whole = serve_one(collector)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        topics = parse_qs(environ.get("QUERY_STRING", "")).get("queues") if queues else None
        return (serve_one(queues(topics)) if queues and topics else whole)(environ, start_response)

    return application


def _reason(error: OSError) -> str:
    reason = str(getattr(error, "reason", None) or error.strerror or error)
    if reason == "HTTP_REQUEST":
        return "it speaks no TLS (metricsUseTLS=true): give its job `scheme: https`"
    return reason


def serve(host: str, port: int, collector: Collector, contexts: Contexts | None = None) -> Endpoint:
    """Serve `collector` on host and port. Whether to serve at all (`metricsPort = 0`) is the caller's to decide.

    Raises:
        ConfigError: the address cannot be listened on, in one line that says why and what to change.
    """
    return Endpoint(listen(host, port), collector, contexts)
