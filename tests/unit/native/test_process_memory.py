"""What the supervisor does to its heap before it forks."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import lib

COUNT, SIZE = 200, 5_000
HEAP_STEP = 160 * 1024  # malloc extends the heap by 128 KiB more than it needs


def _retire() -> tuple[int, int]:
    """In a process of its own: bytes taken after every second of COUNT blocks was freed, and by another call."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        blocks: list[bytearray | None] = [bytearray(SIZE) for _ in range(COUNT)]
        blocks[:-1:2] = [None] * (COUNT // 2)
        first = lib.rp_process_memory_retire_free_blocks(SIZE - 1_000)
        second = lib.rp_process_memory_retire_free_blocks(SIZE - 1_000)
        os.write(target, f"{first} {second}".encode())
        os._exit(0)
    os.close(target)
    with open(source) as pipe:
        first_text, second_text = pipe.read().split()
    assert os.waitpid(pid, 0)[1] == 0
    return int(first_text), int(second_text)


def test_free_blocks_are_taken_out_of_use_once() -> None:
    first, second = _retire()
    assert first >= COUNT // 2 * (SIZE - 1_000)
    assert second <= HEAP_STEP
