"""The examples of docs/use/examples/spark do what they say, on a real broker. `make test-gallery` runs all of them."""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import rocketpy.spark
from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions, PushOptions
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer, PushConsumer
from rocketpy.spark.cluster import CLUSTERS
from tests.support.broker import RunningBroker
from tests.support.readers import readable, wait_for_readers
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

EXAMPLES = ROOT / "docs/use/examples/spark"
DEADLINE_S = 240.0


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def producer(broker: RunningBroker) -> Iterator[Producer]:
    with Producer("gallery", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as started:
        yield started


def send(producer: Producer, topic: str, *values: Any, **fields: Any) -> None:
    """JSON bodies, all to one queue: their order is kept."""
    queue = min(producer.queues(topic))
    bodies = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    readable([producer.send(Message(topic, body, **fields), queue=queue) for body in bodies])


def rows(spark: Any, path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).collect())


def read(spark: Any, broker: RunningBroker, topic: str) -> list[tuple[str, bytes]]:
    frame = rocketpy.spark.read(spark, nameServer=broker.namesrv, topic=topic, columns="keys,body")
    return [(row.keys, bytes(row.body)) for row in frame.collect()]


def topics_of(broker: RunningBroker) -> list[str]:
    time.sleep(0.2)
    topics: list[str] = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv)).topics()
    return topics


def at(minute: int) -> str:
    return f"2026-11-29T{12 + minute // 60:02}:{minute % 60:02}:00Z"


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text()
    assert [path.stem for path in sorted(EXAMPLES.glob("*.py")) if f'example("{path.stem}")' not in text] == []
    assert len(list(EXAMPLES.glob("*.py"))) == 10


