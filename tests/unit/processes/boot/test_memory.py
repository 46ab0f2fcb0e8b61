"""What a process does with its memory before it forks workers."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.processes.boot.memory import share_memory


def _file_kib() -> int:
    """Of this process: its pages of files."""
    found = re.search(r"RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def test_library_pages_go_and_come_back_and_objects_are_frozen() -> None:
    pid = os.fork()
    if pid == 0:
        sum(map(len, re.findall(rb".", Path(os.__file__).read_bytes())))  # touches pages of libraries
        before = _file_kib()
        share_memory()
        is_smaller, still_works = _file_kib() < before, re.sub("a", "b", "a") == "b"
        os._exit(0 if is_smaller and still_works and gc.get_freeze_count() else 1)
    assert os.waitpid(pid, 0)[1] == 0
