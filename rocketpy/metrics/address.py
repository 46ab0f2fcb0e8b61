"""Opens the socket of the metrics endpoint, before any process is forked and without prometheus_client."""

from __future__ import annotations

import errno
import socket
from collections.abc import Container

from rocketpy.errors import ConfigError

DEFAULT_PORT = 5557
NEXT_PORTS = 20  # tried after the default one before the kernel may choose
BACKLOG = 16  # scrapes that wait


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this port and no other; 0 is the kernel's choice. The caller closes it.

    Raises:
        ConfigError: it cannot, in one line that says why and what to change.
    """
    try:
        return _listening(host, port)
    except OSError as exc:
        raise _cannot_listen(host, port, exc) from exc


def listen_by_default(host: str, avoid: Container[int] = ()) -> socket.socket:
    """Listen as `listen` does, on DEFAULT_PORT or, where that is taken, on one of the next ports or any free one.

    Args:
        avoid: ports that this broker will listen on.

    Raises:
        ConfigError: the host is not an address of this machine.
    """
    for port in range(DEFAULT_PORT, DEFAULT_PORT + NEXT_PORTS):
        if port not in avoid:
            try:
                return _listening(host, port)
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE:
                    raise _cannot_listen(host, port, exc) from exc
    return listen(host, 0)


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _listening(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT does not matter
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _cannot_listen(host: str, port: int, exc: OSError) -> ConfigError:
    if exc.errno == errno.EADDRINUSE:
        reason = f"{host}:{port} is in use by another process; choose another port, or 0 for no metrics"
    else:
        reason = f"cannot listen on {host}:{port}: {exc.strerror or exc}"
    return ConfigError(reason, key="metricsPort")
