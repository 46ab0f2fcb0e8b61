"""The statistics of topics are those of what was sent, and the same from brokers, a store and an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.draining import Look, rates
from rocketpy.spark.jobs.inputs import Input
from rocketpy.spark.jobs.stats import _draw, stats
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import verify_store
from tests.support.broker import running_broker
from tests.support.readers import wait_for_readers
from tests.unit.store.test_java_store import unpack

RATES = ("consumed_per_second", "stored_per_second", "drain_s")


def test_brokers_store_and_archive_give_the_same_figures(spark: Any, tmp_path: Path) -> None:
    with running_broker({"defaultTopicQueueNums": "4"}) as broker:
        with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
            queues = producer.queues("Orders")
            for number in range(120):
                queue = queues[0] if number < 60 else queues[number % 4]
                producer.send(Message("Orders", b"x" * (number + 1), keys=(f"k{number % 7}", "all")), queue=queue)
            producer.send(Message("7", b"the name of this topic is a number"))
        wait_for_readers(broker.port)
        cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
        cluster.commit("billing", dict.fromkeys(cluster.queues({"Orders"}), 10))
        live = Input(name_server=broker.namesrv, topics=("Orders", "7"))
        of_brokers = stats(spark, live, groups=("billing",), plot=tmp_path / "stats.png")
        broker.stop()
        of_store = stats(spark, Input(store=broker.store, topics=("Orders", "7")))
        with pytest.raises(ConfigError, match="group nobody has committed no offset"):
            stats(spark, Input(store=broker.store), groups=("nobody",))
        whole = stats(spark, Input(store=broker.store))
        assert whole.totals["messages"] == verify_store(StoreReader(broker.store)).records
        archive(spark, broker.store, tmp_path / "archive", broker="b")
    of_archive = stats(spark, Input(archive=tmp_path / "archive", topics=("Orders", "7")))
    assert of_brokers.is_sound and (tmp_path / "stats.png").stat().st_size > 1000
    for report in (of_store, of_archive):
        assert report.totals == of_brokers.totals
        assert report.tables | {"backlog": []} == of_brokers.tables | {"backlog": []}
    orders, number = of_brokers.tables["topics"]
    assert (orders["topic"], orders["queues"], orders["messages"]) == ("Orders", 4, 120)
    assert orders["skew"] == 75 / 30 and orders["producers"] == 1 and number["topic"] == "7"
    assert of_brokers.tables["keys"][0] == {"topic": "Orders", "key": "all", "messages": 120}
    assert sum(row["messages"] for row in of_brokers.tables["over_time"]) == 121
    for report in (of_brokers, of_store):
        behind = report.tables["backlog"][0]
        assert (behind["group"], behind["topic"], behind["backlog"]) == ("billing", "Orders", 120 - 40)
        assert behind["oldest_age_s"] > 0


def test_groups_are_watched_for_their_rates(spark: Any) -> None:
    """While they are watched a group consumes 30 messages and 10 are stored, in 20 s: 80 remain."""
    now = iter((100.0, 105.0, 120.0))
    slept = []
    with (
        running_broker({"defaultTopicQueueNums": "1"}) as broker,
        Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer,
    ):
        for number in range(100):
            producer.send(Message("Watched", b"%d" % number))
        wait_for_readers(broker.port)
        cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
        queues = cluster.queues({"Watched"})
        for group in ("fast", "idle", "done"):
            cluster.commit(group, dict.fromkeys(queues, 100 if group == "done" else 0))

        def meanwhile(seconds: float) -> None:
            slept.append(seconds)
            for number in range(10):
                producer.send(Message("Watched", b"%d" % number))
            wait_for_readers(broker.port)
            cluster.commit("fast", dict.fromkeys(queues, 30))
            cluster.commit("done", dict.fromkeys(queues, 110))

        source = Input(name_server=broker.namesrv, topics=("Watched",))
        groups = ("fast", "idle", "done")
        report = stats(spark, source, groups=groups, watch_s=15.0, clock=lambda: next(now), sleep=meanwhile)
    assert slept == [10.0]
    found = {row["group"]: row for row in report.tables["backlog"]}
    assert [found["fast"][name] for name in RATES] == [1.5, 0.5, 80.0]
    assert [found["idle"][name] for name in RATES] == [0.0, 0.5, None]
    assert [found["done"][name] for name in RATES] == [0.5, 0.5, 0.0]
    assert json.dumps(report.as_json())


def test_a_store_time_that_is_none_is_not_drawn(tmp_path: Path) -> None:
    given = {"topic": "T", "messages_per_second": 1.0, "bytes_per_second": 10.0}
    assert _draw(tmp_path / "plot.png", [{"second": None, **given}, {"second": 60, **given}], ["T"]).exists()


def test_queues_that_one_look_lacks_are_left_out() -> None:
    old, new = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    first = Look(0.0, {("g", old): 10}, {old: 50})
    second = Look(10.0, {("g", old): 5, ("g", new): 7}, {old: 50, new: 90})
    assert rates(first, second) == {
        ("g", "T"): {"consumed_per_second": -0.5, "stored_per_second": 0.0, "drain_s": None}
    }
    assert rates(first, Look(1.0, {}, {})) == {}


def test_only_groups_of_brokers_can_be_watched(spark: Any, tmp_path: Path) -> None:
    for source, groups in ((Input(store=tmp_path), ("g",)), (Input(name_server="n:1", topics=("T",)), ())):
        with pytest.raises(ConfigError, match="needs --name-server and --group"):
            stats(spark, source, groups=groups, watch_s=1.0)


def test_a_store_of_java(spark: Any, tmp_path: Path) -> None:
    unpack("clean", tmp_path)
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config/consumerOffset.json").write_text('{"offsetTable":{"A@readers":{0:1},"gone@readers":{0:5}}}')
    report = stats(spark, Input(store=tmp_path))
    assert report.totals["messages"] == verify_store(StoreReader(tmp_path)).records == 200
    (topic,) = [row for row in report.tables["topics"] if row["topic"] == "A"]
    (behind,) = report.tables["backlog"]
    assert behind["backlog"] == topic["messages"] - 1 or topic["queues"] > 1


@pytest.mark.parametrize(
    ("places", "missing", "repeated"),
    [
        ([(0, 0), (0, 1), (0, 3)], 1, 0),
        ([(0, 0), (0, 1), (0, 1)], 0, 1),
        ([(0, 0), (0, 2), (1, 5), (1, 5)], 1, 1),
        ([(0, 0), (0, 1), (0, 1), (0, 3)], 1, 1),
        ([(0, 7), (0, 8), (1, 1 << 60), (1, (1 << 60) + 1)], 0, 0),
    ],
)
def test_gaps_and_repeated_offsets_are_findings(
    spark: Any, places: list[tuple[int, int]], missing: int, repeated: int
) -> None:
    """As an archive has a gap where records were deleted before they were archived. They do not cancel.
    Fault: `pipeline stats` did not report a gap in one queue beside repeated offsets in another."""

    class Given(Input):
        def frame(self, spark: Any, columns: Any) -> Any:
            schema = "topic string, queueId int, queueOffset bigint, brokerName string, keys string, storeSize int"
            rows = [("T", queue, offset, "b", None, 100) for queue, offset in places]
            made = spark.createDataFrame(rows, schema)
            return made.selectExpr("*", "timestamp_seconds(queueOffset % 100) storeTimestamp", "'h:1' bornHost")

    report = stats(spark, Given(archive=Path("/")))
    assert list(report.checks.values()) == [missing == 0, repeated == 0] and json.dumps(report.as_json())
    (topic,) = report.tables["topics"]
    assert (topic["missing"], topic["repeated"]) == (missing, repeated)


def test_inputs_that_cannot_be_read(spark: Any, tmp_path: Path) -> None:
    for given, message in [
        ({}, "name one input"),
        ({"name_server": "n:1"}, "--topic"),
        ({"name_server": "n:1", "store": tmp_path}, "name one input"),
        ({"archive": tmp_path / "no"}, "is not a directory"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Input(**given)
