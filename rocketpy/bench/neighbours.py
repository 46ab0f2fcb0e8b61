"""The neighbours of RocketMQ that the same scenario can measure on the same machine: NATS and Kafka.

A server of one's own has the defaults of its project, except for what a single node needs: a directory, a port, and for
NATS streams on files. `nats-server` is looked for on PATH; the jars of Kafka in the directory KAFKA_LIB.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import ConfigError

from .cluster import BenchFailed
from .own_broker import HOST, OwnBroker, server, wait_ready

NATS_NEEDED = (
    "the target nats needs nats-server on PATH (go install github.com/nats-io/nats-server/v2@latest), or the --address "
    "of one that runs with -js"
)
KAFKA_NEEDED = (
    "the target kafka needs Java 17, and in KAFKA_LIB the directory of its jars (org.apache.kafka:kafka_2.13 with its "
    "dependencies), or the --address of one that runs"
)
KAFKA_HEAP = ("-Xms1g", "-Xmx1g")  # of its own start script
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
    """Raise OSError: nobody takes connections there."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return


def _nats_command(directory: Path, port: int) -> list[str]:
    program = shutil.which("nats-server")
    if program is None:
        raise ConfigError(NATS_NEEDED)
    return [program, "-js", "-sd", str(directory / "store"), "-a", HOST, "-p", str(port)]


def _kafka_java(main: str, *words: str) -> list[str]:
    lib, java = os.environ.get("KAFKA_LIB", ""), shutil.which("java")
    if java is None or not any(Path(lib).glob("kafka_*.jar")):
        raise ConfigError(KAFKA_NEEDED)
    return [java, *KAFKA_HEAP, "-cp", f"{lib}/*", main, *words]


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
    version: Callable[[], str] = str  # of a server that is started here, if its clients cannot ask for it

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
    jars = sorted(Path(os.environ.get("KAFKA_LIB", "")).glob("kafka_*.jar"))
    return jars[0].stem.partition("-")[2] if jars else ""


def _connect_nats(address: str) -> Any:
    from .clients import nats

    return nats.connect(f"nats://{address}")


def _connect_kafka(address: str) -> Any:
    from .clients import kafka

    return kafka.connect(address)


SYSTEMS = {
    "nats": Neighbour(_nats_command, _connect_nats),
    "kafka": Neighbour(_kafka_command, _connect_kafka, _kafka_version),
}
