"""The supervisor of streaming queries: restarts with back-off, from checkpoints; one line for what it cannot repair."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError
from rocketpy.spark.jobs.queries import Pipeline, QuerySpec
from rocketpy.spark.jobs.supervisor import Supervisor, delay_s
from rocketpy.spark.session import REGISTERED, register
from tests.support.broker import RunningBroker
from tests.support.doc_examples import ROOT
from tests.support.readers import readable

DEADLINE_S = 240.0
QUERY = """
[query.orders]
source = {{ nameServer = "{namesrv}", topic = "{topic}", startingOffsets = "earliest", columns = "body,tags" }}
sql = "SELECT cast(body AS string) AS text FROM {{source}} WHERE tags = 't'"
sink = {{ format = "parquet", path = "{out}/data" }}
checkpoint = "{out}/checkpoint"
"""


def write(path: Path, text: str, **given: Any) -> Path:
    path.write_text(text.format(**given) if given else text)
    return path


def send(broker: RunningBroker, topic: str, numbers: range) -> None:
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        sent = [producer.send_soon(Message(topic, b"%d" % number, tags="t")) for number in numbers]
        readable([one.result() for one in sent])


def texts(out: Path) -> list[int]:
    """The rows of the sink, in the files that its own log names."""
    logs = [path for path in (out / "data/_spark_metadata").glob("*") if not path.name.startswith(".")]
    lines = {line for path in logs for line in path.read_text().splitlines()[1:]}
    paths = {json.loads(line)["path"] for line in lines}
    return sorted(
        int(text) for path in paths for text in pq.read_table(url2pathname(urlsplit(path).path))["text"].to_pylist()
    )


def run_until(supervisor: Supervisor, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert supervisor.step() and time.monotonic() < deadline_s
        time.sleep(0.05)


# --- the file ---


def test_a_file_declares_queries(tmp_path: Path) -> None:
    path = write(tmp_path / "p.toml", QUERY, namesrv="n:1", topic="T", out="/o")
    (spec,) = (pipeline := Pipeline.read(path)).queries
    assert pipeline.master == "local[2,3]" and spec.name == "orders"
    assert spec.source["format"] == "rocketmq" and spec.sink == {"format": "parquet", "path": "/o/data"}
    session = '[session]\nmaster = "spark://h:7077"\nconfig = { "spark.ui.enabled" = true, "spark.task.cpus" = 2 }\n'
    pipeline = Pipeline.read(write(path, session + path.read_text()))
    assert pipeline.master == "spark://h:7077"
    assert pipeline.config == {"spark.ui.enabled": "true", "spark.task.cpus": "2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "declares no query"),
        (lambda text: "=", "is not TOML"),
        (lambda text: text.replace("sink =", "sinks ="), r'\[query.orders\]: unknown key sinks; did you mean "sink"'),
        (lambda text: text.replace('format = "parquet", ', ""), "sink needs a format"),
        (lambda text: text.replace("checkpoint =", "trigger ="), "needs checkpoint, a text"),
        (lambda text: text.replace("FROM {source}", "FROM orders"), r"sql must read FROM \{source\}"),
        (lambda text: text + text.replace("orders]", "again]"), r"has the checkpoint of \[query.orders\]"),
        (lambda text: "queries = 1\n" + text, 'unknown key queries; did you mean "query"'),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    path = write(tmp_path / "p.toml", QUERY, namesrv="n:1", topic="T", out="/o")
    path.write_text(change(path.read_text()))
    with pytest.raises(ConfigError, match=message):
        Pipeline.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Pipeline.read(tmp_path / "none.toml")


def test_the_file_on_the_page_is_right(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/use/spark.md").read_text(), re.MULTILINE | re.DOTALL)
    (spec,) = Pipeline.read(write(tmp_path / "p.toml", text)).queries
    assert (spec.name, spec.trigger, spec.mode) == ("orders", "10 seconds", "append")


# --- restarts, without Spark ---


class Query:
    """A query that runs until a test ends it."""

    def __init__(self) -> None:
        self.isActive, self.error = True, None  # as Spark names it
        self.lastProgress: Any = {"batchId": 7, "processedRowsPerSecond": 12.4}

    def exception(self) -> Exception | None:
        return self.error

    def fail(self, error: Exception | None) -> None:
        self.isActive, self.error = False, error

    def stop(self) -> None:
        self.isActive = False


class Rig:
    """A supervisor of one query, with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.said, self.queries = 100.0, list[str](), list[Query]()
        self.errors: list[Exception] = []
        monkeypatch.setattr(QuerySpec, "start", lambda spec, spark: self.start())
        self.supervisor = Supervisor(None, self.said.append, lambda: self.now)  # type: ignore[arg-type]
        self.supervisor.add([QuerySpec("q", {}, {}, "c")])

    def start(self) -> Query:
        if self.errors:
            raise self.errors.pop(0)
        self.queries.append(Query())
        return self.queries[-1]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_delays_double_up_to_a_minute_and_begin_again_after_a_sound_run(rig: Rig) -> None:
    assert [delay_s(failures) for failures in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]
    rig.errors = [OSError("Python worker failed to connect back.")] * 2
    assert rig.supervisor.step() and rig.said == [
        "q: failed, starts again in 1 s: Python worker failed to connect back."
    ]
    assert rig.supervisor.step() and len(rig.said) == 1, "not before its time"
    rig.now += 1
    assert rig.supervisor.step() and "starts again in 2 s" in rig.said[-1]
    rig.now += 2
    assert rig.supervisor.step() and rig.said[-1] == "q: started"
    rig.supervisor.report()
    assert rig.said[-1] == "q: batch 7, 12 rows/s"
    rig.now += 59
    rig.queries[0].fail(OSError("lost"))
    assert rig.supervisor.step() and rig.said[-1] == "q: failed, starts again in 4 s: lost"
    rig.now += 4
    assert rig.supervisor.step()
    rig.now += 60
    rig.queries[1].fail(OSError("lost"))
    assert rig.supervisor.step() and "starts again in 1 s" in rig.said[-1]
    rig.supervisor.stop()
    assert not rig.supervisor.has_given_up


