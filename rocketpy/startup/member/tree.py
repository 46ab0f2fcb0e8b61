"""One process tree of a member: an ordinary broker in one role, as long as the guardian lets it be."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs

from rocketpy.reactor.member import MemberBlock
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.recovery.lifecycle import Distrust, OpenedStore
from rocketpy.store.recovery.positions import RecoveryKind

from .identity import distrust, open_epoch, open_identity
from .marks import TreeMarks
from .shown import MemberShown


@attrs.frozen
class MemberTree:
    """What the member's process tree has from its guardian.

    `slaves` and `block` are shared with the coordinator, and survive the tree.
    """

    name: str  # haMember
    block: MemberBlock
    slaves: SlaveTable
    marks: TreeMarks
    is_sync_group: bool
    epoch: int = -1  # the one to serve as master; -1: a slave
    cut_at: int | None = None  # where the log is to end
    shown: MemberShown = attrs.field(factory=MemberShown)

    def distrust_in(self, root: Path) -> Distrust:
        """For who opens the store at `root`."""
        return partial(distrust, root)

    def begin(self, opened: OpenedStore, *, is_sync_flush: bool) -> bool:
        """Name the store, and as a master open the epoch, before workers are forked.

        The next offsets of all queues are known by then: recovery has found them.

        Returns: False: this store cannot serve the epoch.
        Raises:
            StoreError: a file cannot be read or written.
        """
        identity = open_identity(opened, is_sync_flush=is_sync_flush)
        if opened.report.kind is not RecoveryKind.TRUSTED:  # the log may be shorter
            self.block.cut(opened.control.published_phy_offset)
        self.block.set_own((self.name, identity.incarnation))
        self.slaves.clear()
        if self.epoch >= 0:
            begun = open_epoch(opened, identity, self.epoch)
            if begun is None:
                return False
        self.block.count_epochs_change()
        self.marks.is_open = True
        self.block.opened_epoch = self.epoch
        return True
