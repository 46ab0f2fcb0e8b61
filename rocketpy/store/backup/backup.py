"""Makes a copy of a store in a directory of copies.

    DIRECTORY/20261129T022700Z/        a complete copy; it opens like a store after a loss of power
    DIRECTORY/20261129T032700Z.part/   one that is being made, or was interrupted: the next run continues it

What presumes messages is copied before the log: checkpoint, tables (committed offsets, progress of delays, topics),
consume queues, index. So the copied log has all that they presume, and the next start finds what they lack in it, from
the checkpoint on. The control block stays behind: the next start reads the files instead.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
import shutil
import stat
import time
from calendar import timegm
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import attrs

from rocketpy.atomic_file import make_directory, sync_directory, write_atomically
from rocketpy.errors import StoreError

from ..files import DiskFiles, StorePaths, translated
from ..formats.index_file import INDEX_HEADER, INDEX_SLOT, INDEX_UNIT, index_files
from ..formats.unit import CQ_STORE_UNIT_SIZE
from ..inspection.findings import ProgressListener
from ..inspection.reader import StoreReader, guess_slots
from ..inspection.state_files import StoreState, read_state, read_unit_ends
from ..inspection.verify import NO_LISTENER, VerifyReport, verify_store
from ..recovery.index_repair import repair_image
from ..timers import forget_marks_of_this_boot
from .copying import copy_file, copy_tree, sync_tree
from .log import LogCopy, LogEnd, drop_after

NAME = "%Y%m%dT%H%M%SZ"
COPY = re.compile(r"\d{8}T\d{6}Z")
PART, REMOVED = ".part", ".removed"
MANIFEST = "backup.json"
OF_THIS_STORE = ("lock", "control", "abort", "queuelocks", "incarnation", "epochFileCheckpoint")
"""They belong to the store in use, or name it in its group of failover, which a copy must not pass for."""
IN_TURN = ("checkpoint", "consumequeue", "consumequeue_ext", "index", "commitlog", "diverged")
"""Not copied with the tables: these are copied in a certain order; `diverged`, which is no part of the log, is not."""


@attrs.frozen
class Backup:
    """A copy that was made, and the check of it. It is complete only if nothing in it is damaged."""

    path: Path
    report: VerifyReport
    linked_bytes: int  # of log files that an earlier copy has as well
    seconds: float

    @property
    def is_complete(self) -> bool:
        return not self.report.problems


def back_up(
    root: Path,
    directory: Path,
    commitlog: str = "",
    *,
    keep: int | None = None,
    slots: int | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> Backup:
    """Copy the store below `root`, check the copy, and remove complete copies beyond `keep`.

    Args:
        commitlog: directory of the log, if it is not below `root`.
        slots: maxHashSlotNum, if it cannot be derived from the size of the index files.
    Raises:
        StoreError: no store, another backup to `directory` is running, or a file cannot be read or written.
    """
    reader = StoreReader(root, commitlog)
    if directory.resolve().is_relative_to(root.resolve()):
        raise StoreError(f"{directory} is inside of the store; name a directory outside of it, on another disk")
    began_s = time.monotonic()
    with _held(directory):
        before = next(reversed(complete_copies(directory)), None)
        part = _begin(directory)
        with translated(part, "protect"):  # who may not enter the store may not enter its copy
            part.chmod(stat.S_IMODE(root.stat().st_mode) | stat.S_IRWXU)
        target = StorePaths.of(part)
        state = _copy_what_presumes_messages(reader, target, listener)
        log = LogCopy(
            reader, target.commitlog, before / "commitlog" if before else None, _full_end_of(before), listener
        )
        log.run()
        if not state.is_closed or read_state(reader.files, reader.paths) != state:  # a broker may have begun
            DiskFiles().write(target.abort, 0, b"")
        _write_manifest(part, reader.paths.root, log.end)
        log.finish()
        _repair_newest_index(target, log.end.copied, slots)
        sync_tree(part)
        report = _check(part, log, listener, slots)
        path = part if report.problems else _complete(part)
        if keep is not None and not report.problems:
            _remove(complete_copies(directory)[:-keep])
        return Backup(path, report, log.linked_bytes, time.monotonic() - began_s)


def _check(part: Path, log: LogCopy, listener: ProgressListener, slots: int | None) -> VerifyReport:
    """Check a copy, and again after damaged log files of an earlier copy are replaced by those of the store."""

    def check() -> VerifyReport:
        return verify_store(StoreReader(part), listener, slots=slots)

    report: VerifyReport | None = None
    with suppress(StoreError):  # a sector cannot be read, for example
        report = check()
    replaced = log.copy_again(None if report is None else {Path(problem.file).name for problem in report.problems})
    if report is None or replaced:
        report = check()
    text = "log file {} was damaged in an earlier copy, and was copied from the store again; remove that copy"
    report.notes.extend(map(text.format, replaced))
    return report


def complete_copies(directory: Path) -> list[Path]:
    """List the complete copies in a directory, oldest first."""
    return sorted(path for path in directory.iterdir() if COPY.fullmatch(path.name) and (path / MANIFEST).exists())


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Create the directory, and keep other backups from it."""
    with translated(directory, "create"):
        make_directory(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as exc:
        raise StoreError(f"another backup to {directory} is running; wait until it has ended") from exc
    finally:
        os.close(descriptor)


def _begin(directory: Path) -> Path:
    """Return the directory of the new copy: the interrupted one, with its complete log files, if there is one."""
    for left in _own(directory, REMOVED):
        with translated(left, "remove"):
            shutil.rmtree(left)
    parts = _own(directory, PART)
    part = _new_name(directory)
    with translated(part, "create"):
        if parts:
            os.rename(parts[-1], part)
        make_directory(part / "commitlog")
        drop_after(part / "commitlog", _full_end_of(part))
        for entry in part.iterdir():
            if entry.name != "commitlog":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return part


def _own(directory: Path, ending: str) -> list[Path]:
    """List the directories of copies whose names end so, oldest first; other files of the user are left alone."""
    paths = (path for path in directory.iterdir() if path.suffix == ending and COPY.fullmatch(path.stem))
    return sorted(path for path in paths if path.is_dir() and not path.is_symlink())


def _new_name(directory: Path) -> Path:
    """Return the path of a new copy: the time (UTC), later than those of all complete copies, from which `keep` removes
    the oldest by name. The clock may have been set back since they were made."""
    newest_s = max(map(_time_of, complete_copies(directory)), default=0)
    now_s = max(int(time.time()), newest_s + 1)
    while (path := directory / time.strftime(NAME, time.gmtime(now_s))).exists():
        now_s += 1
    return path.with_name(path.name + PART)


def _time_of(copy: Path) -> int:
    """Return the seconds since 1970 that a copy is named by. Raises StoreError: its name is no time."""
    try:
        return timegm(time.strptime(copy.name, NAME))
    except ValueError:
        raise StoreError(f"{copy} is not named by a date and time; move it out of {copy.parent}") from None


def _copy_what_presumes_messages(reader: StoreReader, target: StorePaths, listener: ProgressListener) -> StoreState:
    """Copy all but the log; return the state of the store before."""
    source, done = reader.paths, 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        listener.reached(done)

    listener.begin("tables", 0, "bytes")
    state = read_state(reader.files, source)
    if state.checkpoint is not None:
        copy_file(source.checkpoint, target.checkpoint, os.stat(source.checkpoint).st_size, read)
    left_out = {source.root / name for name in OF_THIS_STORE + IN_TURN} | _paths_of_log(source)
    copy_tree(source.root, target.root, read, leave_out=frozenset(left_out))
    forget_marks_of_this_boot(target, DiskFiles())  # timers: the next start reads the log instead
    listener.begin("queues", 0, "bytes")
    done = 0
    ends = read_unit_ends(reader.files, source) if state.live_control is not None else None
    copy_tree(source.consumequeue, target.consumequeue, read, used=partial(_whole_units, ends))
    copy_tree(source.consumequeue_ext, target.consumequeue_ext, read)  # after the units, which name extensions
    copy_tree(source.index, target.index, read)
    return state


def _paths_of_log(paths: StorePaths) -> set[Path]:
    """Return the paths of the log, which may have any name below the root (storePathCommitLog)."""
    root, log = paths.root.resolve(), paths.commitlog.resolve()
    return {paths.commitlog, *([paths.root / log.relative_to(root)] if log.is_relative_to(root) else [])}


def _whole_units(ends: dict[tuple[str, int], int] | None, path: Path, size: int) -> int:
    """Return the bytes of a queue file that are complete units: its broker may be writing the one after them."""
    directory = path.parent
    if ends is None or not (path.name.isdecimal() and directory.name.isdecimal()):
        return size
    end = ends.get((directory.parent.name, int(directory.name)), 0)
    return min(size, max(0, end * CQ_STORE_UNIT_SIZE - int(path.name)))


def _repair_newest_index(paths: StorePaths, log_end: int, slots: int | None) -> None:
    """Make slots and header of the newest index file fit its units: the broker wrote it while it was copied."""
    files = index_files(DiskFiles(), paths.index)
    size = files[-1].stat().st_size if files else 0
    slots = slots or guess_slots(size)
    if slots is None or size < INDEX_HEADER.size + slots * INDEX_SLOT.size:
        return  # the check says so
    units = (size - INDEX_HEADER.size - slots * INDEX_SLOT.size) // INDEX_UNIT.size
    with translated(files[-1], "repair"), files[-1].open("r+b") as file, mmap.mmap(file.fileno(), size) as image:
        is_usable = repair_image(image, slots, units, log_end) is not None
    if not is_usable:
        files[-1].unlink()


def _write_manifest(part: Path, root: Path, end: LogEnd) -> None:
    fields = {"store": str(root.absolute()), "logEnd": end.copied, "fullLogEnd": end.full}
    with translated(part / MANIFEST, "write"):
        write_atomically(part / MANIFEST, json.dumps(fields).encode() + b"\n", keep_old=False)


def _full_end_of(copy: Path | None) -> int | None:
    """Return the offset up to which a copy has full log files; None if it does not tell: it was interrupted."""
    if copy is None or not (copy / MANIFEST).exists():
        return None
    try:
        return int(json.loads((copy / MANIFEST).read_bytes())["fullLogEnd"])
    except (ValueError, KeyError, TypeError, OverflowError, OSError) as exc:
        raise StoreError(f"cannot read {copy / MANIFEST}: {exc}; remove {copy}, which is no usable copy") from exc


def _complete(part: Path) -> Path:
    path = part.with_suffix("")
    with translated(path, "rename"):
        os.rename(part, path)
        sync_directory(path.parent)
    return path


def _remove(copies: list[Path]) -> None:
    """Remove copies. An interrupted removal leaves none that looks complete; the next run goes on with it."""
    for copy in copies:
        removed = copy.with_name(copy.name + REMOVED)
        with translated(copy, "remove"):
            os.rename(copy, removed)
            shutil.rmtree(removed)
