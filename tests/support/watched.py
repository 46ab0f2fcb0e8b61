"""A name server, a synchronous master and its slave, watched by a real Prometheus and a real console.

A producer sends all the time; what was acknowledged to it is held against the store.

The master has a small disk, a clock of its own and a certificate; brokers read their settings from files, as on
machines of operators.
"""

from __future__ import annotations

import contextlib
import html
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import attrs

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from tests.support import preloaded
from tests.support.certificates import Authority
from tests.support.etcd import free_ports
from tests.support.ha.clocks import TurnedClock, built_library
from tests.support.ha.disks import Disk, disk
from tests.support.operator import Machine, blocks_of_section
from tests.support.pair import LoneBroker, NameServer
from tests.support.prometheus import FIRES_S, Prometheus, running_prometheus
from tests.support.running_console import RunningConsole, running_console
from tests.support.waiting import wait_until
from tests.support.wire import Wire, max_offset, pull_request, records_of

TOPIC, OLD_TOPIC, SLOW_GROUP = "Watched", "Old", "slow"
QUEUES = 4
SPAN = "40s"  # in which alerts look for events: longer than a manager that hangs answers no scrape
SENDS_S = 0.05
STOP_S = 15.0  # TimeoutStopSec of the unit, shortened
SETTINGS = {
    "brokerName": "broker-a",
    "defaultTopicQueueNums": str(QUEUES),
    "slaveTimeout": "2000",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxMessageSize": str(64 << 10),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "frameMaxLength": str(1 << 20),
    "unsentOutputMax": str(4 << 20),
    "diskFreeMinBytes": str(8 << 20),
    "cleanFileForciblyEnable": "false",
    "cleanResourceInterval": "1000",
    "connectionsMax": "150",
    "backlogAlarmMessages": "50",
    "tls.config.file": "/dev/null",
    "codecWorkers": "1",  # one worker of each kind, whatever the cores
    "queryWorkers": "1",
}
ALARMS = f"""
[broker]
no_answer_seconds = 3
no_master_seconds = 5
worker_silent_seconds = 4
window_minutes = 0.5

[[group]]
name = "{SLOW_GROUP}"
backlog = 50
"""


