"""A disk that keeps what was synced and any part of the rest.

The real directory `root` is the page cache: every process sees it, and it survives all of them. Beside it stands what
the disk is bound to hold: of each file the content at its last sync and whatever the kernel may have written back since
(`write_back`), of each directory the names at its last sync. Files are known by inode, so that a name which was given
to a new file may still lead to the old one.

After a power failure every sector of 512 bytes is one of those contents or what the page cache held, and every name
that was added or removed since its directory's sync may be there or not, with what lies below it.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs

SECTOR = 512
PAGE = 4096
VERSIONS_MAX = 4
FULL_SIZE_FROM_THE_START = ("commitlog", "consumequeue", "consumequeue_ext", "index")  # named only then
CONTROL = "control"
LOCK = "lock"
BOOT_ID = slice(24, 40)  # in the control block
NOTHING = bytes(PAGE)


@attrs.frozen
class Content:
    """Of a file: the pages that are not hole, and how long it is."""

    size: int
    pages: dict[int, bytes]


@attrs.frozen
class Entry:
    inode: int
    is_directory: bool
    path: str


def read_content(descriptor: int) -> Content:
    size = os.fstat(descriptor).st_size
    pages: dict[int, bytes] = {}
    if size <= 16 * PAGE:
        data = os.pread(descriptor, size, 0)
        return Content(size, {at: data[at : at + PAGE] for at in range(0, size, PAGE)})
    end = 0
    while True:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:
            return Content(size, pages)
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        data = os.pread(descriptor, end - start, start)
        pages.update({start + at: data[at : at + PAGE] for at in range(0, len(data), PAGE)})


def content_of(path: str) -> Content:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_content(descriptor)
    finally:
        os.close(descriptor)


def write_content(path: str, content: Content) -> int:
    """Returns the inode of the new file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.ftruncate(descriptor, content.size)
        for at, page in content.pages.items():
            os.pwrite(descriptor, page, at)
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def list_directory(path: str) -> dict[str, Entry]:
    with os.scandir(path) as found:
        entries = sorted(found, key=lambda entry: entry.name)
        return {entry.name: Entry(entry.inode(), entry.is_dir(), entry.path) for entry in entries}


class SimulatedDisk:
    """See the module. What lies in `root` at first is on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[int, dict[str, Entry]] = {}  # by inode of the directory
        self._versions: dict[int, list[Content]] = {}  # by inode; the first is that of the last sync
        self._mtimes: dict[int, int] = {}
        self.sync_all()

    # --- what the programs do ---

    def sync_descriptor(self, descriptor: int) -> None:
        """fsync or fdatasync."""
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = list_directory(os.readlink(f"/proc/self/fd/{descriptor}"))
        else:
            self._versions[status.st_ino] = [content_of(f"/proc/self/fd/{descriptor}")]  # it may be open for writing
            self._mtimes[status.st_ino] = status.st_mtime_ns

    def sync_all(self) -> None:
        self._names[os.stat(self.root).st_ino] = list_directory(str(self.root))
        for entry in self._walk(str(self.root)):
            if entry.is_directory:
                self._names[entry.inode] = list_directory(entry.path)
            else:
                self._versions[entry.inode] = [content_of(entry.path)]
                self._mtimes[entry.inode] = os.stat(entry.path).st_mtime_ns

    def forget(self, name: str) -> None:
        """A file of the root is as it is now, there or not, since long ago."""
        names = self._names[os.stat(self.root).st_ino]
        entry = list_directory(str(self.root)).get(name)
        names.pop(name, None)
        if entry is not None:
            names[name] = entry
            self._versions[entry.inode] = [content_of(entry.path)]
            self._mtimes[entry.inode] = os.stat(entry.path).st_mtime_ns

    def write_back(self, rng: random.Random) -> None:
        """The kernel writes some file to the disk, unasked; its sectors may stay as they are now."""
        files = [entry for entry in self._walk(str(self.root)) if not entry.is_directory]
        if not files:
            return
        entry = rng.choice(files)
        versions = self._versions.setdefault(entry.inode, [self._first_content(entry)])
        if len(versions) == VERSIONS_MAX:
            del versions[rng.randrange(VERSIONS_MAX)]
        versions.append(content_of(entry.path))

    def _walk(self, directory: str) -> Iterator[Entry]:
        for entry in list_directory(directory).values():
            yield entry
            if entry.is_directory:
                yield from self._walk(entry.path)

    def _first_content(self, entry: Entry) -> Content:
        """What a file that was never synced holds: nothing, and its size if it had that before its name."""
        part = Path(entry.path).relative_to(self.root).parts[0]
        return Content(os.stat(entry.path).st_size if part in FULL_SIZE_FROM_THE_START else 0, {})

    # --- what may come of it ---

    def survive(self, target: Path) -> SimulatedDisk:
        """All processes die: the page cache stays as it is, and the disk behind it."""
        target.mkdir()
        inodes = {os.stat(self.root).st_ino: os.stat(target).st_ino}
        self._copy(str(self.root), str(target), inodes)
        copy = SimulatedDisk.__new__(SimulatedDisk)
        copy.root = target
        copy._names = {
            inodes.get(inode, -inode): {
                name: attrs.evolve(entry, inode=inodes.get(entry.inode, -entry.inode)) for name, entry in names.items()
            }
            for inode, names in self._names.items()
        }
        copy._versions = {inodes.get(inode, -inode): list(versions) for inode, versions in self._versions.items()}
        copy._mtimes = {inodes.get(inode, -inode): mtime for inode, mtime in self._mtimes.items()}
        return copy

    def _copy(self, source: str, target: str, inodes: dict[int, int]) -> None:
        for name, entry in list_directory(source).items():
            path = f"{target}/{name}"
            if entry.is_directory:
                os.mkdir(path)
                inodes[entry.inode] = os.stat(path).st_ino
                self._copy(entry.path, path, inodes)
            else:
                inodes[entry.inode] = write_content(path, content_of(entry.path))
                if name == LOCK:
                    mtime_ns = os.stat(entry.path).st_mtime_ns
                    os.utime(path, ns=(mtime_ns, mtime_ns))

    def lose_power(self, target: Path, rng: random.Random) -> SimulatedDisk:
        """The machine goes down; what comes up is put into `target`."""
        target.mkdir()
        Loss(self, rng).build(os.stat(self.root).st_ino, str(self.root), str(target))
        control = target / CONTROL
        if control.exists() and control.stat().st_size:
            with control.open("r+b") as file:  # another boot
                file.seek(BOOT_ID.start)
                file.write(bytes(BOOT_ID.stop - BOOT_ID.start))
        return SimulatedDisk(target)

    def names_on_disk(self, directory: int) -> dict[str, Entry]:
        return self._names.get(directory, {})

    def contents(self, entry: Entry, is_there: bool) -> list[Content]:
        """What any sector of a file may hold, the page cache's last."""
        versions = self._versions.get(entry.inode)
        if not is_there:
            return versions or [Content(0, {})]
        return [*(versions or [self._first_content(entry)]), content_of(entry.path)]

    def mtimes(self, entry: Entry, is_there: bool) -> list[int]:
        mtimes = [self._mtimes[entry.inode]] if entry.inode in self._mtimes else []
        return [*mtimes, os.stat(entry.path).st_mtime_ns] if is_there else mtimes


