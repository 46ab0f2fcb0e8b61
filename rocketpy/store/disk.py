"""The use of the disks, as the reference counts it (`CleanCommitLogService`)."""

from __future__ import annotations

import math
from pathlib import Path

from .files import Files


def disk_ratio(files: Files, path: Path) -> float:
    """Used share of the file system of `path`, in whole percent rounded up: 0.00 to 1.00; -1 if the path is missing."""
    usage = files.usage(path)
    if usage is None:
        return -1.0
    used = usage.total - usage.free
    return math.ceil(100 * used / (used + usage.usable)) / 100 if used + usage.usable else -1.0
