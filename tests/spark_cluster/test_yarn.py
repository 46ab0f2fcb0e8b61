"""Jobs on YARN, by the command of docs/use/spark-cluster.md, with an environment that Spark ships."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rocketpy.cli.pipeline.main as pipeline
from tests.interop.toolchain import Missing
from tests.spark_cluster.test_standalone import DEADLINE_S, send
from tests.spark_cluster.yarn import environment_to_ship, running_yarn, servers
from tests.support.broker import RunningBroker
from tests.support.doc_programs import blocks

JOB = ["archive", "-n", "10.0.0.1:9876", "-t", "Orders", "/shared/archive"]  # as the page has it


@pytest.fixture
def maven() -> None:
    """Skips the test where nothing can fetch the servers."""
    try:
        servers()
    except Missing as missing:
        pytest.skip(str(missing))


def test_a_job_runs_on_yarn(java: None, maven: None, broker: RunningBroker, tmp_path: Path) -> None:
    """Fault: Every job failed on YARN: in a container's directory the path of a worker's socket was too long."""
    send(broker, "Orders", 0, 300)
    page = "\n".join(blocks("docs/use/spark-cluster.md", "sh"))
    assert "--master yarn --archives rocketpy.tar.gz#environment" in page and " ".join(JOB) in page
    with running_yarn(tmp_path) as configuration:
        words = [str(Path(sys.executable).parent / "spark-submit"), "--master", "yarn"]
        words += ["--archives", f"{environment_to_ship(tmp_path)}#environment", "--conf", "spark.executor.memory=512m"]
        words += [str(pipeline.__file__), *JOB[:2], broker.namesrv, *JOB[3:-1], str(tmp_path / "archive")]
        environment = os.environ | {
            "HADOOP_CONF_DIR": str(configuration),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": "./environment/bin/python",
        }
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
    assert any(tmp_path.glob("logs/application_*/container_*")), "YARN has started containers"
    files = list((tmp_path / "archive").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 300