class Loss:
    """One power failure. Files and names fare alike or each in its own way."""

    def __init__(self, disk: SimulatedDisk, rng: random.Random) -> None:
        self._disk = disk
        self._rng = rng
        self._names_lost = rng.choice((0.0, 0.0, 0.3, 0.7, 1.0))
        self._sectors_lost = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        self._spared = rng.choice((0.0, 0.3, 0.6))  # files that were written back as a whole in time

    def build(self, inode: int, source: str | None, target: str) -> None:
        """The directory `inode` into `target`; `source` is where it is in the page cache, if it still is."""
        durable = self._disk.names_on_disk(inode)
        current = list_directory(source) if source is not None else {}
        for name in sorted(durable.keys() | current.keys()):
            entry, is_there = current.get(name), True
            if entry is None or (name in durable and durable[name].inode != entry.inode) or name not in durable:
                if self._rng.random() < self._names_lost:
                    entry, is_there = durable.get(name), False
                if entry is None:
                    continue
            path = f"{target}/{name}"
            if entry.is_directory:
                os.mkdir(path)
                self.build(entry.inode, entry.path if is_there else None, path)
            else:
                self._file(name, entry, is_there, path)

    def _file(self, name: str, entry: Entry, is_there: bool, path: str) -> None:
        contents = self._disk.contents(entry, is_there)
        write_content(path, self._mix(contents))
        mtimes = self._disk.mtimes(entry, is_there)
        if name == LOCK and mtimes:
            mtime_ns = self._rng.choice(mtimes)
            os.utime(path, ns=(mtime_ns, mtime_ns))

    def _mix(self, contents: list[Content]) -> Content:
        if len(contents) == 1 or self._rng.random() < self._spared:
            return contents[-1]
        rng, lost = self._rng, self._sectors_lost
        size = contents[-1].size
        if contents[0].size != size and rng.random() < lost:
            size = contents[0].size
        pages: dict[int, bytes] = {}
        for at in sorted({at for content in contents for at in content.pages if at < size}):
            versions = [content.pages.get(at, NOTHING).ljust(PAGE, b"\0") for content in contents]
            if all(version == versions[0] for version in versions):
                page = versions[0]
            else:
                page = b"".join(
                    (rng.choice(versions[:-1]) if rng.random() < lost else versions[-1])[sector : sector + SECTOR]
                    for sector in range(0, PAGE, SECTOR)
                )
            pages[at] = page[: size - at]
        return Content(size, pages)
