"""Consumer offsets: Java's file is read, written in the same form, and commits are unconditional."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.consumer_offset import ConsumerOffsetManager
from rocketpy.errors import ConfigError
from rocketpy.remoting import fastjson

JAVA_FILE = '{\n\t"offsetTable":{\n\t\t"TopicTest@GroupA":{0:12,3:7\n\t\t},\n\t\t"TopicTest@GroupB":{1:9\n\t\t}\n\t}\n}'


def test_a_file_of_java_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(JAVA_FILE)
    offsets = ConsumerOffsetManager(path)
    offsets.load()
    assert offsets.query_all("GroupA", "TopicTest") == {0: 12, 3: 7}
    offsets.file.changed()
    trio.run(offsets.file.save)
    assert path.read_text() == JAVA_FILE


def test_quoted_keys_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"T@G":{"0":5}},"dataVersion":{"counter":1}}')
    offsets = ConsumerOffsetManager(path)
    offsets.load()
    assert offsets.query("G", "T", 0) == 5


def test_commits_go_forward_and_back(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(tmp_path / "x")
    assert offsets.query("G", "T", 0) == -1
    assert offsets.commit("G", "T", 0, 10) == -1
    assert offsets.commit("G", "T", 0, 4) == 10
    assert offsets.query("G", "T", 0) == 4


def test_an_unchanged_offset_is_not_written_again(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(tmp_path / "x")
    offsets.commit("G", "T", 0, 10)
    trio.run(offsets.file.save)
    offsets.commit("G", "T", 0, 10)
    assert not offsets.file.is_dirty


def test_by_topic_by_group_and_clone(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(tmp_path / "x")
    offsets.commit("G", "T", 0, 1)
    offsets.commit("G", "%RETRY%G", 0, 2)
    offsets.commit("H", "T", 1, 3)
    assert offsets.topics_of("G") == {"T", "%RETRY%G"}
    assert offsets.groups_of("T") == {"G", "H"}
    offsets.clone("G", "N", "T")
    offsets.commit("N", "T", 0, 9)
    assert offsets.query("G", "T", 0) == 1, "a clone is a copy"
    trio.run(offsets.remove_group, "G")
    assert offsets.topics_of("G") == set() and offsets.query("H", "T", 1) == 3
    trio.run(offsets.remove_topic, "T")
    assert fastjson.dumps(offsets.document()) == b'{"offsetTable":{}}'


def test_updates_are_remembered_until_their_topic_or_group_goes(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(tmp_path / "x")
    assert not offsets.was_told_since("G", "T", 0, 5)
    for group in ("G", "H"):
        offsets.commit(group, "T", 0, 10)
        offsets.told(group, "T", 0, 7)
        assert offsets.was_told_since(group, "T", 0, 7) and not offsets.was_told_since(group, "T", 0, 8)
        assert not offsets.was_told_since(group, "T", 1, 7)
    trio.run(offsets.remove_group, "G")
    assert not offsets.was_told_since("G", "T", 0, 7) and offsets.was_told_since("H", "T", 0, 7)
    trio.run(offsets.remove_topic, "T")
    assert not offsets.was_told_since("H", "T", 0, 7)


@pytest.mark.parametrize("offset", ['{"0":"x"}', '{"0":%s}' % ("9" * 60), '{"\u00b2":1}', "[1]", "{0:1.5}", "7"])
def test_a_file_with_what_is_no_offset_ends_the_start_with_its_name(tmp_path: Path, offset: str) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(f'{{"offsetTable":{{"T@G":{offset}}}}}')
    with pytest.raises(ConfigError, match=r"consumerOffset\.json"):
        ConsumerOffsetManager(path).load()
