"""The load driver: C, built by build_driver.py into `_driver` beside this file when it is first wanted."""

from __future__ import annotations

import fcntl
import importlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def is_stale(directory: Path) -> bool:
    """Whether the extension is missing, or older than a source."""
    built = [path.stat().st_mtime for path in directory.glob("_driver.*.so")]
    sources = [path.stat().st_mtime for path in directory.glob("*.[ch]") if path.name != "_driver.c"]
    return not built or max(built) < max(sources)


def load_driver() -> Any:
    """The compiled module (`ffi`, `lib`), built first where it has to be: the driver belongs to no other build.

    Processes that want it at once build it once: the others wait for the lock on build_driver.py, then load the
    complete extension.
    """
    with open(HERE / "build_driver.py", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_stale(HERE):
            from .build_driver import build

            build()
            importlib.invalidate_caches()
    return importlib.import_module("bench.driver._driver")
