"""A disk of its own for a member or for etcd, which gets full, stands still, or forgets what was written last.

It is an ext4 in a file, mounted by a loop device.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

MISSING = "disks of their own need root and the commands mkfs.ext4, mount and fsfreeze"
DISK_BYTES = 256 << 20
MEMORY = Path("/dev/shm")
CHUNK = bytes(1 << 20)
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def is_possible() -> bool:
    tools = ("mkfs.ext4", "mount", "umount", "fsfreeze", "unshare")
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in tools) and Path("/dev/loop-control").exists()


def _run(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr}")


@attrs.define(eq=False)
class Disk:
    """What is mounted at `place`. Nobody may use it when it is unmounted."""

    image: Path
    place: Path

    def mount(self) -> None:
        _run("mount", "-o", "loop", self.image, self.place)

    def unmount(self) -> None:
        _run("umount", self.place)

    def fill(self) -> None:
        """Until nothing can be written any more."""
        with (self.place / "filler").open("ab", buffering=0) as filler:
            for size in (len(CHUNK), 4096):
                with contextlib.suppress(_NoSpace), _no_space():
                    while True:
                        filler.write(CHUNK[:size])

    def fill_but(self, keep_bytes: int) -> None:
        """Leave so much room."""
        stat = os.statvfs(self.place)
        with (self.place / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, stat.f_bavail * stat.f_frsize - keep_bytes)

    def make_room(self) -> None:
        (self.place / "filler").unlink()

    def freeze(self) -> None:
        """Everybody who writes waits, as on a disk that does not answer. A frozen process cannot even be killed."""
        _run("fsfreeze", "--freeze", self.place)

    def thaw(self) -> None:
        _run("fsfreeze", "--unfreeze", self.place)

    def turn_read_only(self) -> None:
        """As ext4 does when it meets an error of its device: nothing is written any more, fsync and msync fail with
        EROFS, and what is in memory stays there."""
        _run("mount", "-o", "remount,abort", self.place)

    def renew(self) -> None:
        """Another disk in its place, which is empty. Nobody may use the old one."""
        self.unmount()
        _run("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
        self.mount()

    def save(self) -> None:
        """Keep what a loss of power now would leave, if all was synced that was written."""
        self.freeze()
        try:
            _run("cp", "--sparse=always", self.image, self._copy)
        finally:
            self.thaw()

    def put_back(self) -> None:
        """What was written since `save` is gone. The journal is replayed, as after a loss of power."""
        self.unmount()
        os.replace(self._copy, self.image)
        self.mount()

    @property
    def _copy(self) -> Path:
        return self.image.with_suffix(".copy")


class _NoSpace(Exception):
    pass


@contextmanager
def _no_space() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        raise _NoSpace from exc


@contextmanager
def disk(place: Path) -> Iterator[Disk]:
    """A new disk, mounted at `place`. Who uses it must have ended at the end.

    Its image is in memory: on a busy disk each sync of both file systems would take its time.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        image = Path(directory) / "image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", image)
        place.mkdir(parents=True, exist_ok=True)
        made = Disk(image, place)
        made.mount()
        try:
            yield made
        finally:
            with contextlib.suppress(OSError):
                made.thaw()
            _unmount_at_last(made)


def _unmount_at_last(made: Disk) -> None:
    """Unmount, again while the kernel still ends processes that were killed."""
    for _ in range(300):
        try:
            return made.unmount()
        except OSError:
            time.sleep(0.1)
    made.unmount()


@contextmanager
def failing(pids: Iterable[int]) -> Iterator[None]:
    """Fail with EIO whatever these processes, and those that they start, write to a disk or bring to it.

    Stores to mapped files succeed, as on a real disk: msync() tells of them.
    """
    calls = "pwrite64,msync,fsync,fdatasync,sync_file_range,ftruncate,fallocate"
    words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"]
    tracer = subprocess.Popen([*words, *(word for pid in pids for word in ("-p", str(pid)))], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        tracer.terminate()
        tracer.wait(60)


@attrs.define(eq=False)
class Boots:
    """The kernel's number of this boot, as the processes that are started with `prefix` see it."""

    file: Path

    def __attrs_post_init__(self) -> None:
        self.boot()

    def boot(self) -> None:
        """The machine is started again."""
        self.file.write_text(f"{uuid.uuid4()}\n")

    @property
    def prefix(self) -> list[str]:
        script = f'mount --bind "{self.file}" {BOOT_ID} && exec "$@"'
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh"]
