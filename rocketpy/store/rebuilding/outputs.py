"""Files that workers write for others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..files import translated


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete: a task may be running twice.

    Raises:
        StoreError: it cannot be written.
    """
    unnamed = path.with_name(f"{path.name}.{os.getpid()}")
    with translated(path, "write"):
        try:
            with unnamed.open("wb") as file:
                yield file
            unnamed.replace(path)
        except BaseException:
            unnamed.unlink(missing_ok=True)
            raise
