"""Consumer offsets: Java's file is read, written in the same form, and commits are unconditional."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketpy.broker.files import json_file
from rocketpy.broker.managers.consumer_offset import WAITED_MS, ConsumerOffsetManager
from rocketpy.broker.memory.journal import Journal, format_memory
from rocketpy.errors import ConfigError
from rocketpy.logs import LOG_INTERVAL_S
from rocketpy.remoting import fastjson

JAVA_FILE = '{\n\t"offsetTable":{\n\t\t"TopicTest@GroupA":{0:12,3:7\n\t\t},\n\t\t"TopicTest@GroupB":{1:9\n\t\t}\n\t}\n}'


def test_a_file_of_java_is_read_and_written_as_it_was_with_the_position_that_it_presumes(tmp_path: Path) -> None:
    """Holds: store, tables saved in config."""
    path = tmp_path / "consumerOffset.json"
    path.write_text(JAVA_FILE)
    offsets = ConsumerOffsetManager(path, log_end=lambda: 77)
    offsets.load()
    assert offsets.query_all("GroupA", "TopicTest") == {0: 12, 3: 7}
    offsets.file.changed()
    trio.run(offsets.file.save)
    assert path.read_text() == JAVA_FILE.removesuffix("\n}") + ',\n\t"phyOffset":77\n}'


def test_the_position_is_that_of_the_last_entry(tmp_path: Path) -> None:
    """Entries are looked up when they are written; the log goes on meanwhile."""
    end = 0

    async def main() -> None:
        nonlocal end
        offsets = ConsumerOffsetManager(tmp_path / "x", log_end=lambda: end)
        for number in range(2000):
            offsets.commit("G", f"T{number}", 0, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.file.save)
            for end in range(1, 4):
                await trio.lowlevel.checkpoint()
                offsets.commit("G", "T1999", 0, end)
        saved = fastjson.loads((tmp_path / "x").read_bytes())
        assert isinstance(saved, dict) and isinstance(saved["offsetTable"], dict)
        assert saved["offsetTable"]["T1999@G"]["0"] <= saved["phyOffset"] > 1

    trio.run(main)


def test_quoted_keys_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"T@G":{"0":5}},"dataVersion":{"counter":1}}')
    offsets = ConsumerOffsetManager(path)
    offsets.load()
    assert offsets.query("G", "T", 0) == 5


def test_commits_go_forward_and_back(tmp_path: Path) -> None:
    """Holds: client, queries and commits of offsets; trap, commits of any topic, queue and smaller offset."""
    offsets = ConsumerOffsetManager(tmp_path / "x")
    assert offsets.query("G", "T", 0) == -1
    assert offsets.commit("G", "T", 0, 10) == -1
    assert offsets.commit("G", "T", 0, 4) == 10
    assert offsets.query("G", "T", 0) == 4


def test_offsets_that_go_back_cannot_flood_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: Each commit below the last offset wrote a line, so one client could flood the log."""
    now_s = 100.0
    offsets = ConsumerOffsetManager(tmp_path / "x", now_s=lambda: now_s)
    for _ in range(50):
        offsets.commit("G", "T", 0, 5)
        offsets.commit("G", "T", 0, 4)
    now_s += LOG_INTERVAL_S
    for _ in range(2):
        offsets.commit("H", "T", 1, 9)
        offsets.commit("H", "T", 1, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "group G: the committed offset of topic T, queue 0, went back from 5 to 4",
        "group H: the committed offset of topic T, queue 1, went back from 9 to 2 "
        "(and 49 more since the last line about it)",
    ]


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
    assert set(offsets.topics_of("G")) == {"T", "%RETRY%G"}
    assert offsets.groups_of("T") == {"G", "H"}
    offsets.clone("G", "N", "T")
    offsets.commit("N", "T", 0, 9)
    assert offsets.query("G", "T", 0) == 1, "a clone is a copy"
    trio.run(offsets.remove_group, "G")
    assert set(offsets.topics_of("G")) == set() and offsets.query("H", "T", 1) == 3
    for group in ("H", "N"):
        trio.run(offsets.remove_group, group)
    assert fastjson.dumps(offsets.document()) == b'{"offsetTable":{}}'


