"""Copies files that a broker may be writing, without their holes: store files get their size before they fill."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketpy.atomic_file import sync_directory
from rocketpy.errors import StoreError

from ..files import data_spans, translated

STEP = 1 << 20  # bytes in memory
NEW = ".new."  # in names of files that the broker has not finished to create


def copy_file(source: Path, target: Path, size: int, done: Callable[[int], object], *, whole_size: int = -1) -> None:
    """Copy the first `size` bytes, mode and times of a file (the age of a log file decides when it expires).

    Args:
        done: told the bytes that were read.
        whole_size: size of the copy, which ends with a hole if that is more.
    Raises:
        FileNotFoundError: there is no `source` (any more). StoreError: it cannot be read or written.
    """
    with source.open("rb", buffering=0) as reading, translated(target, "write"), target.open("wb", buffering=0) as file:
        for at, data in _pieces(reading.fileno(), source, size):
            file.seek(at)
            if data.count(0) != len(data):
                file.write(data)
            done(len(data))
        file.truncate(max(size, whole_size))
        status = os.fstat(reading.fileno())
        os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _pieces(descriptor: int, source: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield (place, bytes) of what the first `size` bytes hold."""
    with translated(source, "read"):
        for start, end in data_spans(descriptor, 0):
            for at in range(start, min(end, size), STEP):
                yield at, os.pread(descriptor, min(STEP, end - at, size - at), at)
            if end >= size:
                return


def copy_tree(
    source: Path,
    target: Path,
    done: Callable[[int], object],
    *,
    leave_out: frozenset[Path] = frozenset(),
    used: Callable[[Path, int], int] = lambda path, size: size,
) -> None:
    """Copy the files below a directory, without files that vanish meanwhile.

    Args:
        leave_out: files and directories below `source`.
        used: the bytes of a file, of this size, that are copied; the rest of the copy is a hole.
    Raises:
        StoreError: there is a link, or as copy_file.
    """
    for path in _files(source, leave_out):
        copied = target / path.relative_to(source)
        with translated(copied.parent, "create"):
            copied.parent.mkdir(parents=True, exist_ok=True)
        try:
            size = path.stat().st_size
            copy_file(path, copied, used(path, size), done, whole_size=size)
        except FileNotFoundError:
            copied.unlink(missing_ok=True)


def _files(directory: Path, leave_out: frozenset[Path]) -> Iterator[Path]:
    with translated(directory, "list"):
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
    for entry in entries:
        if Path(entry.path) in leave_out or NEW in entry.name:
            continue
        if entry.is_symlink():
            raise StoreError(f"{entry.path} is a link, which a copy cannot have: mount (mount --bind) its target there")
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), leave_out)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def sync_tree(directory: Path) -> None:
    """Bring all files and names below a directory to the disk. Raises: StoreError."""
    for parent, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(parent, name))
        with translated(Path(parent), "sync"):
            sync_directory(Path(parent))


def sync_file(path: Path) -> None:
    """Bring a file to the disk; its pages leave the memory, which the broker needs. Raises: StoreError."""
    with translated(path, "sync"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
