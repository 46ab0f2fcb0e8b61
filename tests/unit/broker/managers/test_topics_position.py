"""The position of the table of topics moves in a file of its own, as long as the table is saved."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.files import json_file
from rocketpy.broker.managers import topics_position
from rocketpy.broker.managers.topic_config import TopicConfigManager
from rocketpy.broker.managers.topics_position import SYNC_BYTES, SYNC_S, position_path, saved_position
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.copied_tables import at_once
from tests.support.slow_path import SlowPathRig


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio.to_thread.run_sync", at_once)


def loaded(root: Path) -> TopicConfigManager:
    topics = SlowPathRig(root).services.topics
    topics.load()
    return topics


def saved(topics: TopicConfigManager) -> int | None:
    return saved_position(topics.file.path)[1]


def test_it_moves_without_a_save_of_the_table(tmp_path: Path) -> None:
    """Fault: A slave saved its whole table of topics at each stop: 1.1 s for 100 000 topics."""
    topics = loaded(tmp_path)
    topics.position.know(100)
    trio.run(topics.position.keep)
    assert saved(topics) == 100 and not topics.file.path.exists(), "a broker that has saved no table yet"
    topics.update(TopicConfig(topic_name="T"))
    trio.run(topics.file.save)
    text = topics.file.path.read_bytes()
    assert list(json.loads(text).items())[-1] == ("phyOffset", 100) and saved(topics) == 100
    topics.position.know(250)
    trio.run(topics.position.keep)
    assert saved(topics) == 250 and topics.file.path.read_bytes() == text
    assert loaded(tmp_path).position.below == 250


def test_it_stands_while_the_table_has_changes_that_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = loaded(tmp_path)
    trio.run(topics.file.save)
    topics.position.log_end = lambda: 700
    topics.update(TopicConfig(topic_name="T"))
    with monkeypatch.context() as patch:
        patch.setattr(json_file, "save", no_space)
        trio.run(topics.file.save)
        trio.run(topics.position.keep)
    assert saved(topics) is None
    trio.run(lambda: topics.file.save(last=True))
    assert saved(topics) == 700, "with the table"
    topics.position.log_end = lambda: 800
    trio.run(topics.position.keep)
    assert saved(topics) == 800


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_table_of_another_content_has_its_own_position(tmp_path: Path) -> None:
    """One that was put back from a backup, its .bak, or one that a Java broker has written."""
    topics = loaded(tmp_path)
    path = topics.file.path
    for below, name in ((100, "A"), (200, "B")):
        topics.position.know(below)
        topics.update(TopicConfig(topic_name=name))
        trio.run(topics.file.save)
    topics.position.know(900)
    trio.run(topics.position.keep)
    assert saved(topics) == 900
    path.unlink()
    assert saved(topics) == 100 == loaded(tmp_path).position.below, "of the .bak"
    path.write_text('{"topicConfigTable":{}}')
    assert saved(topics) is None and loaded(tmp_path).position.below == -1


def test_a_position_that_was_lowered_is_saved_with_the_table(tmp_path: Path) -> None:
    """Else it would count again, if topics.position were removed."""
    topics = loaded(tmp_path)
    topics.position.know(500)
    topics.update(TopicConfig(topic_name="T"))
    trio.run(topics.file.save)
    table, _ = saved_position(topics.file.path)
    topics.position._slots.write(table, 300, sync=True)
    again = loaded(tmp_path)
    assert again.position.below == 300 and again.file.is_dirty
    trio.run(again.file.save)
    position_path(topics.file.path).unlink()
    assert saved(again) == 300


def test_it_is_synced_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics, synced = loaded(tmp_path), list[int]()
    monkeypatch.setattr(os, "fdatasync", synced.append)

    async def main() -> None:
        await trio.sleep(100)
        topics.position.know(1)
        await topics.position.keep()  # makes the file
        for below, seconds, count in (
            (2, 1, 0),
            (3, SYNC_S, 1),
            (4, 1, 1),
            (3 + SYNC_BYTES, 0, 2),
            (3 + SYNC_BYTES, 100, 2),  # it has not moved
        ):
            await trio.sleep(seconds)
            topics.position.know(below)
            await topics.position.keep()
            assert len(synced) == count, below
        await topics.position.keep(sync=True)
        assert len(synced) == 3, "after a deletion"
        topics.position.know(3 + 3 * SYNC_BYTES)
        await topics.position.keep(sync=False)
        assert len(synced) == 3, "at a stop"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_file_that_cannot_be_written_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics = loaded(tmp_path)
    topics.position.know(1)
    monkeypatch.setattr(topics.position._slots, "write", no_space_to_write)
    trio.run(topics.position.keep)
    trio.run(topics.position.keep)
    assert "topics.position: [Errno 28]" in caplog.text and len(caplog.records) == 1


def no_space_to_write(*_: object, sync: bool) -> None:
    no_space()


def test_the_position_at_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    assert topics_position.position_at_end(path) is None
    path.write_text('{"topicConfigTable":{},"phyOffset":12 }\n')
    assert topics_position.position_at_end(path) == 12
