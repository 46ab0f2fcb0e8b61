"""The table as it was when asked for, whatever happens while it is written."""

from __future__ import annotations

import json

from rocketpy.broker.managers.documents import with_unknown_fields
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig
from rocketpy.remoting.json_writer import compact_pieces


def test_unknown_fields_stay_and_the_version_is_that_of_the_copy() -> None:
    table = {name: TopicConfig(topic_name=name) for name in ("A", "B")}
    document = with_unknown_fields("topics", DataVersion(counter=3), dict(table), {"B": {"attributes": {}}})
    table["C"] = TopicConfig(topic_name="C")
    read = json.loads("".join(compact_pieces(document)))
    assert read["dataVersion"]["counter"] == 3 and list(read["topics"]) == ["A", "B"]
    assert "attributes" not in read["topics"]["A"] and read["topics"]["B"]["attributes"] == {}
    assert read["topics"]["B"]["topicName"] == "B"
