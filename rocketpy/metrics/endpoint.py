"""The HTTP endpoint that Prometheus scrapes: an application in a thread, with TLS if it is told to. What it answers to
other requests than the usual scrape is prometheus_client's.

Bounds: SCRAPES_MAX connections at once, each in a thread; further ones are closed. Of each connection the silence, and
the time from its begin to its end.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import math
import os
import select
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
from prometheus_client.exposition import choose_encoder, gzip_accepted

from rocketpy.logs import LogLimit, and_more

from .address import listen, port_of
from .collector import RowCollector

if TYPE_CHECKING:
    import ssl

    Contexts = Callable[[], ssl.SSLContext]

logger = logging.getLogger(__name__)

SILENCE_MAX_S = 10.0  # of a client: in its handshake, its request, and in reading the answer
SCRAPE_MAX_S = 30.0  # of a client that is not silent: from its connection to the end of its answer
SCRAPES_MAX = 16
LOOK_S = 0.5  # at connections that take too long, while there are some
OPENMETRICS = "application/openmetrics-text"
OTHER_NAMES = ("escaping=dots", "escaping=values")  # prometheus_client writes names in other ways then
GZIP_LEVEL = 1  # of 2.5 MB: 10 ms of the processor instead of 60, and a tenth more bytes


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
        self._closing = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def serve_until_closed(self) -> None:
        """Take connections until `close`; the body of the server's thread, which rests while there are none."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        poller.register(self._closing, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll(LOOK_S * 1000 if self._scrapes else None)}
            if self._closing in ready:
                return
            if ready:
                self.handle_request()
            self.cut_late()

    def close(self, thread: threading.Thread) -> None:
        """End `serve_until_closed` in its thread, and close the listener."""
        os.eventfd_write(self._closing, 1)
        thread.join()
        os.close(self._closing)
        self.server_close()

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

    def cut_late(self) -> None:
        """Cut the connections that have taken too long; in the thread of the server."""
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
        with self._lock:  # `cut_late` uses the descriptor in it
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
        collector: RowCollector[Any],
        contexts: Contexts | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        scrape_max_s: float = SCRAPE_MAX_S,
        queues: Callable[[list[str]], RowCollector[Any]] | None = None,
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
        self._server.timeout = 0.0  # a connection that waited is gone: `handle_request` does not wait for another
        self._thread = threading.Thread(target=self._server.serve_until_closed, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; returns when the thread is gone."""
        self._server.close(self._thread)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _application(
    collector: RowCollector[Any], queues: Callable[[list[str]], RowCollector[Any]] | None
) -> Callable[..., Any]:
    """Return the WSGI application: a scrape that names topics shows their queues and nothing else, so that Prometheus
    may scrape both."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        topics = query.get("queues") if queues else None
        shown = queues(topics) if queues and topics else collector
        encoder, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        is_usual = environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"] != "/favicon.ico"
        if not is_usual or "name[]" in query or content_type.endswith(OTHER_NAMES):
            registry = CollectorRegistry()
            registry.register(shown)
            return make_wsgi_app(registry)(environ, start_response)
        text = shown.text(encoder, is_openmetrics=content_type.startswith(OPENMETRICS))
        headers = [("Content-Type", content_type)]
        if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
            text = gzip.compress(text, GZIP_LEVEL)
            headers.append(("Content-Encoding", "gzip"))
        start_response("200 OK", headers)
        return [text]

    return application


def _reason(error: OSError) -> str:
    reason = str(getattr(error, "reason", None) or error.strerror or error)
    if reason == "HTTP_REQUEST":
        return "it speaks no TLS (metricsUseTLS=true): give its job `scheme: https`"
    return reason


def serve(host: str, port: int, collector: RowCollector[Any], contexts: Contexts | None = None) -> Endpoint:
    """Serve `collector` on host and port. Whether to serve at all (`metricsPort = 0`) is the caller's to decide.

    Raises:
        ConfigError: the address cannot be listened on, in one line that says why and what to change.
    """
    return Endpoint(listen(host, port), collector, contexts)
