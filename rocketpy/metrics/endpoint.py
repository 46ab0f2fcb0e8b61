"""The HTTP endpoint that Prometheus scrapes: prometheus_client's application in a thread."""

from __future__ import annotations

import socket
import threading
from socketserver import ThreadingMixIn
from types import TracebackType
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from .address import listen, port_of


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per scrape; the process does not wait for them when it ends."""

    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


class Endpoint:
    """A running endpoint on a listening socket, which it takes over; `close` it, or use it as a context manager.

    Starts a thread: not for a process that will fork.
    """

    def __init__(self, listener: socket.socket, collector: Collector) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        host, self.port = listener.getsockname()[0], port_of(listener)
        self._server = _Server((host, self.port), _SilentHandler, bind_and_activate=False)
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


def serve(host: str, port: int, collector: Collector) -> Endpoint:
    """Serve `collector` on host and port. Whether to serve at all (`metricsPort = 0`) is the caller's to decide.

    Raises:
        ConfigError: the address cannot be listened on, in one line that says why and what to change.
    """
    return Endpoint(listen(host, port), collector)
