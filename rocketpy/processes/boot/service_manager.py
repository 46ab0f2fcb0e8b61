"""What systemd, or another service manager with its protocols, has for a server.

    NOTIFY_SOCKET          -> READY=1 when every port serves: `systemctl start` returns only then
    WATCHDOG_USEC          -> WATCHDOG=1 at least twice in this time; else the manager kills and restarts the server
    LISTEN_PID, LISTEN_FDS    descriptors 3 and up: sockets that listen already, and go on while the server restarts

Without these variables nothing happens. Source: sd_notify(3), sd_listen_fds(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.numbers import int_or, long_or

logger = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
BEATS = 3  # in the time of the watchdog, so that one may be late


@attrs.define(eq=False)
class ServiceManager:
    """The manager that started this process, if any.

    Owns: duplicates of the sockets that it has passed, until `take_listener` or `close_rest`. The descriptors
    themselves stay open and are inherited by what replaces this process (`start_again`).
    """

    notify_socket: str = ""
    watchdog_s: float = 0.0  # 0: not watched
    _listeners: list[socket.socket] = attrs.field(factory=list, alias="listeners")
    _beaten_s: float = attrs.field(init=False, default=float("-inf"))

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager:
        """The manager that these variables name.

        Raises:
            ConfigError: a passed descriptor is no listening TCP socket.
        """
        is_own = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = long_or(environ.get("WATCHDOG_USEC"), 0) if is_own else 0
        return cls(environ.get("NOTIFY_SOCKET", ""), watchdog_us / 1e6, _passed_listeners(environ))

    def tell_ready(self) -> None:
        """Every port serves. From now on it has to hear `beat`."""
        self._tell(f"READY=1\nWATCHDOG_USEC={int(self.watchdog_s * 1e6)}" if self.watchdog_s else "READY=1")

    def tell_restart(self) -> None:
        """This process replaces itself: until it is ready again, no beats come, however long the recovery takes."""
        if self.watchdog_s:
            self._tell("WATCHDOG_USEC=0")

    def beat(self, now_s: float) -> None:
        """At each turn of the loop that watches all others; tells the manager as often as it has to hear that."""
        if self.watchdog_s and now_s - self._beaten_s >= self.watchdog_s / BEATS:
            self._beaten_s = now_s
            self._tell("WATCHDOG=1")

    def take_listener(self, host: str, port: int, key: str) -> socket.socket | None:
        """The passed socket of this port, not blocking; None: none was passed for it. The caller owns it.

        Raises:
            ConfigError: it listens on another address than the configuration names.
        """
        for listener in self._listeners:
            address = listener.getsockname()
            if address[1] != port:
                continue
            if address[0] != (host or "0.0.0.0"):
                raise ConfigError(
                    f"the service manager listens on {address[0]} port {port}, and bindAddress is {host}: "
                    "make ListenStream= of the socket unit and bindAddress the same",
                    key=key,
                )
            self._listeners.remove(listener)
            listener.setblocking(False)
            return listener
        return None

    def close_rest(self) -> None:
        """Every port is open. Sockets that no port has taken are closed and named."""
        for listener in self._listeners:
            address = listener.getsockname()
            logger.warning(
                "the service manager listens on %s port %d, which the configuration does not name: "
                "remove its ListenStream=",
                address[0],
                address[1],
            )
            listener.close()
        self._listeners.clear()

    def _tell(self, text: str) -> None:
        if not self.notify_socket:
            return
        path = self.notify_socket
        address = "\0" + path[1:] if path.startswith("@") else path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), address)
        except OSError as exc:
            logger.warning("the service manager at %s does not hear %s: %s", path, text.split("=")[0], exc.strerror)


def _passed_listeners(environ: Mapping[str, str]) -> list[socket.socket]:
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    listeners = []
    for fd in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int_or(environ.get("LISTEN_FDS"), 0)):
        try:
            one = socket.socket(fileno=os.dup(fd))
            is_usable = one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6)
            is_usable = is_usable and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        except OSError as exc:
            raise ConfigError(f"descriptor {fd} of the service manager cannot be used: {exc.strerror}") from exc
        if not is_usable:
            raise ConfigError(f"descriptor {fd} of the service manager is no listening TCP socket: see ListenStream=")
        listeners.append(one)
    return listeners
