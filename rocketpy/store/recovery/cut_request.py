"""A cut of the log that the replicator of a slave asks for, to be done when the store is opened next.

`cutRequest` in the root of the store, a JSON object: `position`, where the log is to end. Who opens the store removes
the file first, so a request is tried once.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from rocketpy.atomic_file import write_atomically
from rocketpy.errors import StoreError

logger = logging.getLogger(__name__)

FILE = "cutRequest"
SIZE_MAX = 1000  # bytes


def request_cut(root: Path, position: int) -> None:
    """Have the log of the store at `root` end at `position`; on return the request is on the disk.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        write_atomically(root / FILE, json.dumps({"position": position}).encode(), keep_old=False)
    except OSError as exc:
        raise StoreError(f"cannot write {root / FILE}: {exc.strerror}") from exc


def take_cut_request(root: Path) -> int | None:
    """The position that was asked for, once; None: nobody has asked.

    Raises:
        StoreError: the file cannot be read or removed.
    """
    path = root / FILE
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX)
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
