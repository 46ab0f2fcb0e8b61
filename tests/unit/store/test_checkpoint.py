"""checkpoint: golden bytes, and bytes of later versions kept."""

from __future__ import annotations

from pathlib import Path

from rocketpy.store.files import DiskFiles
from rocketpy.store.formats.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint

FILES = DiskFiles()


def test_checkpoint_bytes(tmp_path: Path) -> None:
    """Holds: store, checkpoint of the last flushes."""
    path = tmp_path / "checkpoint"
    assert read_checkpoint(FILES, path) == StoreCheckpoint()
    checkpoint = StoreCheckpoint(1_700_000_000_123, 1_700_000_000_120, 1_699_999_000_000)
    write_checkpoint(FILES, path, checkpoint)
    assert path.read_bytes()[:24].hex() == "0000018bcfe5687b0000018bcfe568780000018bcfd625c0"
    assert path.stat().st_size == 4096 and read_checkpoint(FILES, path) == checkpoint


def test_checkpoint_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(24) + b"x" * 16 + bytes(4056))
    write_checkpoint(FILES, path, StoreCheckpoint(1, 2, 3))
    assert path.read_bytes()[24:40] == b"x" * 16 and path.stat().st_size == 4096