@attrs.define
class WatchedBroker(LoneBroker):
    """A broker with a file of settings."""

    conf: Path = Path()
    metrics_port: int = 0
    prefix: list[str] = attrs.field(factory=list)

    def command(self) -> list[str]:
        words = [*preloaded.COMMAND, "broker", "-n", self.namesrv, "-c", str(self.conf)]
        return [*self.prefix, *words]

    def write_conf(self) -> None:
        own = {
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store),
            "metricsPort": str(self.metrics_port),
        }
        self.conf.parent.mkdir(parents=True, exist_ok=True)
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in (own | self.settings).items()))

    def restart(self) -> str:
        """Do what `systemctl restart` does: SIGTERM, after a time SIGKILL to all processes, and a start."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
                self.process = None
        self.kill_all()
        self.start()
        return ""


@attrs.define(eq=False)
class Load:
    """A producer that sends all the time, what was acknowledged, and what the store shows."""

    namesrv: str
    acknowledged: set[bytes] = attrs.field(factory=set)
    stored: set[bytes] = attrs.field(factory=set)
    failures: int = 0
    _positions: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(range(QUEUES), 0))
    _over: threading.Event = attrs.field(factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _send(self) -> None:
        with Producer("watched", ProducerOptions(name_servers=self.namesrv)) as producer:
            number = 0
            while not self._over.wait(SENDS_S):
                number += 1
                body = b"%d" % number
                try:
                    producer.send(Message(TOPIC, body))
                except Exception:  # the broker is broken on purpose
                    self.failures += 1
                else:
                    self.acknowledged.add(body)

    def send_large(self) -> int:
        """Store a message of the largest size. Returns: its place in the log of the master."""
        with Producer("watched", ProducerOptions(name_servers=self.namesrv)) as producer:
            sent = producer.send(Message(OLD_TOPIC, os.urandom(60_000)))
        return int(sent.offset_msg_id[16:], 16)  # behind address and port

    def wait_until_served(self) -> None:
        """Wait for ten more acknowledged messages."""
        count = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= count + 10, "acknowledged sends", FIRES_S)

    def check(self, port: int) -> None:
        """Hold what is acknowledged now against what the broker shows.

        Raises:
            AssertionError: an acknowledged message is lost.
        """
        acknowledged = set(self.acknowledged)
        with Wire.open(port) as wire:

            def is_stored() -> bool:
                for queue_id in range(QUEUES):
                    self._read(wire, queue_id)
                return acknowledged <= self.stored

            try:
                wait_until(is_stored, "all acknowledged messages", FIRES_S)
            except AssertionError:
                lost = sorted(map(int, acknowledged - self.stored))
                raise AssertionError(f"{len(lost)} acknowledged messages are lost: {lost[:20]}") from None

    def _read(self, wire: Wire, queue_id: int) -> None:
        while self._positions[queue_id] < max_offset(wire, TOPIC, queue_id):
            found = records_of(wire.ask(pull_request(TOPIC, self._positions[queue_id], queue_id=queue_id)))
            if not found:
                return
            self.stored |= {bytes(record.body) for record in found}
            self._positions[queue_id] = found[-1].queue_offset + 1


@attrs.frozen
class Watched:
    """The scene. `operators`: the machines of `master` and `slave`, as an operator uses them."""

    master: WatchedBroker
    slave: WatchedBroker
    namesrv: NameServer
    prometheus: Prometheus
    console: RunningConsole
    load: Load
    disk: Disk
    clock: TurnedClock
    authority: Authority
    operators: Mapping[str, Machine]

    def instance(self, broker: WatchedBroker) -> str:
        return f"127.0.0.1:{broker.metrics_port}"

    def follow(self, page: str, heading: str, on: str = "master", block: int | None = None, **names: str) -> str:
        """Do what a section of a page says: all its blocks, or one of them. Returns: what the commands printed."""
        blocks = blocks_of_section(page, heading)
        chosen = blocks if block is None else [blocks[block]]
        return "".join(self.operators[on].run(each, **names) for each in chosen)

    def wait_for_alert(self, alert: str, **labels: str) -> None:
        fires = _now_and_then(lambda: self.prometheus.fires(alert, **labels))
        wait_until(fires, f"the alert {alert} of {labels}", FIRES_S)

    def wait_for_console(self, *texts: str, path: str = "/") -> None:
        """Wait until a page of the console shows one of the texts."""
        page = ""

        def shows() -> bool:
            nonlocal page
            page = html.unescape(self.console.page(path))
            return any(text in page for text in texts)

        try:
            wait_until(_now_and_then(shows), "the text", FIRES_S)
        except AssertionError:
            raise AssertionError(f"the console never showed {texts} on {path}:\n{page}") from None

    def wait_until_calm(self) -> None:
        """Wait until no alert fires, and the console has no alarm."""
        state: tuple[object, str] = ((), "")

        def is_calm() -> bool:
            nonlocal state
            state = sorted(self.prometheus.firing()), self.console.page("/alarms")
            return state[0] == [] and "<h2>Active</h2><p>None.</p>" in state[1]

        try:
            wait_until(_now_and_then(is_calm), "silence", FIRES_S)
        except AssertionError:
            raise AssertionError(f"alerts {state[0]} fire still, or the console shows alarms:\n{state[1]}") from None


def _now_and_then(condition: Callable[[], bool]) -> Callable[[], bool]:
    """Return the condition, with a pause before each look but the first: a look is a request."""
    looked = False

    def look() -> bool:
        nonlocal looked
        if looked:
            time.sleep(0.5)
        looked = True
        return condition()

    return look


@contextlib.contextmanager
def watched(directory: Path) -> Iterator[Watched]:
    """Start everything, and wait until nothing is wrong."""
    own, of_namesrv, namesrv_port, *ports = free_ports(7)
    with ExitStack() as stack:
        store = stack.enter_context(disk(directory / "disk"))
        clock = TurnedClock(built_library(directory), directory / "clock")
        stack.callback(clock.close)
        authority = Authority(directory / "certificates")
        namesrv_settings = {"metricsPort": str(of_namesrv)}
        namesrv = NameServer(directory / "namesrv", 0, namesrv_port, directory / "namesrv.log", namesrv_settings)
        master = _broker(directory, "master", "SYNC_MASTER", ports[0:2], namesrv_port)
        slave = _broker(directory, "slave", "SLAVE", ports[2:4], namesrv_port)
        master.store, master.prefix = store.place / "store", clock.prefix
        issued = authority.issue()
        for name, file in (("server.pem", issued.certificate), ("server-key.pem", issued.key)):
            (master.conf.parent / name).write_bytes(file.read_bytes())
        master.settings |= {
            "tls.server.mode": "permissive",
            "tls.server.certPath": str(master.conf.parent / "server.pem"),
            "tls.server.keyPath": str(master.conf.parent / "server-key.pem"),
        }
        for server in (namesrv, master, slave):
            stack.callback(server.kill_all)
            if isinstance(server, WatchedBroker):
                server.write_conf()
            server.start()
        _send_old(namesrv.namesrv)
        targets = {"rocketpy-broker": [ports[1], ports[3]], "rocketpy-namesrv": [of_namesrv]}
        prometheus = stack.enter_context(running_prometheus(directory, own, targets, TOPIC, SPAN))
        alarms = directory / "alarms.toml"
        alarms.write_text(ALARMS)
        words = ("--alarms", str(alarms))
        console = stack.enter_context(running_console(namesrv.namesrv, directory / "console.log", *words))
        load = Load(namesrv.namesrv)
        stack.enter_context(load.running())
        load.wait_until_served()
        operators = {"master": _machine(master, clock), "slave": _machine(slave, clock)}
        scene = Watched(master, slave, namesrv, prometheus, console, load, store, clock, authority, operators)
        wait_until(lambda: prometheus.query("sum(up)") == [({}, 3.0)], "scrapes of all servers")
        scene.wait_until_calm()
        yield scene


def _broker(directory: Path, name: str, role: str, ports: list[int], namesrv_port: int) -> WatchedBroker:
    port, metrics_port = ports
    settings = SETTINGS | {"brokerRole": role, "brokerId": "0" if role == "SYNC_MASTER" else "1"}
    broker = WatchedBroker(directory / name, port, namesrv_port, directory / f"{name}.log", settings)
    broker.conf, broker.metrics_port = directory / f"etc-{name}" / "broker.conf", metrics_port
    broker.conf.parent.mkdir()
    return broker


def _machine(broker: WatchedBroker, clock: TurnedClock) -> Machine:
    def set_clock() -> str:
        clock.step(wall_s=-clock.wall_s)
        return ""

    return Machine(
        orders={
            "systemctl daemon-reload": lambda: "",
            "systemctl restart rocketpy-broker": broker.restart,
            "journalctl -u rocketpy-broker": broker.text,
            "timedatectl set-ntp true": set_clock,
            "timedatectl timesync-status": lambda: "",
        },
        here={
            "$HOST": "127.0.0.1",
            "/etc/rocketpy": str(broker.conf.parent),
            "/etc/systemd/system": str(broker.conf.parent),
            ":10911": f":{broker.port}",
            "mqadmin ": f"NAMESRV_ADDR={broker.namesrv} mqadmin ",
        },
    )


def _send_old(namesrv: str) -> None:
    """Store 40 MB of messages that nobody needs, in the first files of the log."""
    with Producer("watched", ProducerOptions(name_servers=namesrv)) as producer:
        futures = [producer.send_soon(Message(OLD_TOPIC, os.urandom(20_000))) for _ in range(2_000)]
        for future in futures:
            future.result(120)
