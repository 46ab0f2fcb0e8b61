"""The HTTP endpoint that Prometheus scrapes: prometheus_client's own server, in a thread."""

from __future__ import annotations

from types import TracebackType

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from .address import cannot_listen


class Endpoint:
    """A running endpoint; `close` it, or use it as a context manager."""

    def __init__(self, host: str, port: int, collector: Collector) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self.host = host

    @property
    def port(self) -> int:
        """The port that is served; the kernel's choice when 0 was asked for."""
        return int(self._server.server_port)

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

    Starts a thread: not for a process that will fork.

    Raises:
        ConfigError: the address cannot be listened on, in one line that says why and what to change.
    """
    try:
        return Endpoint(host, port, collector)
    except OSError as exc:
        raise cannot_listen(host, port, exc) from exc
