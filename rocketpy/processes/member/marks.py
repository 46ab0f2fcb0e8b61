"""Marks of a member's process tree that its processes share, beside the member block: a few bytes, names of files, an
exit status.

A broker without failover loads this module as well, and no other one of this package.
"""

from __future__ import annotations

import mmap

INCARNATION_FILE = "incarnation"
EPOCH_FILE = "epochFileCheckpoint"
EXIT_OTHER_EPOCH = 75  # of a process tree: it cannot serve the epoch that is wanted; another election has to be held

SLAVE, MASTER = 1, 2  # values of the role
_TOLD, _REPLACED, _ROLE, _OPENED = range(4)  # places of the bytes
_SUPERVISOR_AT, _COORDINATOR_AT, _MANAGER_AT, _GUARDIAN_AT = 1, 2, 28, 29  # places of the times, in units of 8 bytes
_FAULT_AT, FAULT_BYTES_MAX = 24, 200  # a text that ends with a zero


class TreeMarks:
    """Made before the first fork, by the guardian. It writes what names no other writer; the supervisor of a process
    tree also says that the store is open and that the operator was told, and resets what the tree before has left.

    Times are those of CLOCK_MONOTONIC in seconds; 0: never.
    """

    def __init__(self) -> None:
        self._bytes = mmap.mmap(-1, mmap.PAGESIZE)
        # Written in one store each: `struct.pack_into` clears its bytes first, and a reader would see 0.
        self._times = memoryview(self._bytes).cast("d")

    @property
    def supervisor_turned_s(self) -> float:
        """The last turn of the supervisor, which writes it, of the process tree that runs."""
        return float(self._times[_SUPERVISOR_AT])

    @supervisor_turned_s.setter
    def supervisor_turned_s(self, now_s: float) -> None:
        self._times[_SUPERVISOR_AT] = now_s

    @property
    def coordinator_turned_s(self) -> float:
        """The last turn of the coordinator, which writes it; the guardian forgets that of the one before."""
        return float(self._times[_COORDINATOR_AT])

    @coordinator_turned_s.setter
    def coordinator_turned_s(self, now_s: float) -> None:
        self._times[_COORDINATOR_AT] = now_s

    @property
    def guardian_turned_s(self) -> float:
        """The last turn of the guardian, which writes it: it replaces the process tree when the role changes."""
        return float(self._times[_GUARDIAN_AT])

    @guardian_turned_s.setter
    def guardian_turned_s(self, now_s: float) -> None:
        self._times[_GUARDIAN_AT] = now_s

    @property
    def manager_moved_s(self) -> float:
        """The last piece of the log in which a manager that is being started has looked for topics; it writes this."""
        return float(self._times[_MANAGER_AT])

    @manager_moved_s.setter
    def manager_moved_s(self, now_s: float) -> None:
        self._times[_MANAGER_AT] = now_s

    @property
    def tree_fault(self) -> str:
        """The reason why not all workers of the process tree serve, as its supervisor knows it; empty: they do."""
        found = bytes(self._bytes[_FAULT_AT : _FAULT_AT + FAULT_BYTES_MAX])
        return found.partition(b"\0")[0].decode("utf-8", "replace")

    @tree_fault.setter
    def tree_fault(self, text: str) -> None:
        encoded = text.encode()[: FAULT_BYTES_MAX - 1]
        self._bytes[_FAULT_AT : _FAULT_AT + len(encoded) + 1] = encoded + b"\0"

    @property
    def told_ready(self) -> bool:
        """True if the operator has been told that the broker serves: once, not with each change of the role."""
        return bool(self._bytes[_TOLD])

    @told_ready.setter
    def told_ready(self, told: bool) -> None:
        self._bytes[_TOLD] = told

    @property
    def is_replaced(self) -> bool:
        """True if the process tree is being stopped for another one of the same broker: it stays registered, and leaves
        work that takes time to the next."""
        return bool(self._bytes[_REPLACED])

    @is_replaced.setter
    def is_replaced(self, is_replaced: bool) -> None:
        self._bytes[_REPLACED] = is_replaced

    @property
    def is_master(self) -> bool | None:
        """The role of the process tree that runs; None: none does."""
        return {SLAVE: False, MASTER: True}.get(self._bytes[_ROLE])

    @is_master.setter
    def is_master(self, is_master: bool | None) -> None:
        self._bytes[_ROLE] = 0 if is_master is None else MASTER if is_master else SLAVE

    @property
    def is_open(self) -> bool:
        """True if the process tree that runs has opened the store: recovery is over."""
        return bool(self._bytes[_OPENED])

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self._bytes[_OPENED] = is_open
