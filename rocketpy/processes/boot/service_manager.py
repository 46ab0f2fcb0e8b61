"""systemd, or another service manager with its protocols, as a server sees it.

    NOTIFY_SOCKET          -> READY=1 when every port serves: `systemctl start` returns only then
                           -> FDSTORE=1 just before: it keeps the listening sockets over a restart (docs/adr/0044)
                           -> FDSTOREREMOVE=1 at the next start: it keeps none for a server that is not ready
    WATCHDOG_USEC          -> WATCHDOG=1 at least twice in this time; else the manager kills and restarts the server
    LISTEN_PID, LISTEN_FDS    descriptors 3 and up: sockets that listen already
    LISTEN_FDNAMES            which of them it has kept; the others are those of socket units

Without these variables nothing happens. Source: sd_notify(3), sd_listen_fds(3).
"""

from __future__ import annotations

import array
import fcntl
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.numbers import int_or, long_or

logger = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
BEATS = 3  # in the time of the watchdog, so that one may be late
STORED = "stored"  # begins the name of a kept socket, and is systemd's name where it does not take the one we give


@attrs.frozen(eq=False)
class Passed:
    """A listening socket of the manager that no port has taken yet."""

    socket: socket.socket
    name: str = ""

    @property
    def is_stored(self) -> bool:
        """Return True if it was kept since the server before opened it; False: it is that of a socket unit."""
        return self.name.startswith(STORED)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()[:2]
        return host, port


@attrs.define(eq=False)
class ServiceManager:
    """The manager that started this process, if any.

    Owns: the sockets that it has passed, until `take` or `close_rest`.
    """

    notify_socket: str = ""
    watchdog_s: float = 0.0  # 0: not watched
    _passed: list[Passed] = attrs.field(factory=list, alias="passed")
    _serving: list[tuple[str, int]] = attrs.field(init=False, factory=list)  # names and descriptors
    _beaten_s: float = attrs.field(init=False, default=float("-inf"))

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager:
        """Return the manager that these variables name. Call it once: it takes over the descriptors.

        The kept sockets are this process's alone until `tell_ready`. If the start fails, or a signal ends it, clients
        that wait in them are reset, and further ones refused, however often the manager tries again.

        Raises:
            ConfigError: a descriptor of a socket unit is no listening TCP socket.
        """
        is_own = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = long_or(environ.get("WATCHDOG_USEC"), 0) if is_own else 0
        manager, names = cls(environ.get("NOTIFY_SOCKET", ""), watchdog_us / 1e6), _passed_names(environ)
        for name in sorted({name for name in names if name.startswith(STORED)}):
            manager._tell(f"FDSTOREREMOVE=1\nFDNAME={name}")
        manager._passed = _passed_sockets(names)
        return manager

    def tell_ready(self) -> None:
        """Tell the manager that every port serves. From now on it keeps the sockets, and has to hear `beat`.

        With automatic failover a child of the main process calls this, with the same descriptors.
        """
        for name, descriptor in self._serving:
            if name.startswith(STORED):
                self._tell(f"FDSTORE=1\nFDNAME={name}", [descriptor])
        self._tell(f"READY=1\nWATCHDOG_USEC={int(self.watchdog_s * 1e6)}" if self.watchdog_s else "READY=1")

    def tell_restart(self) -> None:
        """Pass the sockets that serve to the process that replaces this one, as if the manager had passed them.

        Until it is ready again, no beats come, however long the recovery takes.
        """
        if self.watchdog_s:
            self._tell("WATCHDOG_USEC=0")
        first_free = FIRST_DESCRIPTOR + len(self._serving)
        copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, first_free) for _, descriptor in self._serving]
        for place, copy in enumerate(copies, FIRST_DESCRIPTOR):
            os.dup2(copy, place)
        os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), str(len(copies))
        os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in self._serving)

    def beat(self, now_s: float) -> None:
        """Tell the manager that the server is alive, as often as needed. Called at each turn of the watching loop."""
        if self.watchdog_s and now_s - self._beaten_s >= self.watchdog_s / BEATS:
            self._beaten_s = now_s
            self._tell("WATCHDOG=1")

    def take(self, host: str, port: int, *, key: str, backlog: int) -> list[socket.socket]:
        """Return the sockets that the manager has for this address, not blocking; the caller owns them.

        Kept ones only if they were opened for the same `host`, which still names their addresses, and this machine has
        these. If there are none, the caller opens some, and calls `keep`.

        Args:
            key: the property that names the address.
            backlog: connections that may wait in a kept socket; in that of a socket unit `Backlog=` applies.

        Raises:
            ConfigError: a socket unit listens on another address than the configuration names.
        """
        of_port = [one for one in self._passed if one.address[1] == port]
        units = [one for one in of_port if not one.is_stored]
        taken = [one for one in units if one.address[0] == (host or "0.0.0.0")][:1]
        stored = [one for one in of_port if one.name == _stored_name(host, port)]
        if stored and not taken and {one.address[0] for one in stored} <= _addresses(host):
            taken = stored
        if units and not taken:
            raise ConfigError(
                f"the service manager listens on {units[0].address[0]} port {port}, and bindAddress is {host}: "
                "make ListenStream= of the socket unit and bindAddress the same",
                key=key,
            )
        for one in taken:
            self._passed.remove(one)
            self._serving.append((one.name, one.socket.fileno()))
            one.socket.setblocking(False)
            if one.is_stored:
                one.socket.listen(backlog)
        return [one.socket for one in taken]

    def keep(self, host: str, port: int, descriptors: Sequence[int]) -> None:
        """Let the manager keep the sockets of this address, opened now, from `tell_ready` on."""
        self._serving += [(_stored_name(host, port), descriptor) for descriptor in descriptors]

    def drop(self, port: int) -> bool:
        """Close the kept sockets of a port that no address has taken. Returns: True if there were any."""
        dropped = [one for one in self._passed if one.is_stored and one.address[1] == port]
        for one in dropped:
            self._drop(one)
        return bool(dropped)

    def close_rest(self) -> None:
        """Close and name the sockets that no port has taken, once every port is open."""
        for one in list(self._passed):
            if one.is_stored:
                self._drop(one)
                continue
            logger.warning(
                "the service manager listens on %s port %d, which the configuration does not name: "
                "remove its ListenStream=",
                *one.address,
            )
            one.socket.close()
        self._passed.clear()

    def _drop(self, one: Passed) -> None:
        """Close a kept socket. Its port is free at once, also before the manager closes its own descriptor.

        Connections that wait are reset.
        """
        logger.info("no longer listening on %s port %d", *one.address)
        self._passed.remove(one)
        one.socket.shutdown(socket.SHUT_RDWR)
        one.socket.close()

    def _tell(self, text: str, descriptors: Sequence[int] = ()) -> None:
        if not self.notify_socket:
            return
        path = self.notify_socket
        address = "\0" + path[1:] if path.startswith("@") else path
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendmsg([text.encode()], rights, 0, address)
        except OSError as exc:
            logger.warning("the service manager at %s does not hear %s: %s", path, text.split("=")[0], exc.strerror)