@pytest.mark.gallery
def test_late_data(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    def click(minute: int) -> dict[str, str]:
        return {"page": "home", "at": at(minute)}

    run = example("late_data").run
    send(producer, "Clicks", click(0), click(0), click(30))
    run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
    assert [(page, count) for page, _, count in rows(spark, tmp_path / "clicks")] == [("home", 2)]
    send(producer, "Clicks", click(0), click(50))  # the first one is too late
    run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
    assert [count for _, _, count in rows(spark, tmp_path / "clicks")] == [2, 1]


@pytest.mark.gallery
def test_join_topics(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    def order(number: int, minute: int) -> dict[str, Any]:
        return {"order": number, "amount": 1.5, "ordered": at(minute)}

    send(producer, "Orders", order(1, 0), order(2, 0), order(3, 0), order(9, 300))
    send(producer, "Payments", {"of": 1, "paid": at(5)}, {"of": 2, "paid": at(61)}, {"of": 9, "paid": at(301)})
    run = example("join_topics").run
    for _ in range(2):  # the watermark moves between two batches
        run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
        send(producer, "Payments", {"of": 0, "paid": at(400)})
        send(producer, "Orders", order(10, 400))
    found = {row[0]: row[3] is not None for row in rows(spark, tmp_path / "orders") if row[0] < 9}
    assert found == {1: True, 2: False, 3: False}


@pytest.mark.gallery
def test_sessions(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    visits = [{"user": "ann", "page": "p", "at": at(minute)} for minute in (0, 20, 45, 90, 300)]
    send(producer, "Visits", *visits, {"user": "bob", "page": "p", "at": at(10)})
    example("sessions").run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
    found = [
        (user, (ended - began).total_seconds() // 60, clicks)
        for user, began, ended, clicks in rows(spark, tmp_path / "visits")
    ]
    assert found == [("ann", 45, 3), ("ann", 0, 1), ("bob", 0, 1)]


@pytest.mark.gallery
def test_dead_letters(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    send(producer, "Bills", {"order": 1, "amount": 2.0}, b"{no", keys=("k",))

    def refuse(message: Any) -> None:
        raise ValueError("cannot be billed")

    options = PushOptions(name_servers=broker.namesrv, reconsume_times_max=0)
    with PushConsumer("billing", {"Bills": "*"}, refuse, options=options):
        wait_until(lambda: "%DLQ%billing" in topics_of(broker), "the topic of dead letters", DEADLINE_S)
        wait_until(lambda: len(read(spark, broker, "%DLQ%billing")) == 2, "two dead letters", DEADLINE_S)
    summary = example("dead_letters").run(spark, broker.namesrv, str(tmp_path)).collect()
    assert [tuple(row) for row in summary] == [("is no JSON of the schema", 1)]
    assert [body for _, body in read(spark, broker, "Bills")].count(b'{"order": 1, "amount": 2.0}') == 2


@pytest.mark.gallery
def test_cdc_merge(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    import deltalake

    def change(op: str, number: int, name: str | None) -> dict[str, Any]:
        return {"op": op, "before": {"id": number}, "after": None if name is None else {"id": number, "name": name}}

    run = example("cdc_merge").run
    send(producer, "Customers", change("c", 1, "Ann"), change("c", 2, "Bob"), change("u", 1, "Anna"))
    run(spark, broker.namesrv, str(tmp_path)).awaitTermination()

    def table() -> dict[int, str]:
        found = deltalake.DeltaTable(str(tmp_path / "customers")).to_pyarrow_table()
        return dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))

    assert table() == {1: "Anna", 2: "Bob"}
    (tmp_path / "customers-checkpoint/commits/0").unlink()  # as if Spark had died before it noted the batch
    for crc in (tmp_path / "customers-checkpoint/commits").glob(".0.crc"):
        crc.unlink()
    send(producer, "Customers", change("d", 2, None), change("c", 3, "Cid"))
    run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
    assert table() == {1: "Anna", 3: "Cid"}


def test_database(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    run = example("database").run
    send(producer, "Sales", {"shop": "a", "amount": 3}, {"shop": "b", "amount": 4}, b"no", {"shop": "a", "amount": 5})
    run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
    for name in ("0", ".0.crc"):  # as if Spark had died before it noted the batch
        (tmp_path / "totals-checkpoint/commits" / name).unlink(missing_ok=True)
    run(spark, broker.namesrv, str(tmp_path)).awaitTermination()
    with closing(sqlite3.connect(tmp_path / "totals.db")) as database:
        assert sorted(database.execute("SELECT * FROM totals")) == [("a", 8), ("b", 4)]


@pytest.mark.gallery
def test_trace_analytics(spark: Any, broker: RunningBroker) -> None:
    options = {"name_servers": broker.namesrv, "trace": True}
    got: list[Any] = []
    with PushConsumer("traced", {"Traced": "*"}, got.append, options=PushOptions(**options)):
        with Producer("tracers", ProducerOptions(**options, send_timeout=10)) as producer:
            send(producer, "Traced", {}, {}, {})
        wait_until(lambda: len(got) == 3, "three messages", DEADLINE_S)
    wait_for_readers(broker.port)  # of the traces
    found = example("trace_analytics").run(spark, broker.namesrv).collect()
    assert [(row.topic, row.group, row.deliveries) for row in found if row.topic == "Traced"] == [
        ("Traced", "traced", 3)
    ]


@pytest.mark.gallery
def test_lag_dashboard(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    send(producer, "Measured", *range(20))
    metrics, query = example("lag_dashboard").run(spark, broker.namesrv, str(tmp_path), port=0)
    try:

        def lag() -> int | None:
            time.sleep(0.1)
            return sum(one.messages for one in metrics.lags().get("measured", {}).values()) if metrics.lags() else None

        wait_until(lambda: lag() == 0, "the lag to fall to zero", DEADLINE_S)
    finally:
        query.stop()
        metrics.close()


@pytest.mark.gallery
def test_replay_after_bug(spark: Any, broker: RunningBroker, producer: Producer) -> None:
    send(producer, "Invoices", {"order": 1, "cents": -100}, {"order": 2, "cents": 5}, keys=("o",))
    now_ms = int(time.time() * 1000)
    example("replay_after_bug").run(spark, broker.namesrv, now_ms - 60_000, now_ms + 60_000)
    again = read(spark, broker, "InvoicesAgain")
    assert [(keys, json.loads(body)) for keys, body in again] == [("o", {"order": 1, "cents": 100})]


@pytest.mark.gallery
def test_erasure(broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    """Fault: The table's log still had the erased key, in the condition of DELETE and in statistics of old files."""
    table, erase = tmp_path / "table", example("erasure").run
    words = ["pipeline", "archive", "--inline", "-n", broker.namesrv, "-t", "People", "--format", "delta"]

    def archived() -> list[bytes]:
        done = CliRunner().invoke(cli, [*words, str(table)])
        assert done.exit_code == 0, done.output
        return sorted(DeltaTable(table).to_pyarrow_table()["body"].to_pylist())

    def places() -> set[str]:
        """The directories of files that have the key, as it is or in a Parquet column."""
        found = set()
        for path in (path for path in table.rglob("*") if path.is_file()):
            text = path.read_bytes().decode(errors="replace")
            if path.suffix == ".parquet":
                text += str(pq.ParquetFile(path).read().to_pylist())
            if re.search(r"user-7\b|secret of 7", text):
                found.add(path.parent.name.partition("=")[0])
        return found

    send(producer, "People", b"of 70", keys=("user-70",))
    send(producer, "People", b"secret of 7", keys=("user-7", "x"))
    assert archived() == [b"of 70", b"secret of 7"]
    DeltaTable(table).create_checkpoint()
    assert places() == {"dt", "_delta_log"}
    assert erase(str(table), "user-7") == 1
    assert places() == set(), "nor in files of old versions, nor in the log"
    send(producer, "People", b"of 8", keys=("user-8",))
    assert archived() == [b"of 70", b"of 8"], "later runs go on behind it"
    assert places() == set()
    with pytest.raises(ValueError, match="is no key"):
        erase(str(table), "x'; DROP")
