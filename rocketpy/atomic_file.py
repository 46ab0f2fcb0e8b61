"""Small files that must never be half written: the reference's tmp, bak, rename scheme, with the syncs it leaves out.

    write <f>.tmp, sync   ->   copy <f> to <f>.bak, sync   ->   rename <f>.tmp to <f>   ->   sync the directory

At every instant `<f>` is the old or the new text, whole. The Java servers read and write the same three names.

Source: `MixAll#string2File`, `ConfigManager#load`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


def write_atomically(
    path: Path, data: bytes | Sequence[bytes], *, keep_old: bool = True, mode: int | None = None
) -> None:
    """Replace the file at `path`, creating its directory; on return the new content is on the disk.

    `data` is the content, whole or in pieces. Without `keep_old` there is no <f>.bak, and one sync less.
    `mode` has the permission bits of the new file; without it they are those of any new file.

    Raises:
        OSError: the old file is still whole.
    """
    make_directory(path.parent)
    new, old = Path(f"{path}.tmp"), Path(f"{path}.bak")
    _write_synced(new, [data] if isinstance(data, bytes) else data, mode)
    if keep_old and path.exists():
        _write_synced(old, [path.read_bytes()])
    os.replace(new, path)
    sync_directory(path.parent)


def read_with_backup(path: Path, decode: Callable[[bytes], _T]) -> _T | None:
    """The decoded content of `path`, or of `<path>.bak` when it is missing, empty or does not decode.

    Returns: None when neither file is there: a first start.
    Raises:
        ValueError: there are files, and none of them decodes. Starting empty would overwrite what is left.
        OSError: a file is there and cannot be read.
    """
    first_error: ValueError | None = None
    found = False
    for candidate in (path, Path(f"{path}.bak")):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        found = True
        if not data.strip():
            continue
        try:
            return decode(data)
        except ValueError as exc:
            first_error = first_error or ValueError(f"{candidate}: {exc}")
    if first_error is not None:
        raise first_error
    if found:
        raise ValueError(f"{path}: empty, and there is no {path.name}.bak")
    return None


def make_directory(path: Path) -> None:
    """Create a directory and its parents, with their names on the disk: else files below them might be lost with them.

    Raises: OSError.
    """
    missing = [part for part in (path, *path.parents) if not part.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for part in missing:
        sync_directory(part.parent)


def sync_directory(path: Path) -> None:
    """Bring added, renamed and removed names of a directory to the disk. Raises: OSError.

    Windows, where clients run, opens no directories and writes their changes by itself.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, pieces: Sequence[bytes], mode: int | None = None) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o666 if mode is None else mode)) as file:
        if mode is not None and sys.platform != "win32":
            os.fchmod(file.fileno(), mode)  # of a file that a crash has left, and whatever the umask is
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
