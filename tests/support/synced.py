"""Which files and directories a piece of code brings to the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of all fsync calls from now on, in order; the calls are made."""
    synced: list[Path] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    return synced
