"""Topics: the built-in ones, the file, and what the send and pull workers and name servers hear of changes."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.topic_config import TopicConfigManager
from rocketpy.errors import ConfigError
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import SlowPathRig


def topics_of(root: Path, **settings: object) -> TopicConfigManager:
    return SlowPathRig(root, **settings).services.topics


def test_built_in_topics(tmp_path: Path) -> None:
    """Holds: broker, built-in topics and groups."""
    table = {name: (c.read_queue_nums, c.perm) for name, c in topics_of(tmp_path).topics.items()}
    assert table == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
    }


def test_built_in_topics_follow_the_settings(tmp_path: Path) -> None:
    settings = {"auto_create_topic_enable": False, "cluster_topic_enable": False, "trace_topic_enable": True}
    topics = topics_of(tmp_path, **settings)
    assert topics.select("TBW102") is None
    cluster = topics.select("DefaultCluster")
    assert cluster is not None and cluster.perm == 1
    assert topics.select("RMQ_SYS_TRACE_TOPIC") is not None


def test_a_file_of_java_is_laid_over_the_built_in_topics(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    document = {
        "dataVersion": {"counter": 9, "stateVersion": 0, "timestamp": 1234},
        "topicConfigTable": {
            "T": {"attributes": {"a": "b"}, "perm": 4, "readQueueNums": 3, "topicName": "T", "writeQueueNums": 2},
            "TBW102": {"perm": 7, "readQueueNums": 2, "topicName": "TBW102", "writeQueueNums": 2},
        },
    }
    path.write_text(json.dumps(document))
    topics = topics_of(tmp_path)
    topics.load()
    assert topics.select("T") == TopicConfig(topic_name="T", perm=4, read_queue_nums=3, write_queue_nums=2)
    assert topics.select("SELF_TEST_TOPIC") is not None
    template = topics.select("TBW102")
    assert template is not None and template.write_queue_nums == 2
    assert (topics.data_version.counter, topics.data_version.timestamp_ms) == (9, 1234)

    topics.update(TopicConfig(topic_name="T", perm=6))
    trio.run(topics.file.save)
    written = json.loads(path.read_text())
    assert written["topicConfigTable"]["T"]["attributes"] == {"a": "b"}, "what we do not know is kept"
    assert written["topicConfigTable"]["T"]["perm"] == 6
    assert written["dataVersion"]["counter"] == 10


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "[]",
        '{"topicConfigTable":[1]}',
        '{"topicConfigTable":{"X":1}}',
        '{"topicConfigTable":{"X":{"perm":[],"brokerId":[]}}}',
        '{"dataVersion":[1]}',
    ],
)
def test_a_damaged_file_refuses_to_load(tmp_path: Path, document: str) -> None:
    """Fault: A member that is not of its type ended the start without the name of the file."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(document)
    with pytest.raises(ConfigError, match=r"topics\.json"):
        topics_of(tmp_path).load()


def test_changes_are_told_once_and_move_the_version(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    topics = rig.services.topics
    changed: list[str] = []
    topics.on_change = lambda config: changed.append(config.topic_name)
    before = topics.data_version.counter
    topics.create_if_missing("T", queue_nums=2)
    topics.create_if_missing("T", queue_nums=5)
    assert changed == ["T"] and topics.data_version.counter == before + 1
    assert topics.delete("T") and not topics.delete("T")
    assert [name for name, _ in rig.fast_path.calls] == ["topic_changed", "topic_removed"]


def test_a_created_topic_is_logged_by_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: The log line of a new topic was the text of a Python object, with the name in the middle."""
    caplog.set_level(logging.INFO)
    topics_of(tmp_path).create_if_missing("T", queue_nums=4)
    assert caplog.messages[-1] == "created topic T: 4 read queues, 4 write queues, perm 6"


def test_order_flags_follow_the_name_server(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    topics = rig.services.topics
    topics.update(TopicConfig(topic_name="A"))
    topics.update(TopicConfig(topic_name="B", order=True))
    assert trio.run(topics.update_order_topics, {"A", "unknown"})
    orders = {name: topics.topics[name].order for name in "AB"}
    assert orders == {"A": True, "B": False}
    assert not trio.run(topics.update_order_topics, {"A"})


def test_no_send_and_slow_topics_are_marked_for_the_fast_path(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    trio.run(rig.services.topics.announce)
    marks = {name: (told["no_send"], told["slow"]) for name, told in rig.fast_path.named("topic_changed")}
    assert marks["SCHEDULE_TOPIC_XXXX"] == (True, False)
    assert marks["TBW102"] == (False, False)
