"""Starts, waits for and stops the two brokers that are compared: rocketpy, and the official Java broker 4.9.7.

Both get a name server and a broker on free ports of this host, and an empty store or the store of an earlier run. All
their files are below one directory, which is removed with them.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from rocketpy.bench import jars, proc
from rocketpy.bench.driver import cache_directory
from rocketpy.bench.own_broker import BOOT_TIMEOUT_S, HOST, free_ports, start_process, stop_process, tail

from .control import Control, RequestFailed

JAVA_VERSION = "4.9.7"
WHITE = "127.0.0.2"  # of control connections to brokers with access control, in their white list
BROKER_NAME = "bench-broker"
SLAVE_NOT_AVAILABLE = 11  # the message is stored: a master that waits for slaves has none yet
ROOT = Path(__file__).resolve().parent.parent  # of the checkout that is measured
TOPIC_BOOT = "bench_boot"  # made by the broker itself on the first send
TARGETS = ("rocketpy", "java")
WARM_UP_S = {"java": 10.0, "rocketpy": 2.0}  # a JVM has to compile first

# What runs rocketpy; ROCKETPY_CMD overrides it, with the same fields.
ROCKETPY_COMMAND = (
    "{python} -m rocketpy standalone --store {store} --port {port} --namesrv-port {namesrv_port} --metrics-port 0"
)
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

JAVA_OPENS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]
JAVA_BROKER_FLAGS = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", *JAVA_OPENS]
JAVA_NAMESRV_FLAGS = ["-Xms256m", "-Xmx256m", *JAVA_OPENS]
JAVA_PROCESSES = {
    "namesrv": (JAVA_NAMESRV_FLAGS, "org.apache.rocketmq.namesrv.NamesrvStartup"),
    "broker": (JAVA_BROKER_FLAGS, "org.apache.rocketmq.broker.BrokerStartup"),
}
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{path}</file><encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


class BrokerFailed(Exception):
    """A broker did not start, or ended on its own."""


@attrs.define(eq=False)
class Broker:
    """A running name server and broker."""

    target: str
    directory: Path
    port: int
    namesrv_port: int
    processes: list[subprocess.Popen[bytes]]
    store: Path
    boot_s: float = 0.0  # exec to the first acknowledged send
    route_s: float = 0.0  # exec to the first route at the name server
    control_from: str | None = None  # address of control connections; None: that of the load

    @property
    def roots(self) -> list[int]:
        return [process.pid for process in self.processes]

    def cpu_s(self) -> float:
        return proc.cpu_s(self.roots)

    def pss_mib(self) -> float:
        return proc.pss_mib(self.roots, self.store)

    def process_names(self) -> dict[int, str]:
        """Return the names of its processes by id: the titles of workers; any other is the supervisor."""
        found = {}
        for pid in (pid for root in self.roots for pid in proc.tree(root)):
            title = proc.command_name(pid)
            found[pid] = title.removeprefix("rocketpy: ") if title.startswith("rocketpy: ") else "supervisor"
        return found

    def cpu_by_process(self) -> dict[str, float]:
        """Return the CPU seconds of each process by its name, without those of children; workers of a name together."""
        found: dict[str, float] = {}
        for pid, name in self.process_names().items():
            found[name] = found.get(name, 0.0) + proc.own_cpu_s(pid)
        return found

    def control(self) -> Control:
        return Control(HOST, self.port, source=self.control_from)

    def log_extent(self) -> tuple[int, int]:
        """Return begin and end of its CommitLog, in bytes."""
        with self.control() as control:
            table = control.runtime_info()
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])

    def create_topic(self, topic: str, queues: int) -> None:
        with self.control() as control:
            control.create_topic(topic, queues)

    def kill(self) -> None:
        """SIGKILL every process of both trees at once; returns when none is left that could hold a file."""
        pids = [pid for root in self.roots for pid in proc.tree(root)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        while any(proc.is_running(pid) for pid in pids):
            time.sleep(0.001)

    def check_alive(self) -> None:
        for process in self.processes:
            if process.poll() is not None:
                raise BrokerFailed(f"{self.target} ended with {process.returncode}: {tail(self.directory)}")

    def stop(self) -> None:
        """Stop with SIGTERM, wait, and kill only then; the broker stops before its name server."""
        for process in reversed(self.processes):
            stop_process(process)


def compile_bytecode(root: Path) -> None:
    """Write bytecode as in an installed package, independent of PYTHONDONTWRITEBYTECODE; current files stay."""
    compileall.compile_dir(root / "rocketpy", quiet=1)


def java_class_path() -> str:
    """Return the jars, from ROCKETMQ_LIB if given, else fetched once with Maven."""
    given = os.environ.get("ROCKETMQ_LIB")
    lib = Path(given) if given else cache_directory() / f"rocketmq-{JAVA_VERSION}"
    if not any(lib.glob("rocketmq-broker-*.jar")):
        if given:
            raise BrokerFailed(f"ROCKETMQ_LIB={given} holds no rocketmq-broker jar")
        jars.fetch(lib, [("org.apache.rocketmq", f"rocketmq-{name}", JAVA_VERSION) for name in ("namesrv", "broker")])
    return str(lib / "*")


def python_of(root: Path) -> str:
    """Return the interpreter that runs a checkout: this one, or that of the `.venv` which `make build` made there."""
    return sys.executable if root == ROOT else str(root / ".venv" / "bin" / "python")


def start_rocketpy(directory: Path, settings: Mapping[str, str] = NO_SETTINGS, root: Path = ROOT) -> Broker:
    """Start it. `settings`: broker properties beyond the defaults, by their Java names. `root`: of a built checkout."""
    port, namesrv_port = free_ports(2)
    store = directory / "store"
    template = os.environ.get("ROCKETPY_CMD", ROCKETPY_COMMAND)
    command = template.format(python=python_of(root), store=store, port=port, namesrv_port=namesrv_port)
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    python_path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    process = start_process([*shlex.split(command), *options], directory, "rocketpy.log", PYTHONPATH=python_path)
    return Broker("rocketpy", directory, port, namesrv_port, [process], store)


def write_java_files(directory: Path, settings: Mapping[str, object]) -> None:
    """Write the files of a Java broker with these settings, and of a name server beside it."""
    (directory / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker"):
        text = LOGBACK.format(path=directory / f"{name}-server.log")
        (directory / "conf" / f"logback_{name}.xml").write_text(text)
    (directory / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def java_settings(store: Path, port: int, namesrv_port: int) -> dict[str, object]:
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": BROKER_NAME,
        "brokerId": 0,
        "brokerIP1": HOST,
        "namesrvAddr": f"{HOST}:{namesrv_port}",
        "listenPort": port,
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "autoCreateTopicEnable": "true",
    }


def start_java_process(directory: Path, name: str) -> subprocess.Popen[bytes]:
    """Start one process of the Java broker. `name`: namesrv or broker."""
    flags, main = JAVA_PROCESSES[name]
    home = {"ROCKETMQ_HOME": str(directory), "HOME": str(directory)}
    words = ["java", "-cp", java_class_path(), f"-Duser.home={directory}", *flags, main]
    return start_process([*words, "-c", str(directory / f"{name}.conf")], directory, f"{name}.log", **home)


def start_java(directory: Path, extra: Mapping[str, str] = NO_SETTINGS) -> Broker:
    """Start the Java broker. `extra`: broker properties beyond the defaults, by their Java names."""
    port, namesrv_port = free_ports(2)
    store = directory / "store"
    write_java_files(directory, {**java_settings(store, port, namesrv_port), **extra})
    (directory / "namesrv.conf").write_text(f"listenPort={namesrv_port}\nkvConfigPath={directory}/kvConfig.json\n")
    processes = [start_java_process(directory, name) for name in JAVA_PROCESSES]
    return Broker("java", directory, port, namesrv_port, processes, store)


def send_first(broker: Broker) -> None:
    """Raises: RequestFailed: it is not stored."""
    with broker.control() as control:
        try:
            control.send(TOPIC_BOOT, 0, b"first")
        except RequestFailed as exc:
            if exc.code != SLAVE_NOT_AVAILABLE:
                raise


def wait_ready(broker: Broker, started: float) -> None:
    """Wait until a send is acknowledged and the name server has a route of its topic.

    Raises:
        BrokerFailed: it ended, or is not there after BOOT_TIMEOUT_S.
    """
    error: Exception | None = None
    while time.monotonic() < started + BOOT_TIMEOUT_S:
        broker.check_alive()
        try:
            if not broker.boot_s:
                send_first(broker)
                broker.boot_s = time.monotonic() - started
            with Control(HOST, broker.namesrv_port) as namesrv:
                if namesrv.has_route(TOPIC_BOOT):
                    broker.route_s = time.monotonic() - started
                    return
        except (OSError, RequestFailed) as exc:
            error = exc
        time.sleep(0.005)
    raise BrokerFailed(f"{broker.target} is not ready after {BOOT_TIMEOUT_S} s: {error}\n{tail(broker.directory)}")


def boot(target: str, directory: Path, settings: Mapping[str, str] = NO_SETTINGS, root: Path = ROOT) -> Broker:
    """Start name server and broker on what `directory` holds; returns once they serve. `root`: the checkout.

    Raises:
        BrokerFailed: they do not, and nothing of them runs any more.
    """
    if target == "java":
        java_class_path()  # a download does not count as boot time
    else:
        compile_bytecode(root)  # nor does what pip does when it installs
    started = time.monotonic()
    broker = start_java(directory, settings) if target == "java" else start_rocketpy(directory, settings, root)
    if settings.get("aclEnable") == "true":
        broker.control_from = WHITE
    try:
        wait_ready(broker, started)
    except BaseException:
        broker.stop()
        raise
    return broker


@contextlib.contextmanager
def work_directory(name: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary directory; its files are synced or removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.sync()


@contextlib.contextmanager
def running(
    target: str, parent: Path | None = None, settings: Mapping[str, str] = NO_SETTINGS, root: Path = ROOT
) -> Iterator[Broker]:
    """Run a fresh broker, stopped and removed at the end."""
    with work_directory(target, parent) as directory:
        broker = boot(target, directory, settings, root)
        try:
            yield broker
        finally:
            broker.stop()
