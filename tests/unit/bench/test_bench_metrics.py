"""bench.metrics: a bar is the most or the least, and the tables that it writes are those of a broker."""

from __future__ import annotations

import json
from pathlib import Path

from bench.metrics import QUEUES_EACH, TOPICS, Row, fill_tables
from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketpy.remoting.bodies.topic import TopicConfigSerializeWrapper


def test_rows() -> None:
    assert Row("a scrape", 190.4, "ms", 200).cells == ("a scrape", "190 ms", "≤ 200", "holds")
    assert Row("a scrape", 201, "ms", 200).cells[-1] == "missed"
    assert Row("sends", 0.97, "", 0.98, is_least=True).cells[-2:] == ("≥ 0.98", "missed")
    assert Row("text", 1.5, "MB").cells[-2:] == ("", "") and Row("text", 1.5, "MB").holds


def test_the_tables_are_those_of_a_broker(tmp_path: Path) -> None:
    fill_tables(tmp_path)
    config = tmp_path / "store" / "config"
    topics = TopicConfigSerializeWrapper.from_json(json.loads((config / "topics.json").read_text()))
    assert sum(topic.write_queue_nums for topic in topics.topic_config_table.values()) == TOPICS * QUEUES_EACH == 10_000
    offsets = ConsumerOffsetSerializeWrapper.from_json(json.loads((config / "consumerOffset.json").read_text()))
    assert len(offsets.offset_table) == TOPICS
