"""All access of Python to the store's files, and their names; the use of the disks.

Errors of the operating system become StoreError here, with path and reason in one line; a full disk becomes DiskFull.
The C loops create files in csrc/store/log/new_file.c. Both follow the same rule: a partial file never gets a name in a
directory that a Java broker loads.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import attrs

from rocketpy.atomic_file import make_directory, sync_directory
from rocketpy.errors import DiskFull, StoreError

FILE_NAME_DIGITS = 20
READ_STEP = 65_536  # bytes
KINDS = {"consumequeue": "ConsumeQueue", "consumequeue_ext": "ConsumeQueueExt"}  # by directory, as settings say it


@attrs.frozen
class StorePaths:
    """Paths of the store's files and directories."""

    root: Path
    commitlog: Path
    consumequeue: Path
    consumequeue_ext: Path
    index: Path
    checkpoint: Path
    abort: Path
    lock: Path
    control: Path
    timer: Path

    @classmethod
    def of(cls, root: str | Path, commitlog: str | Path = "") -> StorePaths:
        """`commitlog` may be outside of the root; by default it is below it."""
        root = Path(root)
        return cls(
            root=root,
            commitlog=Path(commitlog) if commitlog else root / "commitlog",
            consumequeue=root / "consumequeue",
            consumequeue_ext=root / "consumequeue_ext",
            index=root / "index",
            checkpoint=root / "checkpoint",
            abort=root / "abort",
            lock=root / "lock",
            control=root / "control",
            timer=root / "timer",
        )


@attrs.frozen
class FileInfo:
    name: str
    size: int
    mtime_ms: int
    is_directory: bool


@attrs.frozen
class DiskUsage:
    """Bytes of the file system that holds a path."""

    total: int
    free: int  # including blocks reserved for root
    usable: int


def file_name(start: int) -> str:
    """Name of the CommitLog or consume queue file that starts at byte `start`."""
    return f"{start:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Return True if the name has the form of `file_name`."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()


class Files(Protocol):
    """File operations that the store needs."""

    def entries(self, directory: Path) -> list[FileInfo]:
        """Return the entries of a directory, sorted by name; empty if there is no such directory."""

    def info(self, path: Path) -> FileInfo | None: ...

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""

    def write(self, path: Path, offset: int, data: bytes, *, sync: bool = False) -> None:
        """Write into a file, which is created if missing. `sync`: data and name are on the disk at return."""

    def is_zero(self, path: Path, offset: int) -> bool:
        """Return True if all bytes from `offset` on are zero."""

    def wipe(self, path: Path, offset: int) -> None:
        """Write zeros from `offset` to the end, and sync. The size never changes meanwhile."""

    def remove(self, path: Path) -> None:
        """Remove a file or an empty directory; a missing one is no error."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, and sync them."""

    def sync_directory(self, path: Path) -> None:
        """Sync a directory: added and removed names are on the disk at return."""

    def usage(self, path: Path) -> DiskUsage | None:
        """Usage of the file system of `path`; None if the path is missing."""


@contextlib.contextmanager
def translated(path: Path, doing: str) -> Iterator[None]:
    """Translate errors of the operating system to StoreError."""
    try:
        yield
    except OSError as exc:
        raise store_error(exc, path, doing) from exc


def store_error(exc: OSError, path: Path, doing: str) -> StoreError:
    kind = DiskFull if exc.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
    remedy = _owner_remedy(path) if exc.errno == errno.EACCES else ""
    return kind(f"cannot {doing} {path}: {exc.strerror or exc}{remedy}")


def _owner_remedy(path: Path) -> str:
    """Return the end of a sentence: the file or directory that this user may not use, and its owner."""
    place = next(found for found in (path, *path.absolute().parents) if os.path.exists(found))
    user, owner = os.geteuid(), os.stat(place).st_uid
    return f": user {user} may not use {place} of user {owner}; chown {user} {place} (of a container: the volume)"


