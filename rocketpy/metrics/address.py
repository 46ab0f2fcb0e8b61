"""Whether the endpoint can listen on its address; known before anything is started, and without prometheus_client."""

from __future__ import annotations

import errno
import socket

from rocketpy.errors import ConfigError


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
            raise cannot_listen(host, port, exc) from exc


def cannot_listen(host: str, port: int, exc: OSError) -> ConfigError:
    """The one line that says why, and what to change."""
    if exc.errno == errno.EADDRINUSE:
        reason = f"{host}:{port} is in use by another process; choose another port, or 0 for no metrics"
    else:
        reason = f"cannot listen on {host}:{port}: {exc.strerror or exc}"
    return ConfigError(reason, key="metricsPort")
