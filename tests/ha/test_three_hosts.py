"""The sample for three hosts (deploy/clusters/3m-automatic) starts as it stands, and a lost host is replaced: each host
is a network namespace with its own /etc/rocketpy and /var/lib/rocketpy, and what is done in them is what
docs/run/automatic-failover.md says."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from tests.support.ha.needs import needs_network

SAMPLE = Path(__file__).parents[2] / "deploy" / "clusters" / "3m-automatic"
HOSTS = ("one", "two", "three")
SECRETS = ("etc/rocketpy/ha-secret", "etc/rocketpy/etcd-password", "etc/rocketpy-root/etcd-root-password")
PLACES = ("/etc/rocketpy", "/etc/rocketpy-root", "/var/lib/rocketpy", "/var/lib/etcd")
SMALL = ["--set", "mappedFileSizeCommitLog=1048576", "--set", "maxMessageSize=65536"]  # a test needs no 6 GiB
PATIENCE_S = 90.0
SERVERS = "10.0.0.1:9876;10.0.0.2:9876;10.0.0.3:9876"


@attrs.define(eq=False)
class Host:
    """One machine: an address, directories of its own, and the processes that were started there."""

    name: str
    directory: Path
    space: str
    running: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    def command(self, *words: str | Path) -> list[str]:
        binds = " && ".join(f"mount --bind {self.directory}{place} {place}" for place in PLACES)
        inside = ["unshare", "-m", "sh", "-c", f'{binds} && exec "$@"', "sh"]
        return ["ip", "netns", "exec", self.space, *inside, *map(str, words)]

    def run(self, *words: str | Path) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def succeeds(self, *words: str | Path) -> bool:
        return subprocess.run(self.command(*words), capture_output=True, timeout=60, check=False).returncode == 0

    def start(self, *words: str | Path, environment: dict[str, str] | None = None, log_name: str = "log") -> None:
        with (self.directory / log_name).open("ab") as log:
            process = subprocess.Popen(
                self.command(*words),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.running.append(process)

    def rocketpy(self, *words: str | Path) -> tuple[str | Path, ...]:
        return (sys.executable, "-m", "rocketpy", *words)

    def kill(self) -> None:
        """The machine is gone."""
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        self.running.clear()


@contextmanager
def three_hosts(directory: Path) -> Iterator[dict[str, Host]]:
    """Hosts 10.0.0.1 to 10.0.0.3 at one switch, which nobody else reaches."""
    tag = f"rp{os.getpid()}"
    with ExitStack() as stack:
        for place in map(Path, PLACES):
            if not place.exists():
                place.mkdir(parents=True)
                stack.callback(place.rmdir)

        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)

        def add(space: str) -> None:
            ip("netns", "add", space)
            stack.callback(lambda: subprocess.run(["ip", "netns", "del", space], check=False, timeout=20))
            ip("-n", space, "link", "set", "lo", "up")

        switch = f"{tag}-switch"
        add(switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        hosts = {}
        for number, name in enumerate(HOSTS, 1):
            host = hosts[name] = Host(name, directory / name, f"{tag}-{name}")
            for place in PLACES:
                (host.directory / place[1:]).mkdir(parents=True)
            add(host.space)
            ip("-n", host.space, "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", switch)
            ip("-n", switch, "link", "set", name, "master", "br0", "up")
            ip("-n", host.space, "addr", "add", f"10.0.0.{number}/24", "dev", "eth0")
            ip("-n", host.space, "link", "set", "eth0", "up")
            stack.callback(host.kill)
        yield hosts


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Each look starts a program, and a host may have to wait for leases."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not come about"
        time.sleep(0.2)


def start_etcd(host: Host, state: str = "new") -> None:
    """As the package does it: what /etc/default/etcd sets is the environment of the program."""
    lines = (SAMPLE / f"etcd-{host.name}.env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    host.start("etcd", environment={**found, "ETCD_INITIAL_CLUSTER_STATE": state}, log_name="etcd.log")


def configure(host: Host, other: Host) -> None:
    """Put the files of the sample, and the secrets of another host, to /etc/rocketpy."""
    etc = host.directory / "etc/rocketpy"
    for secret in SECRETS if other is not host else ():
        shutil.copy(other.directory / secret, host.directory / secret)
    shutil.copy(SAMPLE / f"broker-{host.name}.conf", etc / "broker.conf")
    shutil.copy(SAMPLE / "namesrv.properties", etc / "namesrv.conf")


def replace(lost: Host, left: Host) -> None:
    """Set up a host that is lost for good on a new machine."""
    for place in PLACES:
        shutil.rmtree(lost.directory / place[1:])
        (lost.directory / place[1:]).mkdir()
    configure(lost, left)
    password = (left.directory / "etc/rocketpy-root/etcd-root-password").read_text().strip()
    address = f"10.0.0.{1 + HOSTS.index(left.name)}"
    etcdctl = ("env", "ETCDCTL_API=3", "etcdctl", "--endpoints", f"http://{address}:2379", "--user", f"root:{password}")
    listed = left.run(*etcdctl, "member", "list").splitlines()
    [number] = (line.partition(",")[0] for line in listed if f", {lost.name}," in line)
    left.run(*etcdctl, "member", "remove", number)
    left.run(*etcdctl, "member", "add", lost.name, f"--peer-urls=http://10.0.0.{1 + HOSTS.index(lost.name)}:2380")
    start_etcd(lost, "existing")
    start_brokers(lost)


@needs_network
def test_the_sample_starts_as_it_stands_and_a_lost_host_is_replaced(tmp_path: Path) -> None:
    """Fault: A member set up as documented listened on 127.0.0.1."""
    with three_hosts(tmp_path) as hosts:
        try:
            first = hosts["one"]
            for host in hosts.values():
                start_etcd(host)
            health = ("etcdctl", "--endpoints", "http://10.0.0.1:2379", "endpoint", "health")
            wait_until(lambda: first.succeeds("env", "ETCDCTL_API=3", *health), "health of etcd")
            first.run("sh", SAMPLE / "set-up.sh")
            for host in hosts.values():
                configure(host, first)
            for host in hosts.values():
                found = host.run(*host.rocketpy("doctor", "-c", "/etc/rocketpy/broker.conf"))
                assert "10911" in found and "no alarm" in found and "127.0.0.1" not in found, found
            for host in hosts.values():
                start_brokers(host)
            wait_until(lambda: in_sync(first) == set(HOSTS), "all hosts to be in sync")
            assert not [line for line in log_of(first).splitlines() if "is reached from this machine only" in line]
            mqadmin(first, "updateTopic", "-c", "DefaultCluster", "-t", "Orders")
            wait_until(lambda: sends(hosts["three"]), "a message that is sent from another host")
            master = next(name for name in HOSTS if f"{name} is MASTER" in log_of(hosts[name]))
            left = next(host for name, host in hosts.items() if name != master)
            hosts[master].kill()
            wait_until(lambda: sends(left), "a message that another member takes")
            wait_until(lambda: in_sync(left) == set(HOSTS) - {master}, "an answer of etcd without the lost host")
            replace(hosts[master], left)
            wait_until(lambda: in_sync(left) == set(HOSTS), "the new host to be in sync")
            assert "Traceback" not in "".join(map(log_of, hosts.values()))
        except BaseException as failure:
            for host in hosts.values():
                failure.add_note(f"{host.name}:\n{log_of(host)[-5000:]}")
            raise


def start_brokers(host: Host) -> None:
    host.start(*host.rocketpy("namesrv", "-c", "/etc/rocketpy/namesrv.conf"))
    host.start(*host.rocketpy("broker", "-c", "/etc/rocketpy/broker.conf", *SMALL))


def mqadmin(host: Host, command: str, *words: str) -> str:
    return host.run(*host.rocketpy("admin", command, *words, "-n", SERVERS))


def in_sync(host: Host) -> set[str]:
    """The members in sync, as an operator asks for them."""
    words = host.rocketpy("admin", "haStatus", "-f", "/etc/rocketpy/broker.conf")
    done = subprocess.run(host.command(*words), capture_output=True, text=True, timeout=60, check=False)
    head = done.stdout.partition("in sync: ")[2].splitlines()
    return {name.strip() for name in head[0].split(",")} if head and done.returncode == 0 else set()


def sends(host: Host) -> bool:
    words = host.rocketpy("admin", "sendMessage", "-t", "Orders", "-p", "hello", "-n", SERVERS)
    done = subprocess.run(host.command(*words), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 and "SEND_OK" in done.stdout


def log_of(host: Host) -> str:
    return (host.directory / "log").read_text(errors="replace")
