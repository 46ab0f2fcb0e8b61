"""What a process does with its memory before it forks workers."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
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


def is_in_heap(block: bytes) -> bool:
    """Whether malloc has put it into its heap."""
    (heap,) = re.findall(r"(\w+)-(\w+) .*\[heap\]", Path("/proc/self/maps").read_text())
    return int(heap[0], 16) <= id(block) < int(heap[1], 16)


LARGE = """
from rocketpy.cli.main import keep_large_blocks_apart
from tests.unit.processes.boot.test_memory import is_in_heap
keep_large_blocks_apart()
larger = bytes(16 << 20)
del larger
print(is_in_heap(bytes(1 << 20)))
"""
THREAD = """
import threading
from rocketpy.processes.boot.memory import share_memory
from tests.unit.processes.boot.test_memory import is_in_heap
share_memory()
found = []
thread = threading.Thread(target=lambda: found.append(is_in_heap(bytes(10_000))))
thread.start()
thread.join()
print(found)
"""


def printed_by(program: str) -> str:
    """Return what a new interpreter prints: this one has a heap with holes, and threads that have ended."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_a_large_block_is_not_in_the_heap_after_a_larger_one_was_freed() -> None:
    """Fault: The hole that it left was taken by tables of workers, and each of them by a MiB of memory."""
    assert printed_by(LARGE) == "False"


def test_threads_use_the_heap_of_their_process() -> None:
    """Fault: Each thread that had run kept a heap of its own."""
    assert printed_by(THREAD) == "[True]"
