"""A directory of a streaming job is that of one query."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import ConfigError, StoreError
from rocketpy.spark.jobs.target import check_same, claimed
from tests.support.synced import record_syncs


def test_settings_are_written_and_compared(tmp_path: Path) -> None:
    target = tmp_path / "new" / "target"
    check_same(target, "job.json", {"a": 1})
    check_same(target, "job.json", {"a": 1})
    with pytest.raises(ConfigError, match=r'was made with {"a": 1}: name another target'):
        check_same(target, "job.json", {"a": 2})


def test_settings_are_on_the_disk_before_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power failure could leave a checkpoint whose settings are lost: no run would go on with it.
    Fault: A power failure could leave a streaming job's checkpoint without its settings."""
    synced = record_syncs(monkeypatch)
    check_same(tmp_path / "new" / "target", "job.json", {"a": 1})
    file, *directories = sorted(synced, key=lambda path: -len(path.parts))
    assert file.parent == tmp_path / "new" / "target" and "job.json" in file.name
    assert set(directories) == {tmp_path, tmp_path / "new", tmp_path / "new" / "target"}


def test_settings_that_were_cut_short(tmp_path: Path) -> None:
    """Before the first micro-batch they are written again; behind it nobody knows what the state is of."""
    (tmp_path / "job.json").touch()
    check_same(tmp_path, "job.json", {"a": 1})
    (tmp_path / "job.json").write_text("")
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ConfigError, match="settings that are lost"):
        check_same(tmp_path, "job.json", {"a": 1})


def test_two_runs_do_not_use_one_target(tmp_path: Path) -> None:
    """They would do the same micro-batch, and take away each other's files.
    Fault: Two runs of `dedup` or `windows` on one target removed each other's files."""
    target, busy = tmp_path / "t", "another run is using this target"
    with (
        claimed(target, "job.json", {"a": 1}),
        pytest.raises(StoreError, match=busy),
        claimed(target, "job.json", {"a": 1}),
    ):
        pass
    with claimed(target, "job.json", {"a": 1}):
        pass


def test_a_target_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        check_same(tmp_path / "file" / "target", "job.json", {})
    with pytest.raises(StoreError, match="cannot write"), claimed(tmp_path / "file" / "target", "job.json", {}):
        pass
