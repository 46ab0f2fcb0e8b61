"""The state that survives a killed manager: three journals in memory that the supervisor maps before the first fork.

    clients   who is online, what groups subscribe to; connections live on in the selectors     shared memory
    offsets   what was committed since the last completed save of consumerOffset.json           shared memory
    locks     who may consume which queue in order (lock_file.py)                                a mapped file

Shared memory ends with the broker, as connections do; then consumerOffset.json has the offsets, as in the reference.
The locks are in a file because their holders go on consuming while a broker is restarted.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import attrs

from ..clock import Clock
from .journal import Journal, format_memory
from .lock_file import LockFile

CLIENTS_SHARE = 0.8
CLIENT_BYTES = 1536  # of the mapping for each connection: 160 to 500 in use, of two halves that may be 3/4 full
CLIENTS_BYTES_MAX = 1 << 30
PRIVATE_BYTES = 1 << 16


@attrs.frozen(eq=False)
class ManagerMemory:
    """The three mappings. Every manager process inherits them."""

    clients: memoryview
    offsets: memoryview
    locks: LockFile

    @classmethod
    def create(
        cls, root: Path, shared_bytes: int, *, is_ours: bool, clock: Clock, clients_max: int = 0
    ) -> ManagerMemory:
        """Map everything. All journals are empty, except for the locks that an earlier broker left.

        Args:
            root: storePathRootDir.
            shared_bytes: for clients and offsets; physical memory is taken only as far as it is used. clients_max:
            largest number of connections: clients get more memory than their share if it needs more, up to
            CLIENTS_BYTES_MAX. is_ours: no other program has used the store since our last run.
        """
        clients_bytes = int(shared_bytes * CLIENTS_SHARE)
        return cls(
            clients=_shared(max(clients_bytes, min(clients_max * CLIENT_BYTES, CLIENTS_BYTES_MAX))),
            offsets=_shared(shared_bytes - clients_bytes),
            locks=LockFile.open(root, is_ours=is_ours, clock=clock),
        )

    @classmethod
    def private(cls) -> ManagerMemory:
        """Private memory, for a broker that does not fork."""
        memories = [memoryview(bytearray(PRIVATE_BYTES)) for _ in range(3)]
        for memory in memories:
            format_memory(memory)
        return cls(memories[0], memories[1], LockFile(memories[2], unknown_until_ms=0))

    def clients_journal(self) -> Journal:
        return Journal("clients", self.clients)

    def offsets_journal(self) -> Journal:
        return Journal("committed offsets", self.offsets, is_saved=True)

    def locks_journal(self) -> Journal:
        return Journal("queue locks", self.locks.memory, remedy="lower queueLocksMax")


def _shared(size: int) -> memoryview:
    memory = memoryview(mmap.mmap(-1, size))  # MAP_SHARED, anonymous
    format_memory(memory)
    return memory