def data_spans(descriptor: int, offset: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the allocated parts from `offset` on."""
    while True:
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return
            raise
        offset = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, offset


def _info(name: str, status: os.stat_result) -> FileInfo:
    return FileInfo(name, status.st_size, status.st_mtime_ns // 1_000_000, (status.st_mode & 0o170000) == 0o040000)


class DiskFiles:
    """The real disk."""

    def entries(self, directory: Path) -> list[FileInfo]:
        with translated(directory, "list"):
            try:
                found = os.scandir(directory)
            except FileNotFoundError:
                return []
            infos = []
            with found:
                for entry in found:
                    try:
                        infos.append(_info(entry.name, entry.stat()))
                    except FileNotFoundError:  # removed meanwhile, or a dangling link, which counts as an entry
                        if entry.is_symlink():
                            infos.append(_info(entry.name, entry.stat(follow_symlinks=False)))
            return sorted(infos, key=lambda info: info.name)

    def info(self, path: Path) -> FileInfo | None:
        with translated(path, "look at"):
            try:
                return _info(path.name, os.stat(path))
            except FileNotFoundError:
                return None

    def read(self, path: Path, offset: int, size: int) -> bytes:
        with translated(path, "read"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # reading ahead would fill memory with holes
                return os.pread(descriptor, size, offset)
            finally:
                os.close(descriptor)

    def write(self, path: Path, offset: int, data: bytes, *, sync: bool = False) -> None:
        with translated(path, "write"):
            is_new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, data[written:], offset + written)
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if sync and is_new:
                sync_directory(path.parent)

    def is_zero(self, path: Path, offset: int) -> bool:
        with translated(path, "read"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # All of them before the first read: the kernel reads ahead into a hole, which makes data of it.
                for start, end in list(data_spans(descriptor, offset)):
                    for at in range(start, end, READ_STEP):
                        data = os.pread(descriptor, min(READ_STEP, end - at), at)
                        if data.count(0) < len(data):
                            return False
                return True
            finally:
                os.close(descriptor)

    def wipe(self, path: Path, offset: int) -> None:
        with translated(path, "wipe"):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                # Not by ftruncate, twice: a death between the two leaves a file of a size that no store takes.
                for start, end in list(data_spans(descriptor, offset)):
                    for at in range(start, end, READ_STEP):
                        os.pwrite(descriptor, bytes(min(READ_STEP, end - at)), at)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, path: Path) -> None:
        with translated(path, "remove"), contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()

    def make_directory(self, path: Path) -> None:
        with translated(path, "make"):
            make_directory(path)

    def sync_directory(self, path: Path) -> None:
        with translated(path, "sync"):
            sync_directory(path)

    def usage(self, path: Path) -> DiskUsage | None:
        with translated(path, "look at"):
            try:
                status = os.statvfs(path)
            except FileNotFoundError:
                return None
        size = status.f_frsize
        return DiskUsage(status.f_blocks * size, status.f_bfree * size, status.f_bavail * size)


def numbered_files(files: Files, directory: Path, size: int) -> list[int]:
    """Starts of the files of a CommitLog or queue directory, ascending; every one of them must be of `size` bytes.

    A last file of 0 bytes is removed: a Java broker that is killed while it makes a file leaves one, and does not start
    with it.

    Raises:
        StoreError: an unexpected entry. A Java broker would refuse the directory, too; to ignore the entry might lose
        messages.
    """
    starts = []
    entries = files.entries(directory)
    last = max((info.name for info in entries), default="")
    for info in entries:
        path = directory / info.name
        if info.name == last and info.size == 0 and info.name.isdecimal() and not info.is_directory:
            files.remove(path)
            files.sync_directory(directory)
            continue
        if info.is_directory:
            raise StoreError(f"{path} is a directory; move it elsewhere: only files of {size} bytes belong there")
        if info.size != size:
            kind = KINDS.get(directory.parent.parent.name, "CommitLog")
            raise StoreError(
                f"{path} has {info.size} bytes, {size} are configured: mappedFileSize{kind} must be that with "
                "which the store was created; move files that do not belong to the store elsewhere"
            )
        if not (info.name.isdecimal() and info.name.isascii()):
            raise StoreError(
                f"{path} is not named by a number; move it elsewhere: only files of the store belong there"
            )
        starts.append(int(info.name))
    return sorted(starts)


def disk_ratio(files: Files, path: Path) -> float:
    """Used share of the file system of `path`, in whole percent rounded up: 0.00 to 1.00; -1 if the path is missing.

    Source: RocketMQ 4.9 `CleanCommitLogService`, which counts it so.
    """
    usage = files.usage(path)
    if usage is None:
        return -1.0
    used = usage.total - usage.free
    return math.ceil(100 * used / (used + usage.usable)) / 100 if used + usage.usable else -1.0