def test_updates_are_remembered_until_their_group_goes(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(tmp_path / "x")
    assert not offsets.was_updated_since("G", "T", 0, 5)
    for group in ("G", "H"):
        offsets.commit(group, "T", 0, 10)
        offsets.note_update(group, "T", 0, 7)
        assert offsets.was_updated_since(group, "T", 0, 7) and not offsets.was_updated_since(group, "T", 0, 8)
        assert not offsets.was_updated_since(group, "T", 1, 7)
    trio.run(offsets.remove_group, "G")
    assert not offsets.was_updated_since("G", "T", 0, 7) and offsets.was_updated_since("H", "T", 0, 7)


@pytest.mark.parametrize("offset", ['{"0":"x"}', '{"0":%s}' % ("9" * 60), '{"\u00b2":1}', "[1]", "{0:1.5}", "7"])
def test_a_file_with_what_is_no_offset_ends_the_start_with_its_name(tmp_path: Path, offset: str) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(f'{{"offsetTable":{{"T@G":{offset}}}}}')
    with pytest.raises(ConfigError, match=r"consumerOffset\.json"):
        ConsumerOffsetManager(path).load()


class Lives:
    """An offset table of which the owner dies, again and again."""

    def __init__(self, path: Path) -> None:
        self.path, self.memory = path, memoryview(bytearray(1 << 16))
        format_memory(self.memory)
        self.table = self.die()

    def die(self, started_ms: int = -1) -> ConsumerOffsetManager:
        journal = Journal("offsets", self.memory, is_saved=True)
        self.table = ConsumerOffsetManager(self.path, journal, started_ms=started_ms)
        self.table.load()
        return self.table

    def state(self) -> dict[tuple[str, str], dict[int, int]]:
        pairs = [(group, topic) for group in "GHI" for topic in "TU"]
        return {pair: found for pair in pairs if (found := self.table.query_all(*pair))}


@pytest.mark.parametrize("seed", range(5))
def test_a_restarted_manager_finds_what_was_committed_cloned_and_removed(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    lives = Lives(tmp_path / "consumerOffset.json")
    is_full = [False]

    async def main() -> None:
        for step in range(300):
            group, topic = choose.choice("GHI"), choose.choice("TU")
            what = choose.random()
            if what < 0.7:
                lives.table.commit(group, topic, choose.randrange(4), choose.randrange(100))
            elif what < 0.75:
                lives.table.clone(group, choose.choice("GHI"), topic)
            elif what < 0.8:
                await lives.table.remove_group(group)
            elif what < 0.9:
                is_full[0] = choose.random() < 0.3
                await lives.table.file.save(last=True)
            else:
                before = lives.state()
                lives.die()
                assert lives.state() == before, f"seed {seed}, step {step}"

    save = json_file.save

    def failing(*args: Any) -> None:
        if is_full[0]:
            raise OSError(28, "No space left on device")
        save(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_file, "save", failing)
        trio.run(main)


def test_what_is_saved_does_not_stay_in_the_journal(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "consumerOffset.json")
    lives.table.commit("G", "T", 0, 5)
    trio.run(lives.table.file.save)
    assert lives.table._journal.live_bytes == 0
    assert lives.die().query("G", "T", 0) == 5


def test_more_changes_than_there_is_room_for_are_found_again_after_the_next_save(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "consumerOffset.json")
    for queue in range(2000):
        lives.table.commit("G", "T", queue, queue)
    lives.table.commit("G", "U", 0, 1)
    trio.run(lives.table.file.save)
    lives.table.commit("G", "U", 0, 2)
    assert lives.die().query("G", "U", 0) == 2
    assert lives.table.query("G", "T", 1999) == 1999


def test_an_offset_of_a_pull_that_arrived_before_the_restart_undoes_nothing(tmp_path: Path) -> None:
    """Fault: An offset that rode on a pull undid a later update by the same client."""
    lives = Lives(tmp_path / "consumerOffset.json")
    lives.table.commit("G", "T", 0, 50)
    lives.table.note_update("G", "T", 0, 1000)
    table = lives.die(started_ms=1200)
    assert table.was_updated_since("G", "T", 0, 999) and table.was_updated_since("G", "T", 1, 1200)
    assert not table.was_updated_since("G", "T", 0, 1201 + WAITED_MS)


def test_an_update_that_waited_for_a_new_manager_undoes_no_offset_of_a_later_pull(tmp_path: Path) -> None:
    """Fault: The committed offset of an orderly group went back by one after a kill of the manager."""
    lives = Lives(tmp_path / "consumerOffset.json")
    lives.table.commit("G", "T", 0, 724)
    table = lives.die(started_ms=1200)
    assert table.was_updated_since("G", "T", 0, 1210), "the offset 726 of a pull is dropped: the client repeats it"
    assert table.commit("G", "T", 0, 725) == 724, "which waited, and is older than that pull"
    table.note_update("G", "T", 0, 1220)
    assert not table.was_updated_since("G", "T", 0, 1221), "from now on times tell"


def test_a_manager_without_predecessor_takes_offsets_of_pulls_at_once(tmp_path: Path) -> None:
    table = ConsumerOffsetManager(tmp_path / "offsets", started_ms=1200)
    assert not table.was_updated_since("G", "T", 0, 1201)


def test_times_of_updates_are_kept_of_queues_with_an_offset_alone(tmp_path: Path) -> None:
    """Offsets are bounded by consumerOffsetsMax, and their times by them.
    Fault: Offsets committed for CID_RMQ_SYS_TRANS cost 300 bytes of the manager per new topic name."""
    offsets = ConsumerOffsetManager(tmp_path / "offsets")
    for number in range(100):
        offsets.note_update("CID_RMQ_SYS_TRANS", f"T{number}", 0, 5)
        offsets.commit("G", "T", number, 1)
        offsets.note_update("G", "T", number, 5)
    offsets.commit("Other", "T", 3, 1)
    offsets.clone("Other", "G", "T")
    assert offsets._updated_ms == {"G": {"T": {3: 5}}}
    assert offsets.was_updated_since("G", "T", 3, 5) and not offsets.was_updated_since("G", "T", 4, 5)
