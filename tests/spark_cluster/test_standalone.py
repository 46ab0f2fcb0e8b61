"""A standalone cluster of two workers: a stream loses and repeats nothing when one is killed; jobs run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow.parquet as pq

import rocketpy.cli.pipeline.main as pipeline
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from tests.spark.query_process import QueryProcess
from tests.spark.test_segments import make_store
from tests.spark_cluster.standalone import running_cluster
from tests.support.broker import RunningBroker
from tests.support.doc_programs import blocks
from tests.support.readers import readable
from tests.support.waiting import wait_until

DEADLINE_S = 420.0


def send(broker: RunningBroker, topic: str, first: int, count: int) -> None:
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        sent = [producer.send_soon(Message(topic, b"%d" % number)) for number in range(first, first + count)]
        readable([one.result() for one in sent])


def committed(out: Path) -> list[int]:
    """The rows in the files that the sink's log names."""
    logs = [path for path in (out / "data/_spark_metadata").glob("*") if not path.name.startswith(".")]
    lines = {line for path in logs for line in path.read_text().splitlines()[1:]}
    paths = {json.loads(line)["path"] for line in lines}
    files = [pq.read_table(url2pathname(urlsplit(path).path), columns=["body"]) for path in paths]
    return sorted(int(body) for file in files for body in file["body"].to_pylist())


def test_a_stream_survives_the_death_of_a_worker(java: None, broker: RunningBroker, tmp_path: Path) -> None:
    """Each message is in the table once; the killed worker's tasks go to the other one."""
    send(broker, "Clustered", 0, 2000)
    with running_cluster(tmp_path, 2) as cluster:
        query = QueryProcess(
            cluster.url, broker.namesrv, "Clustered", tmp_path / "out", "maxOffsetsPerTrigger=200", "minPartitions=4"
        )

        def wait_for_rows(count: int) -> None:
            def are_there() -> bool:
                time.sleep(0.2)
                assert query.process.poll() is None, query.text()
                return len(committed(tmp_path / "out")) >= count

            wait_until(are_there, f"{count} rows", DEADLINE_S)

        try:
            wait_for_rows(400)
            cluster.kill_worker(0)
            send(broker, "Clustered", 2000, 1000)
            wait_for_rows(2600)
            cluster.start_worker(2)
            send(broker, "Clustered", 3000, 500)
            wait_for_rows(3500)
        finally:
            query.kill()
        ran = [number for number in (0, 1, 2) if "Asked to launch executor" in cluster.text(f"worker-{number}")]
        assert ran == [0, 1, 2], "each worker had an executor"
    assert committed(tmp_path / "out") == list(range(3500))


def test_a_job_runs_on_the_cluster(java: None, broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Jobs", 0, 300)
    with running_cluster(tmp_path, 2) as cluster:
        submit = str(Path(sys.executable).parent / "spark-submit")  # as docs/use/spark-cluster.md says it
        words = [submit, "--master", cluster.url, str(pipeline.__file__), "archive", "-n", broker.namesrv, "-t", "Jobs"]
        words.append(str(tmp_path / "archive"))
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
    files = list((tmp_path / "archive").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 300


def test_the_page_s_command_archives_a_shared_store(java: None, tmp_path: Path) -> None:
    (script,) = (block for block in blocks("docs/use/spark-cluster.md", "sh") if "spark://host:7077" in block)
    command, _ = script.split("\n\n")  # the second one is for YARN
    make_store(tmp_path / "store", 300)
    with running_cluster(tmp_path, 0) as cluster:
        cluster.start_worker(0, cores=4)
        for there, here in (
            ("spark://host:7077", cluster.url),
            ("/opt/rocketpy/bin/python3", sys.executable),
            ("/shared", str(tmp_path)),
        ):
            assert there in command
            command = command.replace(there, here)
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        words = ["sh", "-ec", command]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        assert "Asked to launch executor" in cluster.text("worker-0")
    files = list((tmp_path / "archive").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 300