def _stored_name(host: str, port: int) -> str:
    """Return the FDNAME of an address as the configuration writes it; a name has no colons."""
    return f"{STORED}-{port}-{host}".replace(":", "_")


def _addresses(host: str) -> set[str]:
    """Return the addresses of this machine that `host` names now; empty, or `::`, names those of all interfaces."""
    name = None if host in ("", "::") else host
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:  # opening a socket fails as well, and its error is reported
        return set()
    return {str(address[0]) for family, _, _, _, address in found if _is_here(family, address)}


def _is_here(family: int, address: tuple[Any, ...]) -> bool:
    """Return True if this machine has the address. UDP is tried, because TCP may have no port left."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _is_listening(one: socket.socket) -> bool:
    is_tcp = one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6)
    return is_tcp and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def _passed_names(environ: Mapping[str, str]) -> list[str]:
    """Return the name of each descriptor that the manager has passed to this process; empty: it has none."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    names = dict(enumerate(environ.get("LISTEN_FDNAMES", "").split(":")))
    return [names.get(place, "") for place in range(int_or(environ.get("LISTEN_FDS"), 0))]


def _passed_sockets(names: Sequence[str]) -> list[Passed]:
    passed = []
    for fd, name in enumerate(names, FIRST_DESCRIPTOR):
        try:
            os.set_inheritable(fd, False)
            one = Passed(socket.socket(fileno=fd), name)
            is_usable = _is_listening(one.socket)
        except OSError as exc:
            raise ConfigError(f"descriptor {fd} of the service manager cannot be used: {exc.strerror}") from exc
        if is_usable:
            passed.append(one)
        elif one.is_stored:  # closed by `_drop`, and the manager did not hear of it
            one.socket.close()
        else:
            raise ConfigError(f"descriptor {fd} of the service manager is no listening TCP socket: see ListenStream=")
    return passed
