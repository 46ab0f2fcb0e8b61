"""Scenario files: keys, sweeps, and errors that name the key and what is allowed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rocketpy.bench import scenario
from rocketpy.bench.scenario import KEYS, Scenario, points, read
from rocketpy.errors import ConfigError
from tests.support.cases import cases


def test_the_keys_are_those_of_the_openmessaging_benchmark() -> None:
    theirs = {
        *("name", "topics", "partitionsPerTopic", "messageSize", "subscriptionsPerTopic", "producersPerTopic"),
        *("consumerPerSubscription", "producerRate", "consumerBacklogSizeGB"),
        *("testDurationMinutes", "warmupDurationMinutes"),
    }
    assert theirs <= KEYS.keys()


def test_a_file_may_be_yaml_or_toml(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("topics: 2\nmessageSize: 128\nbroker: {transientStorePoolEnable: true}\n")
    (tmp_path / "one.toml").write_text("topics = 2\nmessageSize = 128\n[broker]\ntransientStorePoolEnable = true\n")
    (yaml,), (toml,) = read(str(tmp_path / "one.yaml")), read(str(tmp_path / "one.toml"))
    assert yaml == toml
    assert yaml.scenario == Scenario(
        name="one", topics=2, message_size=128, broker={"transientStorePoolEnable": "true"}
    )


def test_lists_make_a_point_for_each_pair_of_values() -> None:
    found = points({"producerRate": [100, 200], "messageSize": [16, 32], "topics": 3}, "sweep.yaml")
    assert [point.name for point in found] == [
        "producerRate=100, messageSize=16",
        "producerRate=100, messageSize=32",
        "producerRate=200, messageSize=16",
        "producerRate=200, messageSize=32",
    ]
    assert [(one.scenario.producer_rate, one.scenario.message_size, one.scenario.topics) for one in found][1:3] == [
        (100, 32, 3),
        (200, 16, 3),
    ]


@cases(
    "content, expected",
    [
        ({"partitionPerTopic": 4}, "unknown key partitionPerTopic, did you mean partitionsPerTopic?"),
        ({"topics": 1.5}, "topics is 1.5, expected a whole number from 1 to 10000"),
        ({"topics": True}, "topics is True, expected a whole number"),
        ({"messageSize": 4}, "messageSize is 4, expected a whole number from 8"),
        ({"transactions": 1}, "transactions is 1, expected true or false"),
        ({"name": 7}, "name is 7, expected text"),
        ({"broker": "SYNC_FLUSH"}, "broker is no mapping"),
        ({"producerRate": []}, "make 0 points"),
        ({"producerRate": list(range(65))}, "make 65 points"),
        (
            {key: [*range(1, 999)] for key in ("topics", "producerRate", "messageSize", "batchSize")},
            "make 992023968016",
        ),
        ({"messageSize": math.nan}, "messageSize is nan, expected a whole number from 8"),
        ({"messageSize": math.inf}, "messageSize is inf, expected a whole number from 8"),
        ({"producerRate": [1, 1]}, "names a value twice"),
        ({"topics": 1000, "partitionsPerTopic": 1000}, "exceed 200000 queues"),
        ({"batchSize": 2, "transactions": True}, "a batch has no transactions"),
        ({"delayLevel": 1, "delayMillis": 5}, "delayLevel and delayMillis exclude each other"),
        ({"randomReads": True}, "randomReads needs consumerBacklogSizeGB"),
        ({"consumerBacklogSizeGB": 1, "subscriptionsPerTopic": 0}, "needs subscriptionsPerTopic"),
        ({"coldReads": True}, "coldReads needs consumerBacklogSizeGB"),
        ({"filterExpression": "Tag1", "subscriptionsPerTopic": 0}, "filterExpression needs subscriptionsPerTopic"),
        ({"filterExpression": "Tag1", "batchSize": 2}, "filterExpression and batches exclude each other"),
        ({"filterExpression": "Tag1", "partitionsPerTopic": 2001}, "up to 2000 queues"),
        ({"slaves": 1, "tls": True}, "have no tls"),
        ({"accounts": True, "idleConnections": 9}, "idleConnections sign nothing"),
        ({"producersPerTopic": 0}, "set producersPerTopic"),
        ({"batchSize": 4096, "messageSize": 4096}, "exceeds 4 MiB"),
    ],
)
def test_an_error_names_file_key_and_what_is_allowed(content: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml: ") as caught:
        points(content, "mine.yaml")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("- 1\n", "expected keys and values"), ("a: [", "while parsing"), ("[" * 1000, "recursion")]
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=expected):
        read(str(tmp_path / "bad.yaml"))


def test_a_missing_file_is_answered_with_the_shipped_names() -> None:
    with pytest.raises(ConfigError, match=r"shipped are .*latency.*throughput"):
        read("nowhere.yaml")


def test_properties_of_brokers_are_swept_and_name_their_points() -> None:
    found = points({"broker": [{"brokerRole": "SYNC_MASTER", "transferMsgByHeap": False}, {}]}, "mine.yaml")
    assert [point.name for point in found] == ["brokerRole=SYNC_MASTER, transferMsgByHeap=false", "default properties"]
    assert found[0].scenario.broker == {"brokerRole": "SYNC_MASTER", "transferMsgByHeap": "false"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", "TAG"),
        ("*", "TAG"),
        ("TagA", "TAG"),
        ("TagA || Tag-B||C", "TAG"),
        ("number < 5", "SQL92"),
        ("a=1", "SQL92"),
    ],
)
def test_an_expression_of_tags_is_told_from_sql(expression: str, expected: str) -> None:
    assert Scenario(filter_expression=expression).filter_type == expected


def test_keys_for_brokers_that_are_started_here() -> None:
    assert Scenario().needs_own_broker == []
    assert Scenario(broker={"a": "b"}, tls=True, cold_reads=True).needs_own_broker == ["broker", "tls", "coldReads"]


def test_a_quick_run_has_the_last_point_and_is_small() -> None:
    sweep = {"partitionsPerTopic": [1, 100, 10000], "idleConnections": 50000, "producerRate": 90000}
    (found,) = scenario.quick(points(sweep, "mine.yaml"))
    assert found.name == "partitionsPerTopic=10000" and found.scenario.partitions_per_topic == 8
    assert (found.scenario.idle_connections, found.scenario.producer_rate) == (200, 500)
    (closed,) = scenario.quick(points({"producerRate": 0}, "mine.yaml"))
    assert closed.scenario.producer_rate == 0, "it stays a closed loop"


@cases("name", scenario.shipped())
def test_the_shipped_scenarios_are_valid(name: str) -> None:
    text = scenario.shipped()[name]
    assert text.startswith("# "), "the first line says what it measures"
    assert {point.scenario.name for point in read(name)} == {name}
