"""The file `checkpoint`: store times (ms) up to which log, consume queues and index are certainly on the disk.

Java's recovery after an unclean stop starts from it. One page; bytes after the three times belong to later versions and
are kept.

Short: one file format, as docs/understand/file-formats.md describes it.
"""

from __future__ import annotations

import struct
from pathlib import Path

import attrs

from ..files import Files

CHECKPOINT_SIZE = 4096
TIMES = struct.Struct(">qqq")  # log, consume queues, index


@attrs.frozen
class StoreCheckpoint:
    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0


def read_checkpoint(files: Files, path: Path) -> StoreCheckpoint:
    """All zero if there is none."""
    if files.info(path) is None:
        return StoreCheckpoint()
    data = files.read(path, 0, TIMES.size)
    return StoreCheckpoint(*TIMES.unpack(data)) if len(data) == TIMES.size else StoreCheckpoint()


def write_checkpoint(files: Files, path: Path, checkpoint: StoreCheckpoint) -> None:
    """In place: 24 bytes of one sector are written whole or not at all."""
    times = TIMES.pack(
        checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms, checkpoint.index_msg_timestamp_ms
    )
    info = files.info(path)
    if info is None or info.size < CHECKPOINT_SIZE:
        files.write(path, 0, times + bytes(CHECKPOINT_SIZE - TIMES.size), sync=True)
    else:
        files.write(path, 0, times, sync=True)