@pytest.mark.parametrize(
    "text",
    [
        "rocketpy.errors.ConfigError: topic: is empty",
        "rocketpy.spark.data_lost.DataLost: gone",
        "rocketpy.spark.outgoing.RowRefused: row 3 of this task (topic T): column body is null",
        "rocketpy.errors.MessageInvalid: the group DEFAULT_PRODUCER is reserved: choose a name of your own",
    ],
)
def test_what_a_restart_cannot_repair_is_said_once(rig: Rig, text: str) -> None:
    rig.errors = [ValueError(f"[STREAM_FAILED] Query failed\n{text}\n")]
    assert not rig.supervisor.step() and rig.supervisor.has_given_up
    assert rig.said == [f"q: gave up, as a restart cannot repair this: {text.split(': ', 1)[1]}"]
    assert not rig.supervisor.step() and len(rig.said) == 1


def test_a_query_that_has_read_all_is_done(rig: Rig) -> None:
    assert rig.supervisor.step()
    rig.queries[0].fail(None)
    assert not rig.supervisor.step() and rig.said[-1] == "q: done" and not rig.supervisor.has_given_up


# --- with Spark ---


@pytest.fixture
def worker(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """A Python for workers that ends at once while this file exists: the JVM then waits for it in vain."""
    broken, python = tmp_path / "broken", tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ -e "{broken}" ] && rm "{broken}" && exit 1\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    before = spark.sparkContext.pythonExec
    for chosen in (str(python), before):
        spark.sparkContext.pythonExec = chosen
        setattr(spark, REGISTERED, False)
        register(spark)
        if chosen != before:
            yield broken


def test_a_query_whose_worker_did_not_start_goes_on_from_its_checkpoint(
    spark: Any, broker: RunningBroker, tmp_path: Path, worker: Path
) -> None:
    topic, out, said = f"Orders_{tmp_path.name}", tmp_path / "o", list[str]()
    send(broker, topic, range(50))
    pipeline = Pipeline.read(write(tmp_path / "p.toml", QUERY, namesrv=broker.namesrv, topic=topic, out=out))
    for numbers in (range(50), range(50, 90)):
        if numbers.start:
            send(broker, topic, numbers)
        worker.touch()
        supervisor = Supervisor(spark, said.append)
        supervisor.add(pipeline.queries)
        run_until(supervisor, lambda: texts(out) == [*range(numbers.stop)])  # noqa: B023  # called here alone
        supervisor.stop()
    assert any("orders: failed, starts again in 1 s: " in line for line in said), said
    assert said.count("orders: started") >= 2 and said[-1] == "orders: stopped"


def test_a_row_that_no_broker_takes_ends_its_query(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    """Fault: A query with a row that the sink refuses was started again and again, and sent other rows each time."""
    topic, out, said = f"Refused_{tmp_path.name}", tmp_path / "o", list[str]()
    send(broker, topic, range(3))
    text = QUERY.replace("cast(body AS string) AS text", "nullif(body, cast('1' AS binary)) AS body")
    text = text.replace('format = "parquet", path = "{out}/data"', 'format = "rocketmq", topic = "Copy", {servers}')
    servers = f'nameServer = "{broker.namesrv}"'
    path = write(tmp_path / "p.toml", text, namesrv=broker.namesrv, topic=topic, out=out, servers=servers)
    supervisor = Supervisor(spark, said.append)
    supervisor.add(Pipeline.read(path).queries)
    deadline_s = time.monotonic() + DEADLINE_S
    while supervisor.step():
        assert len(said) < 2 and time.monotonic() < deadline_s, said
        time.sleep(0.05)
    assert re.fullmatch(r"orders: gave up, .* this: row \d of this task \(topic Copy\): column body is null", said[1])


@pytest.mark.usefixtures("commands_use_session")
def test_the_command_gives_up_on_wrong_options_and_ends_with_sigterm(broker: RunningBroker, tmp_path: Path) -> None:
    topic, out = f"Command_{tmp_path.name}", tmp_path / "o"
    send(broker, topic, range(20))
    path = write(tmp_path / "p.toml", QUERY, namesrv=broker.namesrv, topic=topic, out=out)
    wrong = path.read_text().replace("orders]", "wrong]").replace("columns", "colums").replace("/checkpoint", "/c2")
    path.write_text(path.read_text() + wrong)

    def stop() -> None:
        """SIGTERM once the rows are there; at the deadline, too, so that the command ends."""
        deadline_s = time.monotonic() + DEADLINE_S
        while texts(out) != [*range(20)] and time.monotonic() < deadline_s:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    done = CliRunner().invoke(cli, ["pipeline", "run", str(path)])
    stopper.join()
    said = done.stderr.splitlines()
    assert done.exit_code == 2 and texts(out) == [*range(20)], done.output
    assert 'wrong: gave up, as a restart cannot repair this: colums: unknown option; did you mean "columns"?' in said
    assert said[-1] == "orders: stopped" and "Traceback" not in done.output
