"""The side output of a query: each body that cannot be decoded is there once, as each other one is in the sink."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError
from rocketpy.spark.jobs.queries import Pipeline
from rocketpy.spark.jobs.side_output import write_part
from rocketpy.spark.jobs.supervisor import Supervisor
from tests.spark.query_process import ROOT
from tests.spark.test_exactness import last_batch
from tests.support.broker import RunningBroker
from tests.support.readers import readable
from tests.support.waiting import wait_until

DEADLINE_S = 300.0
KILLS = 2
QUERY = """
[session]
master = "local[2,3]"

[query.orders]
source = {{ nameServer = "{namesrv}", topic = "{topic}", startingOffsets = "earliest", maxOffsetsPerTrigger = 25 }}
decode = {{ format = "json", schema = "id bigint" }}
sql = "SELECT value.id, queueOffset FROM {{source}} WHERE value.id >= 0"
sink = {{ format = "parquet", path = "{out}/good" }}
bad = {{ format = "json", path = "{out}/bad" }}
checkpoint = "{out}/checkpoint"
trigger = "{trigger}"
"""


def body(number: int) -> bytes:
    return b"no order %d" % number if number % 5 == 0 else b'{"id": %d}' % number


def send(broker: RunningBroker, topic: str, numbers: range) -> None:
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        sent = [producer.send_soon(Message(topic, body(number))) for number in numbers]
        readable([one.result() for one in sent])


def pipeline_file(broker: RunningBroker, topic: str, out: Path, trigger: str) -> Path:
    path = out.parent / f"{trigger}.toml"
    path.write_text(QUERY.format(namesrv=broker.namesrv, topic=topic, out=out, trigger=trigger))
    return path


def finish(spark: Any, broker: RunningBroker, topic: str, out: Path) -> None:
    """Run the query until it has read all that is there."""
    supervisor = Supervisor(spark, print)
    supervisor.add(Pipeline.read(pipeline_file(broker, topic, out, "available now")).queries)
    wait_until(lambda: not supervisor.step(), "the end of the query", DEADLINE_S, pause_s=0.05)
    assert not supervisor.has_given_up


def assert_once(spark: Any, out: Path, numbers: range) -> None:
    """Each message is in one of the outputs, once."""
    good = [row.id for row in spark.read.parquet(str(out / "good")).collect()]
    assert sorted(good) == [number for number in numbers if number % 5]
    bad = spark.read.json(str(out / "bad")).selectExpr("cast(unbase64(body) AS string) AS text", "bodyError").collect()
    assert sorted(int(row.text.split()[-1]) for row in bad) == [number for number in numbers if number % 5 == 0]
    assert {row.bodyError for row in bad} == {"is no JSON of the schema"}


def test_a_repeated_batch_replaces_both_parts(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    """As after a kill between the outputs and the commit of the newest batch, and after one within the outputs."""
    topic, out = f"Repeated_{tmp_path.name}", tmp_path / "o"
    send(broker, topic, range(60))
    finish(spark, broker, topic, out)
    newest = last_batch(out, "commits")
    assert newest > 0
    assert_once(spark, out, range(60))
    for lost in ([], ["good"]):
        for name in lost:
            shutil.rmtree(out / name / f"batch={newest}")
        (out / "checkpoint/commits" / str(newest)).unlink()
        finish(spark, broker, topic, out)
        assert_once(spark, out, range(60))
    send(broker, topic, range(60, 70))
    finish(spark, broker, topic, out)
    assert_once(spark, out, range(70))


def test_kills_leave_each_body_once(spark: Any, broker: RunningBroker, tmp_path: Path, chance: random.Random) -> None:
    """SIGKILL of `rocketpy pipeline run` and its JVM within a batch or right behind one, while more messages arrive."""
    topic, out, kills, count = f"Killed_{tmp_path.name}", tmp_path / "o", 0, 0
    words = [sys.executable, "-m", "rocketpy", "pipeline", "run"]
    while kills < KILLS:
        send(broker, topic, range(count, count + 100))
        count += 100
        log = chance.choice(("offsets", "commits"))
        wanted = last_batch(out, log) + chance.randint(1, 3)
        path = pipeline_file(broker, topic, out, "0 seconds")
        with (tmp_path / "log").open("ab") as file:
            process = subprocess.Popen([*words, str(path)], cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
        try:
            wait_until(
                lambda: last_batch(out, log) >= wanted or process.poll() is not None,  # noqa: B023  # called here alone
                f"batch {wanted} of {log}",
                DEADLINE_S,
            )
            time.sleep(chance.uniform(0, 0.3))  # somewhere in a batch
            assert process.poll() is None, (tmp_path / "log").read_text()
            kills += 1
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finish(spark, broker, topic, out)
    assert_once(spark, out, range(count))


def test_a_delta_table_gets_the_number_of_the_batch() -> None:
    """Delta drops a write of an application whose number it has."""
    rows = MagicMock()
    rows.isEmpty.return_value = False
    write_part(rows, {"format": "delta", "path": "/t"}, 7, "/c bad")
    rows.write.format.assert_called_once_with("delta")
    rows.write.format().options.assert_called_once_with(path="/t", txnAppId="/c bad", txnVersion="7")
    rows.write.format().options().mode.assert_called_once_with("append")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("decode =", "encode =", "bad needs decode, and the mode append"),
        ("checkpoint =", 'mode = "update"\ncheckpoint =', "bad needs decode, and the mode append"),
        ('"json", path = "/o/bad"', '"json"', "bad needs a path"),
        ('format = "json", path = "/o/bad"', 'path = "/o/bad"', "bad needs a format"),
        ("/o/bad", "/o/good", "bad needs a path of its own"),
    ],
)
def test_a_wrong_side_output_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = QUERY.format(namesrv="n:1", topic="T", out="/o", trigger="1 second")
    assert old in text
    (tmp_path / "p.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        Pipeline.read(tmp_path / "p.toml")


def test_sql_over_several_batches_is_refused(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    topic, said = f"Grouped_{tmp_path.name}", list[str]()
    send(broker, topic, range(3))
    path = pipeline_file(broker, topic, tmp_path / "o", "available now")
    path.write_text(path.read_text().replace("value.id, queueOffset", "count(*) AS n"))
    supervisor = Supervisor(spark, said.append)
    supervisor.add(Pipeline.read(path).queries)
    assert not supervisor.step() and supervisor.has_given_up
    assert "Aggregate needs rows of several micro-batches" in said[0]
