"""file_system_of: the file system in which a path lies, as far as it matters to a store (Linux).

Short: doctor and bench ask for it, which share nothing else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs

PROC, SYS = Path("/proc"), Path("/sys")
NO_JOURNAL = "ext4 without a journal"


@attrs.frozen
class Mount:
    """A line of /proc/self/mountinfo."""

    point: str
    device: str  # its numbers, "8:1"
    type: str

    def holds(self, path: str) -> bool:
        return path == self.point or path.startswith(self.point.rstrip("/") + "/")


def file_system_of(path: Path, proc: Path = PROC, sys: Path = SYS) -> str:
    """Return the type of the file system, such as "xfs", or NO_JOURNAL; "" where the kernel does not tell."""
    real = os.path.realpath(path)
    try:
        mounts = [_mount(line) for line in (proc / "self" / "mountinfo").read_text().splitlines()]
    except OSError:
        return ""
    # Of mounts at one point the last one is seen.
    holding = (mount for mount in reversed(mounts) if mount.holds(real))
    found = max(holding, key=lambda mount: len(mount.point), default=Mount("", "", ""))
    return NO_JOURNAL if found.type == "ext4" and _has_no_journal(found.device, proc, sys) else found.type


def _mount(line: str) -> Mount:
    fields = line.split(" ")
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
    return Mount(point, fields[2], fields[fields.index("-") + 1])


def _has_no_journal(device: str, proc: Path, sys: Path) -> bool:
    """The options of an ext4 with a journal name the mode of the journal (data=)."""
    name = os.path.basename(os.path.realpath(sys / "dev" / "block" / device))
    try:
        options = (proc / "fs" / "ext4" / name / "options").read_text().splitlines()
    except OSError:
        return False
    return not any(option.startswith("data=") for option in options)
