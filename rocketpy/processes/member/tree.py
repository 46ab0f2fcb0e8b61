"""One process tree of a member: an ordinary broker in one role, as long as the guardian lets it be."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs

from rocketpy.failover.member_block import MemberBlock
from rocketpy.reactor.handoff import handoff_pair
from rocketpy.reactor.topology import MANAGER
from rocketpy.reactor.worker_spec import WorkerSpec
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.recovery.lifecycle import Distrust, OpenedStore
from rocketpy.store.recovery.positions import RecoveryKind

from .identity import distrust, open_epoch, open_identity
from .marks import TreeMarks
from .shown import MemberShown

PAIR_BYTES = 1 << 20  # 32 connections are one message of 768 bytes, and the kernel doubles this: 87 000 of them
SILENT_RATIO = 0.5  # of the time after which the supervisor kills a worker without a heartbeat


@attrs.frozen
class Parked:
    """Connections of clients between two process trees of a member, held by the guardian; made before the first fork.

    A role changes with the process tree. Selectors of the tree that ends pass the connections on which nothing is under
    way into a unix socket pair, and the acceptor of the next tree takes them out. Requests that arrive
    meanwhile wait in the connections, so that a planned change of the master costs them a second and no failed request
    (docs/adr/0114). Connections for which the pair has no room end: beyond PAIR_BYTES or net.core.wmem_max, and without
    privileges beyond one process's limit of open files, which the kernel holds for descriptors on their way.
    """

    _pair: tuple[socket.socket, socket.socket] = attrs.field(factory=handoff_pair)

    def __attrs_post_init__(self) -> None:
        self.into.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAIR_BYTES)

    @property
    def into(self) -> socket.socket:
        """The end of selectors."""
        return self._pair[0]

    @property
    def out(self) -> socket.socket:
        """The end of the acceptor."""
        return self._pair[1]

    @property
    def fds(self) -> tuple[int, int]:
        """The descriptors, which the children of the guardian keep."""
        return self.into.fileno(), self.out.fileno()


@attrs.frozen
class MemberMemory:
    """The memory that guardian, coordinator and process tree of a member share.

    Made by the guardian before the first fork: it outlives each coordinator and each process tree.
    """

    block: MemberBlock = attrs.field(factory=MemberBlock)  # orders of the coordinator, positions of the process tree
    slaves: SlaveTable = attrs.field(factory=SlaveTable)
    marks: TreeMarks = attrs.field(factory=TreeMarks)
    shown: MemberShown = attrs.field(factory=MemberShown)  # of the coordinator, for metrics and operators


@attrs.frozen
class Role:
    """The role of a process tree: slave, or master of an epoch. `cut_at`: where its log is cut when it is opened."""

    is_master: bool = False
    epoch: int = -1  # the one to serve as master; -1: a slave
    cut_at: int | None = None


@attrs.frozen
class MemberTree:
    """The objects that the member's process tree has from its guardian."""

    name: str  # haMember
    memory: MemberMemory
    role: Role
    is_sync_group: bool
    parked: Parked

    def distrust_in(self, root: Path) -> Distrust:
        """Return the check with which the store at `root` is opened."""
        return partial(distrust, root)

    def begin(self, opened: OpenedStore, *, is_sync_flush: bool) -> bool:
        """Name the store, and as a master open the epoch, before workers are forked.

        The next offsets of all queues are known by then: recovery has found them.

        Returns: False: this store cannot serve the epoch.
        Raises:
            StoreError: a file cannot be read or written.
        """
        block, marks, epoch = self.memory.block, self.memory.marks, self.role.epoch
        identity = open_identity(opened, is_sync_flush=is_sync_flush)
        if opened.report.kind is not RecoveryKind.TRUSTED:  # the log may be shorter
            block.cut(opened.control.published_phy_offset)
        block.set_own((self.name, identity.incarnation))
        self.memory.slaves.clear()
        if epoch >= 0:
            begun = open_epoch(opened, identity, epoch)
            if begun is None:
                return False
        block.count_epochs_change()
        marks.tree_fault, marks.supervisor_turned_s = "its workers are being started", time.monotonic()
        marks.is_open, marks.manager_moved_s = True, 0.0
        block.opened_epoch = epoch
        return True

    def watch(self, specs: Sequence[WorkerSpec]) -> Callable[[Sequence[str]], None]:
        """Return a function for each turn of the supervisor: it tells the coordinator which worker does not serve."""
        clock_s, marks = time.monotonic, self.memory.marks

        def turned(absent: Sequence[str]) -> None:
            now_s = clock_s()
            faults = (fault_of(spec, absent, now_s, marks.manager_moved_s) for spec in specs)
            marks.tree_fault = next(filter(None, faults), "")
            marks.supervisor_turned_s = now_s

        return turned


def fault_of(spec: WorkerSpec, absent: Sequence[str], now_s: float, manager_moved_s: float = 0.0) -> str:
    """Return the reason why this worker does not serve; empty: it does, or it will soon.

    Args:
        absent: names of workers that do not run.
        manager_moved_s: when a manager that is being started has last read a piece of the log. As long as it goes on,
            another member would not be faster: it would have to read the same (broker/topics_of_log.py).
    """
    if spec.starts_on is not None and not spec.block.is_ready:
        return ""  # it is started when it is needed; if it cannot be, the others serve
    if spec.name in absent:
        return f"worker {spec.name} does not run"
    limit_s = spec.hang_timeout_s
    if not spec.block.is_ready:
        moves = spec.name == MANAGER and limit_s is not None and now_s - manager_moved_s <= limit_s * SILENT_RATIO
        return "" if moves else f"worker {spec.name} has not begun to serve"
    silent_s = now_s - spec.block.heartbeat_ns / 1e9
    return f"worker {spec.name} hangs" if limit_s is not None and silent_s > limit_s * SILENT_RATIO else ""
