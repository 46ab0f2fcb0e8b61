"""A standalone cluster on this machine: a master and workers, each a process of its own, from the jars of PySpark."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pyspark

from tests.spark.jvm import FLAGS
from tests.support.etcd import free_ports
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
STARTS_S = 240.0
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@attrs.define(eq=False)
class Cluster:
    """Attributes: workers: their processes, by number."""

    directory: Path
    port: int
    workers: dict[int, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a class of Spark; its log is NAME.log, and its executors are of its process group."""
        home = Path(pyspark.__file__).parent
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": " ".join(FLAGS)}
        with self.log(name).open("wb") as log:
            return subprocess.Popen(
                [str(home / "bin/spark-class"), *words], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_worker(self, number: int, cores: int = 1) -> None:
        options = ["--host", HOST, "--cores", str(cores), "--memory", "1g", "--webui-port", "0"]
        work = str(self.directory / f"worker-{number}")
        self.workers[number] = self.start(f"worker-{number}", WORKER, *options, "--work-dir", work, self.url)
        wait_until(lambda: "Successfully registered with master" in self.text(f"worker-{number}"), "a worker", STARTS_S)

    def kill_worker(self, number: int) -> None:
        """SIGKILL to the worker, its executors and their Python processes."""
        kill(self.workers.pop(number))

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def text(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")


def kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def running_cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    (port,) = free_ports(1)
    cluster = Cluster(directory, port)
    master = cluster.start("master", MASTER, "--host", HOST, "--port", str(port), "--webui-port", "0")
    try:
        wait_until(lambda: "New state: ALIVE" in cluster.text("master"), "the master", STARTS_S)
        for number in range(workers):
            cluster.start_worker(number)
        yield cluster
    finally:
        for process in [*cluster.workers.values(), master]:
            kill(process)
