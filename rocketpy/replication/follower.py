"""The part of automatic failover in a slave's replicator: the master to follow, the epochs of the log, the end of a
stream.

    orders -> HELLO with the epochs -> WELCOME: the same history? -> epoch file -> stream, epoch by epoch -> orders

The epoch file names an epoch, on the disk, before a byte of it is received. When the orders name no master to follow,
the replicator reports this once everything that it had received is in the log: a candidate acknowledges nothing from
then on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from rocketpy.failover.member_block import Following, MemberBlock, MemberOrders
from rocketpy.failover.rules.epochs import EpochList, Log
from rocketpy.native.core import ffi, lib

from .epoch_file import EpochFile
from .errors import CannotFollow, Diverged, MasterUnusable, NeedsCut, OtherOrders
from .frames import fenced
from .guide import MasterAddress
from .handshake_messages import Extent, Membership, Welcome
from .member_handshake_rules import check_tail, check_welcome, joined

ALL_WRITTEN = 2**64 - 1


@attrs.define(eq=False)
class Follower:
    """The guide of one member's replicator. It is the only one that writes the epoch file while it runs.

    Args:
        store: the worker (rp_worker *) that dispatches what is confirmed.
        control: the header of the control block.
    """

    block: MemberBlock
    file: EpochFile
    control: Any
    store: Any
    is_sync: bool

    turn_s: ClassVar[float] = 0.02  # between two looks at the orders
    backoff_max_s: ClassVar[float] = 0.5  # whom the master waits for leaves the in-sync set after 3 s
    halt_ends_without_master: ClassVar[bool] = True
    _orders: MemberOrders = attrs.field(init=False, factory=MemberOrders)
    _version: int = attrs.field(init=False, default=-1)
    _epochs: EpochList = attrs.field(init=False, factory=EpochList)  # of the master's log
    _written: EpochList = attrs.field(init=False, factory=EpochList)  # of this log, as in the file

    # --- orders -----------------------------------------------------------------------------------------------------

    def _look(self) -> Following | None:
        if self._version != self.block.version and (known := self.block.orders()) is not None:
            self._orders, self._version = known
        return self._orders.following

    def master(self, is_drained: Callable[[], bool]) -> MasterAddress | None:
        """Return the master to follow; None: there is none.

        Args:
            is_drained: True if all that was received is in the log.
        """
        following = self._look()
        if following is not None:
            self.block.pointer.stream_stopped = 0
            return MasterAddress(following.address, following.ha_address)
        if self._version >= 0 and is_drained():
            self.block.pointer.stream_stopped = self._version
        return None

    @property
    def has_news(self) -> bool:
        """Return True if there are orders that were not read."""
        return self._version != self.block.version

    def check(self) -> None:
        """Look for new orders while a handshake is under way.

        Raises:
            OtherOrders: the handshake has no purpose any more.
        """
        before = self._orders.following
        if self._look() != before:
            raise OtherOrders("the coordinator has named another master")

    # --- the handshake ----------------------------------------------------------------------------------------------

    def membership(self) -> Membership:
        """Return this member's name, its incarnation, and the epochs of its log, for HELLO.

        Raises:
            MasterUnusable: this store has no name yet.
            EpochsInvalid, StoreError: the epoch file cannot be used.
        """
        own = self.block.own
        if own is None:
            raise MasterUnusable("this member's store has no incarnation yet")
        self._written = self.file.read()
        return Membership(own.member, own.incarnation, self._written)

    def join(self, welcome: Welcome, own: Extent, crc_of: Callable[[int, int], int]) -> None:
        """Agree on where the stream begins; on return the epochs of this log are on the disk.

        Args:
            crc_of: CRC-32 of (position, size) of this log.
        Raises:
            NeedsCut: this log has to be cut; the member block says so. Diverged: that would not help.
            MasterUnusable: this master cannot be followed now.
        """
        log = Log(epochs=self._written, end=own.end, confirmed=int(self.control.confirmed_phy_offset))
        known, unclean = self.known_epoch, self._orders.unclean_epoch
        try:
            epochs = check_welcome(welcome, log, own.begin, newest_known=known, is_sync=self.is_sync, unclean=unclean)
        except NeedsCut as exc:
            check_tail(welcome, own, crc_of)
            self.block.pointer.cut_phy_offset = exc.position
            raise
        check_tail(welcome, own, crc_of)
        self._epochs = welcome.epochs
        self.block.see_epoch(welcome.epochs.last)
        self._write(epochs)

    def is_final(self, why: CannotFollow) -> bool:
        """Return True if the logs have diverged. Other reasons end with an epoch, or with the master's settings."""
        return isinstance(why, Diverged)

    def halt(self) -> None:
        """Tell the coordinator that the logs have diverged."""
        self.block.set_diverged()

    @property
    def known_epoch(self) -> int:
        """The newest epoch that this member knows. A master that serves an older one is told."""
        following = self._orders.following
        named = -1 if following is None else following.epoch
        return max(self.block.newest_epoch_seen, self._written.last, named)

    def _write(self, epochs: EpochList) -> None:
        if epochs != self._written:
            self.file.write(epochs)
            self._written = epochs
            self.block.count_epochs_change()

    # --- the stream -------------------------------------------------------------------------------------------------

    def stream_settings(self) -> dict[str, Any]:
        """Fields of rp_slave_stream_config."""
        entries = [{"number": entry.number, "start": entry.start} for entry in self._epochs.entries]
        return {
            "member": self.block.pointer,
            "store": self.store,
            "orders_version": self._version,
            "epoch": self._epochs.last,
            "epochs": ffi.new("rp_epoch[]", entries),
            "epoch_count": len(entries),
            "epochs_from": self._unwritten(),
        }

    def _unwritten(self) -> int:
        """The start of the first epoch that is not in the file."""
        return min(
            (entry.start for entry in self._epochs.entries if entry.number > self._written.last), default=ALL_WRITTEN
        )

    def go_on(self, handle: Any, event: int) -> bool:
        """The stream asks for its orders, or for an epoch that begins. Returns whether it goes on."""
        if event == lib.RP_STREAM_NEEDS_EPOCH:
            self._write(joined(self._written, self._epochs, int(handle.needs_epochs_to)))
            handle.config.epochs_from = self._unwritten()
            handle.needs_epochs_to = 0
            return True
        before = self._orders.following
        if self._look() == before and self._version >= 0:
            handle.config.orders_version = self._version
            return True
        if self.known_epoch > self._epochs.last and handle.report_sent == handle.report_size:
            with contextlib.suppress(OSError):  # the last frame to this master, if the socket takes it
                os.write(handle.config.socket, fenced(self.known_epoch))
        return False
