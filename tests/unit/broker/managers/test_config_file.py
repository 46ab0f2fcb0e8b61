"""Saving a table: once for many changes, never forgotten by a failing disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker import persist
from rocketpy.broker.managers.config_file import ConfigFile


def test_waiters_share_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves: list[str] = []
    monkeypatch.setattr(persist, "save", lambda path, text: saves.append(text))
    values: list[int] = []
    file = ConfigFile(tmp_path / "x.json", lambda: str(len(values)))

    async def change() -> None:
        values.append(1)
        file.changed()
        await file.save()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(change)

    trio.run(main)
    assert saves[-1] == "50" and len(saves) <= 3


def test_a_failing_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    file = ConfigFile(path, lambda: "{}")
    file.changed()

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(persist, "save", full)
    trio.run(file.save)
    assert file.is_dirty
    monkeypatch.undo()
    trio.run(file.save)
    assert path.read_text() == "{}" and not file.is_dirty


def test_nothing_changed_nothing_written(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json", lambda: "{}")
    trio.run(file.save)
    assert not (tmp_path / "x.json").exists()
