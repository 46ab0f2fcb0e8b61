"""The HTTP endpoint that Prometheus scrapes: prometheus_client's own server, in a thread."""

from __future__ import annotations

import errno
import socket
from types import TracebackType

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from rocketpy.errors import ConfigError


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
        raise _cannot_listen(host, port, exc) from exc


def check_address(host: str, port: int) -> None:
    """Find out before anything is started whether `serve` can listen there.

    Raises:
        ConfigError: it cannot, as `serve` would say it.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT does not matter
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as exc:
            raise _cannot_listen(host, port, exc) from exc


def _cannot_listen(host: str, port: int, exc: OSError) -> ConfigError:
    if exc.errno == errno.EADDRINUSE:
        reason = f"{host}:{port} is in use by another process; choose another port, or 0 for no metrics"
    else:
        reason = f"cannot listen on {host}:{port}: {exc.strerror or exc}"
    return ConfigError(reason, key="metricsPort")
