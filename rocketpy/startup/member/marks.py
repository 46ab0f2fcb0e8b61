"""What a member's processes tell each other about its process tree, beside the member block: a few bytes they share."""

from __future__ import annotations

import mmap

SLAVE, MASTER = 1, 2  # values of the role
_TOLD, _LEAVING, _ROLE, _OPENED = range(4)  # places of the bytes


class TreeMarks:
    """Made before the first fork, by the guardian, which writes all but `told_ready` and `is_open`."""

    def __init__(self) -> None:
        self._bytes = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def told_ready(self) -> bool:
        """Whether the operator has been told that the broker serves: once, not with each change of the role."""
        return bool(self._bytes[_TOLD])

    @told_ready.setter
    def told_ready(self, told: bool) -> None:
        self._bytes[_TOLD] = told

    @property
    def gives_way(self) -> bool:
        """Whether the process tree is being stopped for another one of the same broker: it stays registered, and
        leaves what takes time to the next."""
        return bool(self._bytes[_LEAVING])

    @gives_way.setter
    def gives_way(self, gives_way: bool) -> None:
        self._bytes[_LEAVING] = gives_way

    @property
    def is_master(self) -> bool | None:
        """The role of the process tree that runs; None: none does."""
        return {SLAVE: False, MASTER: True}.get(self._bytes[_ROLE])

    @is_master.setter
    def is_master(self, is_master: bool | None) -> None:
        self._bytes[_ROLE] = 0 if is_master is None else MASTER if is_master else SLAVE

    @property
    def is_open(self) -> bool:
        """Whether the process tree that runs has opened the store: recovery is over."""
        return bool(self._bytes[_OPENED])

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self._bytes[_OPENED] = is_open
