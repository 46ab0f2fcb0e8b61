"""The servers of a soak and what happens to them: a pair with automatic failover where etcd is installed, else one
broker; in network namespaces where this is root's, else on loopback without slow networks.

A fault takes some seconds; when it returns all is healed.
"""

from __future__ import annotations

import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from tests.support import etcd
from tests.support.broker import free_ports
from tests.support.ha import network as networks
from tests.support.ha.group import SETTINGS, Group, Member, real_group
from tests.support.ha.network import CLIENTS, Network
from tests.support.pair import NameServer

DOWN_S = (1.0, 6.0)
SLOW_S = 12.0
SLOW = {"delay_ms": 40.0, "jitter_ms": 60.0, "loss": 0.02}
PATIENCE_S = 120.0
ALONE = {key: value for key, value in SETTINGS.items() if not key.startswith("ha") and key != "brokerRole"}


@attrs.define(eq=False)
class LoneMaster:
    """One broker and its name server, with what faults use of a Group."""

    members: dict[str, Member]
    namesrv: NameServer
    network: Network | None = None

    def master(self) -> str:
        return "a"

    def wait_in_sync(self) -> None:
        """Until it listens."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.members["a"].port)):
                return
            assert time.monotonic() < deadline, self.members["a"].text()
            time.sleep(0.1)


Servers = Group | LoneMaster
Fault = Callable[[Servers, random.Random], None]


def _down(choose: random.Random) -> None:
    time.sleep(choose.uniform(*DOWN_S))


def stop_master(servers: Servers, choose: random.Random) -> None:
    """SIGTERM, as an update does it; with a slave it hands the mastership over."""
    member = servers.members[servers.master() or "a"]
    member.stop()
    _down(choose)
    member.begin()


def kill_master(servers: Servers, choose: random.Random) -> None:
    """kill -9 of all processes; with a slave a failover."""
    member = servers.members[servers.master() or "a"]
    member.kill_all()
    _down(choose)
    member.begin()


def restart_name_server(servers: Servers, choose: random.Random) -> None:
    servers.namesrv.stop()
    _down(choose)
    servers.namesrv.start()


def kill_name_server(servers: Servers, choose: random.Random) -> None:
    servers.namesrv.kill_all()
    _down(choose)
    servers.namesrv.start()


def switch_master(servers: Servers, choose: random.Random) -> None:
    """`mqadmin switchMaster`: no send may fail."""
    assert isinstance(servers, Group)
    servers.switch_over(servers.other(servers.master() or "a"))


def kill_slave(servers: Servers, choose: random.Random) -> None:
    assert isinstance(servers, Group)
    member = servers.members[servers.other(servers.master() or "a")]
    member.kill_all()
    _down(choose)
    member.begin()


def slow_network(servers: Servers, choose: random.Random) -> None:
    """Between clients and brokers: 40 to 100 ms each way, and every fiftieth packet is lost."""
    assert servers.network is not None
    with servers.network.bad_link(CLIENTS, *servers.members, **SLOW, seed=choose.randrange(1 << 30)):
        time.sleep(SLOW_S)


def faults_of(servers: Servers) -> list[Fault]:
    chosen: list[Fault] = [stop_master, kill_master, restart_name_server, kill_name_server]
    if isinstance(servers, Group):
        chosen += [switch_master, kill_slave]
    if servers.network is not None:
        chosen.append(slow_network)
    return chosen


@contextmanager
def running_servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-soak-")))
        if etcd.is_installed():
            places = stack.enter_context(networks.network("a", "b", "etcd")) if networks.is_possible() else None
            yield stack.enter_context(real_group(directory, network=places))
            return
        port, namesrv_port = free_ports()
        member = Member(directory / "a", port, namesrv_port, directory / "a.log", ALONE)
        namesrv = NameServer(directory / "namesrv", 0, namesrv_port, directory / "namesrv.log", {})
        for server in (namesrv, member):
            stack.callback(server.kill_all)
            server.start()
        yield LoneMaster({"a": member}, namesrv)
