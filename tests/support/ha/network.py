"""Places with an address of their own, whose connections can be cut: network namespaces around a router.

A cut is silent, as a broken network is: the router drops what goes from one place to another, and nobody is told.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

OCTETS = range(64, 192)  # the second numbers of subnets 10.N.0.0/16
MISSING = "network namespaces need root and the command ip (Debian: apt install iproute2)"
CLIENTS = "clients"  # the place of the test itself
BAD_LINK = Path(__file__).with_name("bad_link.py")
BAD_TABLE = 77  # of routes


def is_possible() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


@attrs.define(eq=False)
class Network:
    """Places by name; the first one is the test's own namespace."""

    names: Sequence[str]
    _octet: int = attrs.field(init=False, default=0)  # 0: no subnet yet

    @property
    def subnet(self) -> str:
        return f"10.{self._octet}.0.0/16"

    def address(self, name: str) -> str:
        return f"10.{self._octet}.{self.names.index(name)}.2"

    def command(self, name: str, words: list[str]) -> list[str]:
        """`words` as a command that runs in the place."""
        return words if name == CLIENTS else ["ip", "netns", "exec", self._space(name), *words]

    def cut(self, source: str, target: str) -> None:
        """Drop what `source` sends to `target`; the other way is open."""
        self._route("add", source, target)

    def join(self, source: str, target: str) -> None:
        """Undo one `cut`."""
        self._route("del", source, target)

    def cut_port(self, source: str, port: int, target: str) -> None:
        """Drop what `source` sends to `target` from this port of TCP; all else passes."""
        self._route("add", source, target, f"ipproto tcp sport {port}")

    def join_port(self, source: str, port: int, target: str) -> None:
        """Undo one `cut_port`."""
        self._route("del", source, target, f"ipproto tcp sport {port}")

    @contextmanager
    def bad_link(self, *places: str, delay_ms: float, jitter_ms: float, loss: float, seed: int) -> Iterator[None]:
        """Between each two of these places packets are late, in another order, or lost (bad_link.py)."""
        name = f"bad{self._octet}"
        words = [name, str(delay_ms), str(jitter_ms), str(loss), str(seed)]
        command = ["ip", "netns", "exec", self._space("router"), sys.executable, str(BAD_LINK), *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as router:
            try:
                assert router.stdout is not None and router.stdout.readline() == "ready\n", "/dev/net/tun is missing"
                self._run("router", f"link set {name} up")
                self._run("router", f"route add default dev {name} table {BAD_TABLE}")
                for source, target in itertools.permutations(places, 2):
                    self._run("router", self._bad_rule("add", source, target))
                yield
                for source, target in itertools.permutations(places, 2):
                    self._run("router", self._bad_rule("del", source, target))
            finally:
                router.kill()

    def _bad_rule(self, change: str, source: str, target: str) -> str:
        """What comes out of the device is not sent into it again: it has another interface."""
        by = f"iif r{self._octet}.{self.names.index(source)}"
        return f"rule {change} pref 100 {by} to {self.address(target)} lookup {BAD_TABLE}"

    def _route(self, change: str, source: str, target: str, match: str = "") -> None:
        rule = f"rule {change} from {self.address(source)} to {self.address(target)} {match} type blackhole"
        self._run("router", rule)

    def _space(self, name: str) -> str:
        return f"rp{self._octet}-{name}"

    def _run(self, name: str | None, words: str) -> None:
        space = [] if name is None else ["-n", self._space(name)]
        subprocess.run(["ip", *space, *words.split()], check=True, capture_output=True, text=True, timeout=20)

    def open(self) -> None:
        """Make all places."""
        self._claim()
        for name in self.names[1:]:
            self._run(None, f"netns add {self._space(name)}")
        for name in ("router", *self.names[1:]):
            self._run(name, "link set lo up")
        for index, name in enumerate(self.names):
            own, there = f"h{self._octet}.{index}", f"r{self._octet}.{index}"
            self._run(None, f"link add {own} type veth peer name {there} netns {self._space('router')}")
            place = None if name == CLIENTS else name
            if place is not None:
                self._run(None, f"link set {own} netns {self._space(name)}")
            self._run(place, f"addr add {self.address(name)}/24 dev {own}")
            self._run(place, f"link set {own} up")
            self._run("router", f"addr add 10.{self._octet}.{index}.1/24 dev {there}")
            self._run("router", f"link set {there} up")
            self._run(place, f"route add {self.subnet} via 10.{self._octet}.{index}.1")
        settings = "/proc/sys/net/ipv4"
        forward = ["sh", "-c", f"echo 1 > {settings}/ip_forward; echo 0 > {settings}/conf/all/rp_filter"]
        subprocess.run(["ip", "netns", "exec", self._space("router"), *forward], check=True, timeout=20)

    def _claim(self) -> None:
        """Take a subnet to which no route leads, and whose router's namespace can be made: of two processes one can.

        Raises: RuntimeError: there is none, perhaps because killed tests have left theirs.
        """
        taken = subnets_of_routes()
        first = os.getpid() % len(OCTETS)  # processes seldom begin with the same one
        for octet in (*OCTETS[first:], *OCTETS[:first]):
            space = f"rp{octet}-router"
            if any(ipaddress.ip_network(f"10.{octet}.0.0/16").overlaps(subnet) for subnet in taken):
                continue
            words = ["ip", "netns", "add", space]
            made = subprocess.run(words, check=False, capture_output=True, text=True, timeout=20)
            if made.returncode == 0:
                self._octet = octet
                return
            if "File exists" not in made.stderr:
                raise RuntimeError(f"ip netns add {space}: {made.stderr}")
        raise RuntimeError(f"no subnet is free of 10.{OCTETS[0]} to 10.{OCTETS[-1]}: see `ip route` and `ip netns`")

    def close(self) -> None:
        """Remove them; processes in them must have ended."""
        if not self._octet:
            return
        for name in ("router", *self.names[1:]):
            space = self._space(name)
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, timeout=20)
        subprocess.run(["ip", "link", "del", f"h{self._octet}.0"], check=False, capture_output=True, timeout=20)


def subnets_of_routes() -> list[ipaddress.IPv4Network]:
    """Subnets that this machine reaches by a route of their own; 10.0.0.0/8 as a whole does not count."""
    words = ["ip", "-4", "-o", "route", "show"]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout
    firsts = [line.split()[0] for line in shown.splitlines() if line.strip()]
    subnets = [ipaddress.IPv4Network(first, strict=False) for first in firsts if first[0].isdigit()]
    return [subnet for subnet in subnets if subnet.prefixlen > 8]


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Places with these names beside that of the test, which is CLIENTS."""
    made = Network((CLIENTS, *names))
    try:
        made.open()
        yield made
    finally:
        made.close()
