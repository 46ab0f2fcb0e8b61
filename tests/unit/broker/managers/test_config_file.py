"""Saving a table: once for many changes, never forgotten by a failing disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rocketpy.broker.files import json_file
from rocketpy.broker.managers import config_file
from rocketpy.broker.managers.config_file import ConfigFile, with_unknown_fields
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig
from rocketpy.remoting.json_writer import compact_pieces


def full(path: Path, pieces: Sequence[bytes]) -> None:
    raise OSError(28, "No space left on device")


def test_waiters_share_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves: list[bytes] = []
    monkeypatch.setattr(json_file, "save", lambda path, pieces: saves.append(b"".join(pieces)))
    values: list[int] = []
    file = ConfigFile(tmp_path / "x.json", lambda: [str(len(values))])

    async def change() -> None:
        values.append(1)
        file.changed()
        await file.save()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(change)

    trio.run(main)
    assert saves[-1] == b"50" and len(saves) <= 3


def test_a_save_without_changes_takes_no_turn_of_the_loop(tmp_path: Path) -> None:
    """Fault: Each heartbeat took the locks of two unchanged files, which was half of its cost."""
    file = ConfigFile(tmp_path / "x.json", lambda: ["{}"])

    async def main() -> None:
        file.changed()
        with trio.testing.assert_checkpoints():
            await file.save()
        with trio.testing.assert_no_checkpoints():
            await file.save()

    trio.run(main)


def test_a_failing_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    file = ConfigFile(path, lambda: ["{}"])
    file.changed()

    monkeypatch.setattr(json_file, "save", full)

    async def main() -> None:
        await file.save()
        assert file.is_dirty
        monkeypatch.undo()
        await trio.sleep(config_file.RETRY_FIRST_S)
        await file.save()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert path.read_text() == "{}" and not file.is_dirty


def test_a_disk_that_keeps_failing_is_not_encoded_for_at_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A disk that refused saves had the whole table encoded again at every heartbeat."""
    encodings: list[float] = []

    def pieces() -> list[str]:
        encodings.append(trio.current_time())
        return ["{}"]

    file = ConfigFile(tmp_path / "x.json", pieces)
    monkeypatch.setattr(json_file, "save", full)

    async def main() -> None:
        for _ in range(300):  # five minutes of a heartbeat each second
            file.changed()
            await file.save()
            await trio.sleep(1)
        assert len(encodings) < 15
        monkeypatch.undo()
        await file.save(last=True)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert not file.is_dirty, "the last save of a run is tried whatever happened before"


def test_a_change_during_a_save_is_in_the_next_one(tmp_path: Path) -> None:
    table = {"a": 1, "b": 1}
    completed: list[int] = []

    def pieces() -> Iterator[str]:
        for key in list(table):
            yield f"{key}={table[key]};"

    file = ConfigFile(tmp_path / "x.json", pieces)
    file.on_saved = completed.append

    async def change() -> None:
        table["a"] = 2  # after its entry has been encoded
        file.changed()
        await file.save()

    async def main() -> None:
        file.changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.save)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(change)

    trio.run(main)
    assert (tmp_path / "x.json").read_text() == "a=2;b=1;" and not file.is_dirty
    assert completed == [1, 2], "the number of the last change before each completed save began"


def test_nothing_changed_nothing_written(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json", lambda: ["{}"])
    trio.run(file.save)
    assert not (tmp_path / "x.json").exists()


def test_unknown_fields_stay_and_the_version_is_that_of_the_copy() -> None:
    table = {name: TopicConfig(topic_name=name) for name in ("A", "B")}
    document = with_unknown_fields("topics", DataVersion(counter=3), dict(table), {"B": {"attributes": {}}})
    table["C"] = TopicConfig(topic_name="C")
    read = json.loads("".join(compact_pieces(document)))
    assert read["dataVersion"]["counter"] == 3 and list(read["topics"]) == ["A", "B"]
    assert "attributes" not in read["topics"]["A"] and read["topics"]["B"]["attributes"] == {}
    assert read["topics"]["B"]["topicName"] == "B"
