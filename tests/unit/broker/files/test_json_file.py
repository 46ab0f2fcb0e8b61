"""A file of a table survives a crash at every step, and is written as the reference writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketpy.broker.files import json_file
from rocketpy.errors import ConfigError


def test_first_start_has_no_file(tmp_path: Path) -> None:
    assert json_file.load(tmp_path / "topics.json") is None


def test_a_save_is_read_back_and_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    json_file.save(path, [b'{"n":1}'])
    json_file.save(path, [b'{"n":2}'])
    assert json_file.load(path) == {"n": 2}
    assert (tmp_path / "config" / "topics.json.bak").read_text() == '{"n":1}'
    assert not (tmp_path / "config" / "topics.json.tmp").exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_inside_a_save_leaves_a_readable_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "x.json"
    json_file.save(path, [b'{"n":1}'])

    def crash(*args: object, **kwargs: object) -> None:
        raise OSError("power is gone")

    monkeypatch.setattr(os, step, crash)
    with pytest.raises(OSError, match="power is gone"):
        json_file.save(path, [b'{"n":2}'])
    monkeypatch.undo()
    assert json_file.load(path) == {"n": 1}


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe", b"\0" * 100])
def test_a_damaged_file_falls_back_to_its_bak(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(damage)
    (tmp_path / "x.json.bak").write_text('{"n":1}')
    assert json_file.load(path) == {"n": 1}


def test_only_the_bak_is_left_after_a_java_crash(tmp_path: Path) -> None:
    """Holds: trap, new, backup and damaged configuration files."""
    (tmp_path / "x.json.bak").write_text('{"n":1}')
    (tmp_path / "x.json.tmp").write_text('{"n":2}')
    assert json_file.load(tmp_path / "x.json") == {"n": 1}


@pytest.mark.parametrize("bak", [None, b"", b"{"])
def test_damage_without_a_usable_bak_refuses_to_start(tmp_path: Path, bak: bytes | None) -> None:
    """Holds: trap, new, backup and damaged configuration files."""
    path = tmp_path / "x.json"
    path.write_bytes(b'{"n":')
    if bak is not None:
        (tmp_path / "x.json.bak").write_bytes(bak)
    with pytest.raises(ConfigError) as caught:
        json_file.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_pretty_is_the_form_of_the_reference() -> None:
    document = {"offsetTable": {"TopicTest@GroupB": {1: 9}, "TopicTest@GroupA": {3: 7, 0: 12}}}
    assert json_file.pretty(document) == (
        '{\n\t"offsetTable":{\n\t\t"TopicTest@GroupA":{0:12,3:7\n\t\t},\n\t\t"TopicTest@GroupB":{1:9\n\t\t}\n\t}\n}'
    )
    assert json_file.pretty({"offsetTable": {}}) == '{\n\t"offsetTable":{}\n}'
