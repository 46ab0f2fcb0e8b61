"""The cut of a log whose history differs from its master's: the request, and the end of the log, which is kept aside.

`cutRequest` in the root of the store, a JSON object: `position`, where the log is to end. The replicator of a slave
asks for it, to be done when the store is opened next. Opening the store removes the file first, so a request is tried
once.

`diverged/<position>-<end>` in the root of the store: the bytes of the log between these positions, as they were. The
broker never reads or removes them; `rocketpy store dump` does not either. They are for people who look for a message.
What is kept may have been acknowledged, so nothing of it makes room for more: when there is no room, nothing is cut.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import attrs

from rocketpy.atomic_file import write_atomically
from rocketpy.errors import StoreError

from ..files import Files, StorePaths, file_name

logger = logging.getLogger(__name__)

REQUEST_FILE = "cutRequest"
REQUEST_SIZE_MAX = 1000  # bytes
DIRECTORY = "diverged"
STEP = 4 << 20  # bytes copied at once


class NoRoomAside(StoreError):
    """There is no room to keep the end of the log aside, so the log must not be cut. Nothing was written."""


@attrs.frozen
class Kept:
    """The truncated log tails that are kept in one store."""

    files: int = 0
    size: int = 0  # bytes


def kept_aside(files: Files, root: Path) -> Kept:
    """Count the truncated log tails that are kept in the store at `root`.

    Raises:
        StoreError: the directory cannot be read.
    """
    sizes = [info.size for info in files.entries(root / DIRECTORY) if not info.is_directory]
    return Kept(len(sizes), sum(sizes))


def check_room(files: Files, root: Path, begin: int, end: int, size_max: int) -> None:
    """Check that the log from `begin` to `end` can be kept aside.

    Args:
        size_max: bytes of all that is kept (haDivergedSizeMax).
    Raises:
        NoRoomAside: it cannot; the text names the remedy. StoreError: the directory cannot be read.
    """
    directory, size, found = root / DIRECTORY, end - begin, kept_aside(files, root)
    before = files.info(_target(root, begin, end))  # of a cut that was interrupted: it is written over
    others = found.size - (before.size if before is not None else 0)
    if others + size > size_max:
        raise NoRoomAside(
            f"{size} bytes of the log would have to be kept in {directory}, which has {others} of at most {size_max} "
            "(haDivergedSizeMax): move away what nobody needs, or raise haDivergedSizeMax; the log is not cut before"
        )
    usage = files.usage(root)
    if usage is not None and usage.usable < size:
        raise NoRoomAside(
            f"{size} bytes of the log would have to be kept in {directory}, and {usage.usable} are free: make room on "
            "that disk; the log is not cut before"
        )


def keep_aside(files: Files, paths: StorePaths, file_size: int, begin: int, end: int) -> Path:
    """Copy the log from `begin` to `end`; on return it is on the disk. Repeating it writes the same again.

    Raises:
        StoreError: it cannot be written.
    """
    target = _target(paths.root, begin, end)
    files.make_directory(target.parent)
    at = begin
    while at < end:
        start = at - at % file_size
        size = min(STEP, end - at, start + file_size - at)
        data = files.read(paths.commitlog / file_name(start), at - start, size)
        files.write(target, at - begin, data)
        at += size
    files.write(target, 0, b"", sync=True)
    files.sync_directory(target.parent)
    return target


def _target(root: Path, begin: int, end: int) -> Path:
    return root / DIRECTORY / f"{file_name(begin)}-{file_name(end)}"


def request_cut(root: Path, position: int) -> None:
    """Have the log of the store at `root` end at `position`; on return the request is on the disk.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        write_atomically(root / REQUEST_FILE, json.dumps({"position": position}).encode(), keep_old=False)
    except OSError as exc:
        raise StoreError(f"cannot write {root / REQUEST_FILE}: {exc.strerror}") from exc


def take_cut_request(root: Path) -> int | None:
    """The position that was asked for, once; None: nobody has asked.

    Raises:
        StoreError: the file cannot be read or removed.
    """
    path = root / REQUEST_FILE
    try:
        with path.open("rb") as file:
            data = file.read(REQUEST_SIZE_MAX)
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"cannot read and remove {path}: {exc.strerror}") from exc
    try:
        position = json.loads(data)["position"]
    except (ValueError, KeyError, TypeError):
        position = None
    if type(position) is not int or position < 0:
        logger.warning("removed %s, which named no position: nothing is cut", path)
        return None
    return position
