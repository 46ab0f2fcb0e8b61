"""Copies the log up to one position.

A full file of the log never changes again. So the copy of it is used again: of an interrupted run as it is, of an
earlier copy by a link. Beginning and end are compared: the store may have been replaced. If the check of the copy
finds damage in such a file, it is copied after all. The file that the log ends in is copied each time.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import attrs

from rocketpy.atomic_file import sync_directory
from rocketpy.errors import StoreError

from ..files import translated
from ..inspection.findings import ProgressListener
from ..inspection.reader import StoreReader
from ..inspection.state_files import read_state
from .copying import copy_file, sync_file

COMPARED = 65_536  # bytes at each end of a file: records name their offset, time and host
PARTIAL = ".partial"  # of a log file that is not full, or whose copy was interrupted


@attrs.frozen
class LogEnd:
    """The end of a log at one moment. A broker that is not rocketpy, or is stopped, does not tell it exactly."""

    copied: int  # the copy ends here
    full: int  # files that end here or before are full


@attrs.define
class LogCopy:
    """The copy of a log into `target`. An earlier copy of it, `before`, has full files below `before_end`."""

    reader: StoreReader
    target: Path
    before: Path | None
    before_end: int | None
    listener: ProgressListener
    end: LogEnd = attrs.field(init=False, default=LogEnd(0, 0))
    _linked: set[str] = attrs.field(init=False, factory=set)
    _done: int = attrs.field(init=False, default=0)
    _used_again: dict[str, int] = attrs.field(init=False, factory=dict)  # sizes of full files that were not read

    @property
    def linked_bytes(self) -> int:
        """Bytes of the files that are shared with the earlier copy."""
        return sum(self._used_again[name] for name in self._linked)

    def run(self) -> None:
        """Copy everything that the log has now.

        Before a broker deletes a file, it stores the pending timers of it again, at the end of the log. So if a file is
        gone before its turn, the copy goes on to the new end.

        Raises: StoreError.
        """
        while True:
            end = find_end(self.reader)
            sizes = {info.name: info.size for info in self.reader.log_files() if int(info.name) < end.copied}
            self.listener.begin("log", sum(min(size, end.copied - int(name)) for name, size in sizes.items()), "bytes")
            self._done, self.end = 0, end
            names = list(sizes)
            taken = [self._take(name, sizes[name], end) for name in names]
            self._drop_all_but(names)
            if all(taken):
                return

    def _take(self, name: str, size: int, end: LogEnd) -> bool:
        """Copy or link one file; False if it has gone."""
        source, target = self.reader.paths.commitlog / name, self.target / name
        used = min(size, end.copied - int(name))
        is_full = int(name) + size <= end.full
        if is_full and (_is_same(source, target, size) or self._link(source, target, size)):
            self._read(size)
            self._used_again[name] = size
            return True
        partial = target.with_name(target.name + PARTIAL)
        try:
            copy_file(source, partial, used, self._read, whole_size=size)
        except FileNotFoundError:
            return False
        sync_file(partial)
        if is_full:
            with translated(target, "name"):
                os.replace(partial, target)
        return True

    def _link(self, source: Path, target: Path, size: int) -> bool:
        if self.before is None or int(source.name) + size > (self.before_end or 0):
            return False
        if not _is_same(source, self.before / source.name, size):
            return False
        try:
            os.link(self.before / source.name, target)
        except OSError:  # a file system without links
            return False
        self._linked.add(source.name)
        return True

    def _read(self, count: int) -> None:
        self._done += count
        self.listener.reached(self._done)

    def _drop_all_but(self, names: list[str]) -> None:
        """Remove copies of files that have expired, and of those before a file that has gone: the log has no gap."""
        kept = set(_without_gap([name for name in names if self._path_of(name).exists()], names))
        for path in self.target.iterdir():
            if path.name.removesuffix(PARTIAL) not in kept:
                path.unlink()

    def _path_of(self, name: str) -> Path:
        full = self.target / name
        return full if full.exists() else self.target / (name + PARTIAL)

    def copy_again(self, damaged: Collection[str] | None = None) -> list[str]:
        """Copy those damaged files from the store that were used again and differ from it; return their names.

        Args:
            damaged: None: any may be.
        Raises: StoreError.
        """
        copied = []
        for name in sorted(self._used_again.keys() if damaged is None else self._used_again.keys() & set(damaged)):
            source, target = self.reader.paths.commitlog / name, self.target / name
            partial = target.with_name(name + PARTIAL)
            with translated(target, "replace"):
                try:
                    if _is_equal(source, target):
                        continue
                    copy_file(source, partial, self._used_again[name], lambda _: None)
                except FileNotFoundError:  # it has expired
                    continue
                sync_file(partial)
                os.replace(partial, target)
                sync_directory(self.target)
            self._linked.discard(name)
            copied.append(name)
        return copied

    def finish(self) -> None:
        """Give the last file its name. Afterwards the copy is not continued. Raises: StoreError."""
        for path in self.target.glob("*" + PARTIAL):
            with translated(path, "rename"):
                os.replace(path, path.with_suffix(""))


def drop_after(directory: Path, full_end: int | None) -> None:
    """Remove the last log file of an interrupted copy, which has its name, if that copy came as far as its check."""
    for path in directory.iterdir() if full_end is not None else ():
        if path.name.isdecimal() and int(path.name) + path.stat().st_size > (full_end or 0):
            path.unlink()


def find_end(reader: StoreReader) -> LogEnd:
    """Return the end of the log: exact if a rocketpy broker writes it, or the end of the last file that has records."""
    control = read_state(reader.files, reader.paths).live_control
    if control is not None:
        return LogEnd(control.published_phy_offset, control.published_phy_offset)
    used = [info for info in reader.log_files() if any(reader.files.read(reader.paths.commitlog / info.name, 0, 4))]
    if not used:
        return LogEnd(0, 0)
    return LogEnd(int(used[-1].name) + used[-1].size, int(used[-1].name))


def _without_gap(copied: list[str], names: list[str]) -> Iterator[str]:
    """Yield names from the end of `names` backwards, up to the first that is not copied."""
    for name in reversed(names):
        if name not in copied:
            return
        yield name


def _is_equal(source: Path, copy: Path) -> bool:
    """Return True if each byte of the copy can be read, and is that of its source. Raises: FileNotFoundError."""
    try:
        return filecmp.cmp(source, copy, shallow=False)
    except FileNotFoundError:
        raise
    except OSError:
        return False


def _is_same(source: Path, copy: Path, size: int) -> bool:
    """Return True if `copy` has the size, the beginning and the end of `source`."""
    try:
        with source.open("rb") as one, copy.open("rb") as other:
            if os.fstat(other.fileno()).st_size != size:
                return False
            return all(
                os.pread(one.fileno(), COMPARED, at) == os.pread(other.fileno(), COMPARED, at)
                for at in (0, max(0, size - COMPARED))
            )
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise StoreError(f"cannot compare {source} with {copy}: {exc.strerror}") from exc
