"""Keeps aside what is about to be cut off a log whose history differs from its master's.

`diverged/<position>-<end>` in the root of the store: the bytes of the log between these positions, as they were. The
broker never reads or removes them; `rocketpy store dump` does not either. They are for people who look for a message.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy.errors import DiskFull

from ..files import Files, StorePaths, file_name

DIRECTORY = "diverged"
STEP = 4 << 20  # bytes copied at once


def keep_aside(files: Files, paths: StorePaths, file_size: int, begin: int, end: int) -> Path:
    """Copy the log from `begin` to `end`; on return it is on the disk. Repeating it writes the same again.

    Raises:
        StoreError: it cannot be written; DiskFull says so before the first byte.
    """
    directory = paths.root / DIRECTORY
    target = directory / f"{file_name(begin)}-{file_name(end)}"
    usage = files.usage(paths.root)
    if usage is not None and usage.usable < end - begin:
        raise DiskFull(
            f"cannot keep {end - begin} bytes of the log aside in {directory}: {usage.usable} are free; the log is not "
            "cut, and cannot follow its master, until there is room"
        )
    files.make_directory(directory)
    at = begin
    while at < end:
        start = at - at % file_size
        size = min(STEP, end - at, start + file_size - at)
        data = files.read(paths.commitlog / file_name(start), at - start, size)
        files.write(target, at - begin, data)
        at += size
    files.write(target, 0, b"", sync=True)
    files.sync_directory(directory)
    return target
