"""What survives the manager: mapped once, found by every process that inherits it."""

from __future__ import annotations

import os
from pathlib import Path

from rocketpy.broker.memory.manager_memory import CLIENT_BYTES, CLIENTS_BYTES_MAX, ManagerMemory
from tests.support.slow_path import FakeClock


def test_what_a_process_has_put_is_found_after_its_death(tmp_path: Path) -> None:
    memory = ManagerMemory.create(tmp_path, 1 << 20, is_ours=False, clock=FakeClock())
    child = os.fork()
    if child == 0:
        for journal in (memory.clients_journal(), memory.offsets_journal(), memory.locks_journal()):
            journal.put(b"key", b"value")
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    for journal in (memory.clients_journal(), memory.offsets_journal(), memory.locks_journal()):
        assert journal.entries == {b"key": b"value"}


def test_shared_memory_is_bounded(tmp_path: Path) -> None:
    memory = ManagerMemory.create(tmp_path, 1 << 20, is_ours=False, clock=FakeClock())
    assert len(memory.clients) + len(memory.offsets) == 1 << 20


def test_memory_of_clients_follows_the_connections(tmp_path: Path) -> None:
    """Fault: A restarted manager with default settings forgot clients beyond 50 000."""
    memory = ManagerMemory.create(tmp_path, 1 << 20, is_ours=False, clock=FakeClock(), clients_max=50_000)
    journal = memory.clients_journal()
    for connection in range(50_000):
        journal.put(b"c%d" % (1 << 50 | connection), b"x" * 480)
    assert not journal.is_lost and len(memory.clients) == 50_000 * CLIENT_BYTES
    largest = ManagerMemory.create(tmp_path, 1 << 20, is_ours=False, clock=FakeClock(), clients_max=1 << 40)
    assert len(largest.clients) == CLIENTS_BYTES_MAX
