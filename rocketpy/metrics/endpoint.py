"""The HTTP endpoint that Prometheus scrapes: prometheus_client's application in a thread, with TLS if it is told to."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from rocketpy.logs import LogLimit, and_more

from .address import listen, port_of

if TYPE_CHECKING:
    import ssl

    Contexts = Callable[[], ssl.SSLContext]

logger = logging.getLogger(__name__)

SILENCE_MAX_S = 10.0  # of a client: in its handshake, its request, and in reading the answer


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per scrape; the process does not wait for them when it ends."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], contexts: Contexts | None, silence_max_s: float) -> None:
        super().__init__(address, _SilentHandler, bind_and_activate=False)
        self._contexts, self._silence_max_s, self._limit = contexts, silence_max_s, LogLimit()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one scrape, in its thread."""
        request.settimeout(self._silence_max_s)
        try:
            if self._contexts is not None:
                request = self._contexts().wrap_socket(request, server_side=True)  # the whole handshake has that time
            with request:
                super().finish_request(request, client_address)
        except OSError as exc:  # ssl.SSLError is one
            if told := self._limit.take():
                logger.warning("a scrape of %s failed%s: %s", client_address[0], and_more(told), _reason(exc))


class _SilentHandler(WSGIRequestHandler):
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
    ) -> None:
        """`contexts` is asked for the TLS of each scrape; None: they are plain."""
        registry = CollectorRegistry()
        registry.register(collector)
        host, self.port = listener.getsockname()[0], port_of(listener)
        self._server = _Server((host, self.port), contexts, silence_max_s)
        self._server.socket.close()
        self._server.socket = listener
        self._server.server_name, self._server.server_port = host, self.port
        self._server.setup_environ()
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
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
