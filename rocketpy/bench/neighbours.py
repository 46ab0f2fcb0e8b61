"""The neighbours of RocketMQ that the same scenario can measure on the same machine: NATS and Kafka.

A server that is started here has the defaults of its project, except for the needs of a single node: a directory, a
port, and for NATS streams on files. `nats-server` is looked for on PATH and where Go installs programs. Kafka's jars
are those of the directory KAFKA_LIB, or fetched once with Maven.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import ConfigError

from . import jars
from .cluster import BenchFailed
from .driver import cache_directory
from .own_broker import HOST, OwnBroker, server, wait_ready

NATS_NEEDED = (
    "the target nats needs nats-server on PATH (Debian: nats-server; or go install "
    "github.com/nats-io/nats-server/v2@latest), or the --address of one that runs with -js"
)
KAFKA_VERSION = "4.3.1"
KAFKA_JARS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),  # else Kafka logs nothing: its distribution brings Log4j's binding
)
KAFKA_NEEDED = (
    "the target kafka needs Java 17, and Maven to fetch its jars or KAFKA_LIB, the directory libs of Kafka's "
    "distribution; or the --address of one that runs"
)
KAFKA_JVM = (  # heap and collector of its own start script, and the level of slf4j-simple
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
KAFKA_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={store}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def _answers(address: str) -> None:
    """Raise OSError: no server takes connections there."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return


def _nats_command(directory: Path, port: int) -> list[str]:
    program = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path.home() / "go" / "bin"))
    if program is None:
        raise ConfigError(NATS_NEEDED)
    return [program, "-js", "-sd", str(directory / "store"), "-a", HOST, "-p", str(port)]


def _kafka_lib() -> Path:
    given = os.environ.get("KAFKA_LIB", "")
    return Path(given) if given else cache_directory() / f"kafka-{KAFKA_VERSION}"


def _kafka_java(main: str, *words: str) -> list[str]:
    lib, java = _kafka_lib(), shutil.which("java")
    if java is None:
        raise ConfigError(KAFKA_NEEDED)
    if not any(lib.glob("kafka_*.jar")):
        if "KAFKA_LIB" in os.environ or shutil.which("mvn") is None:
            raise ConfigError(KAFKA_NEEDED)
        jars.fetch(lib, KAFKA_JARS)
    return [java, *KAFKA_JVM, "-cp", f"{lib}/*", main, *words]


def _kafka_command(directory: Path, port: int) -> list[str]:
    """Write the configuration of one node, format its store, and return what starts it."""
    file, store = directory / "server.properties", directory / "store"
    file.write_text(KAFKA_PROPERTIES.format(host=HOST, port=port, controller=port + 1, store=store))
    words = _kafka_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"the store of Kafka cannot be formatted: {(done.stderr or done.stdout).strip()[-500:]}")
    return _kafka_java("kafka.Kafka", str(file))


@attrs.frozen
class Neighbour:
    """The ways to start a system, and to connect a client to it: `connect` of an address."""

    command: Callable[[Path, int], list[str]]
    connect: Callable[[str], Any]
    settings: Mapping[str, str]  # of a server that is started here
    version: Callable[[], str] = str  # of such a server, if its clients cannot ask for it

    @contextlib.contextmanager
    def open(self, address: str, parent: Path | None) -> Iterator[tuple[Any, OwnBroker | None]]:
        """Yield what connects to the system at `address`, or to one that is started here; and the latter.

        Raises:
            ConfigError: it cannot be started here.
            BenchFailed: it does not serve.
        """
        if address:
            yield lambda: self.connect(address), None
            return
        with server(self.command, parent) as broker:
            wait_ready(broker, lambda: _answers(broker.address))
            yield lambda: self.connect(broker.address), broker


def _kafka_version() -> str:
    found = sorted(_kafka_lib().glob("kafka_*.jar"))
    return found[0].stem.partition("-")[2] if found else ""


def _connect_nats(address: str) -> Any:
    from .clients import nats

    return nats.connect(f"nats://{address}")


def _connect_kafka(address: str) -> Any:
    from .clients import kafka

    return kafka.connect(address)


SYSTEMS = {
    "nats": Neighbour(_nats_command, _connect_nats, {"sync_interval": "2m"}),
    "kafka": Neighbour(_kafka_command, _connect_kafka, {"log.flush.interval.messages": "never"}, _kafka_version),
}
