"""Rebuilds of a store, and the files that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketpy.config import MessageStoreConfig
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.rebuilding.rebuild import Rebuilt, rebuild, store_config


def run(root: Path, target: Path, config: MessageStoreConfig | None = None, **given: Any) -> Rebuilt:
    reader = StoreReader(root)
    return rebuild(reader, target, store_config(reader, config), map, **given)


def files_of(root: Path) -> dict[str, bytes]:
    """Consume queues by path, and index files by number: their names are times of creation."""
    queues = {str(path.relative_to(root)): path.read_bytes() for path in root.glob("consumequeue/*/*/*")}
    indexes = sorted((root / "index").iterdir()) if (root / "index").exists() else []
    return queues | {f"index {number}": path.read_bytes() for number, path in enumerate(indexes)}
