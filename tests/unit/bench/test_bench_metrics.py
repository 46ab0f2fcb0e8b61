"""bench.metrics: the tables that it writes are those of a broker."""

from __future__ import annotations

import json
from pathlib import Path

from bench.metrics import QUEUES_EACH, TOPICS, fill_tables
from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketpy.remoting.bodies.topic import TopicConfigSerializeWrapper


def test_the_tables_are_those_of_a_broker(tmp_path: Path) -> None:
    fill_tables(tmp_path)
    config = tmp_path / "store" / "config"
    topics = TopicConfigSerializeWrapper.from_json(json.loads((config / "topics.json").read_text()))
    assert sum(topic.write_queue_nums for topic in topics.topic_config_table.values()) == TOPICS * QUEUES_EACH == 10_000
    offsets = ConsumerOffsetSerializeWrapper.from_json(json.loads((config / "consumerOffset.json").read_text()))
    assert len(offsets.offset_table) == TOPICS
