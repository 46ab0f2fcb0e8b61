"""YARN on this machine: its resource manager and a node manager, each a process of its own. Maven fetches them once."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from tests.interop.toolchain import alone, cache_directory, fingerprint, need, run_build
from tests.spark_cluster.standalone import HOST, STARTS_S, kill
from tests.support.etcd import free_ports
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
JARS = Path(__file__).parent / "jars"
SPARKS = Path(pyspark.__file__).parent / "jars"
OPENED = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED"]
SERVERS = {
    "resource-manager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "node-manager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
FIFO = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"  # needs no file of queues
PLACES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")


def servers() -> Path:
    """Return a directory of jars. Raises toolchain.Missing: no Maven."""
    (hadoop,) = SPARKS.glob("hadoop-client-api-*.jar")
    version = hadoop.stem.removeprefix("hadoop-client-api-")
    target = cache_directory() / f"yarn-{version}-{fingerprint(JARS)[:16]}"
    maven = need("mvn")
    with alone(target.parent):
        if not target.exists():
            begun = target.with_name(f"{target.name}.new")
            shutil.rmtree(begun, ignore_errors=True)
            goal = ["-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={begun}"]
            run_build([maven, *goal, f"-Dhadoop.version={version}"], JARS)
            begun.rename(target)
    return target


def environment_to_ship(directory: Path) -> Path:
    """Pack a virtual environment with the packages of this one, as links: nodes of this machine have them."""
    made = directory / "environment"
    venv.create(made, symlinks=True)
    (packages,) = made.glob("lib/*/site-packages")
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "shared.pth").write_text("\n".join(paths))
    with tarfile.open(directory / "environment.tar.gz", "w:gz") as packed:
        packed.add(made, ".")
    return directory / "environment.tar.gz"


@contextlib.contextmanager
def running_yarn(directory: Path) -> Iterator[Path]:
    """Yield the directory of its configuration, for HADOOP_CONF_DIR."""
    classes = f"{directory}:{servers()}/*:{SPARKS}/*"
    ports = free_ports(len(PLACES) + 3)
    settings = {f"yarn.resourcemanager.{place}": f"{HOST}:{ports.pop()}" for place in PLACES}
    settings |= {f"yarn.nodemanager.{place}": f"{HOST}:{ports.pop()}" for place in ("address", "localizer.address")}
    settings |= {
        "yarn.nodemanager.webapp.address": f"{HOST}:{ports.pop()}",
        "yarn.nodemanager.local-dirs": str(directory / "local"),
        "yarn.nodemanager.log-dirs": str(directory / "logs"),
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.resourcemanager.scheduler.class": FIFO,
    }
    write(directory / "yarn-site.xml", settings)
    write(directory / "core-site.xml", {"fs.defaultFS": "file:///"})
    with contextlib.ExitStack() as started:
        for name, server in SERVERS.items():
            with (directory / f"{name}.log").open("wb") as log:
                words = ["java", "-Xmx512m", *OPENED, "-cp", classes, server]
                process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
            started.callback(kill, process)
        metrics = f"http://{settings['yarn.resourcemanager.webapp.address']}/ws/v1/cluster/metrics"
        wait_until(lambda: re.search(r'"activeNodes":1\b', text_of(metrics)) is not None, "a node", STARTS_S)
        yield directory


def write(file: Path, settings: Mapping[str, str]) -> None:
    rows = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    file.write_text(f"<configuration>{''.join(rows)}</configuration>")


def text_of(url: str) -> str:
    """Return what is there; nothing if no server answers yet."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return ""
