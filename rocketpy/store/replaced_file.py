"""Files that get their name when they are complete, so that no reader and no restart ever sees half of one.

    write <directory>/.<name>.<random>.unfinished   ->   (sync)   ->   rename to <name>   ->   (sync the directory)

The random part lets two processes, also of two machines, write the same file: a task of Spark may run twice. The later
one stays. kill -9 leaves an unfinished file behind; its leading dot hides it from Spark.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from rocketpy.atomic_file import sync_directory

from .files import translated


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Write a file that takes the place of `path` at the end of the block. Nothing is synced.

    Raises:
        StoreError: it cannot be written. DiskFull: there is no room. What was at `path` is still there.
    """
    with _named_when_complete(path, os.replace) as file:
        yield file


@contextlib.contextmanager
def durably_replaced(path: Path) -> Iterator[BinaryIO]:
    """As `replaced`; after the block, the file and its name are on the disk.

    Raises:
        StoreError: as `replaced`.
    """
    with _synced(path, os.replace) as file:
        yield file


@contextlib.contextmanager
def durably_created(path: Path) -> Iterator[BinaryIO]:
    """As `durably_replaced`, for a file that must not be there yet.

    Raises:
        StoreError: it cannot be written, or is there.
    """
    with _synced(path, _link) as file:
        yield file


def _link(unnamed: Path, path: Path) -> None:
    os.link(unnamed, path)  # fails if it is there, in one step
    unnamed.unlink()


@contextlib.contextmanager
def _synced(path: Path, give_name: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
    with _named_when_complete(path, give_name) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    with translated(path.parent, "sync"):
        sync_directory(path.parent)


@contextlib.contextmanager
def _named_when_complete(path: Path, give_name: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
    unnamed = path.with_name(f".{path.name}.{uuid4().hex}.unfinished")
    with translated(path, "write"):
        try:
            with unnamed.open("wb") as file:
                yield file
            give_name(unnamed, path)
        except BaseException:
            unnamed.unlink(missing_ok=True)
            raise
