"""The member block: shared memory with the coordinator's orders and the broker's reports (csrc/ipc/member.h)."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from rocketpy.native.core import ffi, lib, shared

NAME_BYTES_MAX = int(lib.RP_MEMBER_NAME_MAX) - 1
INCARNATION_BYTES_MAX = int(lib.RP_INCARNATION_MAX) - 1
ADDRESS_BYTES_MAX = int(lib.RP_MEMBER_ADDRESS_MAX) - 1
COUNTING_MAX = int(lib.RP_COUNTING_MAX)  # stores: of a member perhaps the old and the new one
NO_DEADLINE_NS = 2**64 - 1
NO_CUT = 2**64 - 1


class StoreId(NamedTuple):
    """A member's store (`rp_store_id`). It equals the pair that rules/in_sync.py calls so."""

    member: str
    incarnation: str


@attrs.frozen(kw_only=True)
class Following:
    """The master whose stream is to be taken."""

    member: str
    epoch: int  # as etcd names it
    ha_address: str  # host:port
    address: str  # host:port, for requests


@attrs.frozen(kw_only=True)
class MemberOrders:
    """Orders to the process tree, whole each time. The default: a slave that follows nobody."""

    is_master: bool = False  # the role of the process tree that is wanted
    epoch: int = -1  # the one to serve; -1: none
    takes_sends: bool = False
    keeps_sends: bool = False  # messages that are not taken are kept for a while, or passed on to the master
    pauses_intake: bool = False  # a slave that is about to be the master reads no requests
    answers_waits: bool = False
    sends_stream: bool = False
    is_broker_0: bool = False
    following: Following | None = None
    counting: frozenset[tuple[str, str]] = frozenset()  # StoreId
    unclean_epoch: int = 0  # the last one of an unclean election; 0: there was none


class MemberBlock:
    """Created before the first fork, by the process that outlives all others."""

    def __init__(self) -> None:
        self.pointer = block = shared("rp_member", "automatic failover")
        block.orders.epoch = block.orders.following_epoch = block.newest_epoch_seen = -1
        self.begin_tree()

    @property
    def intake_paused(self) -> Any:
        """A pointer to the number that is not 0 while selectors read no requests."""
        return ffi.addressof(self.pointer, "intake_paused")

    # --- coordinator ------------------------------------------------------------------------------------------------

    def give(self, orders: MemberOrders) -> int:
        """Make orders hold, for every position that is confirmed from now on. Nothing changes if they hold already.

        Returns: their version.
        Raises:
            ValueError: a name or address is too long, or too many members count.
        """
        return int(lib.rp_member_order(self.pointer, _encode(orders)))

    @property
    def deadline_ns(self) -> int:
        """CLOCK_BOOTTIME until which sends may be answered SUCCESS; NO_DEADLINE_NS: for ever; 0: never."""
        return int(self.pointer.deadline_ns)

    @deadline_ns.setter
    def deadline_ns(self, until_ns: int) -> None:
        lib.rp_member_set_deadline(self.pointer, until_ns)

    def confirmed(self, confirmed: int) -> int:
        """Return the highest position that earlier orders may have confirmed: read it after `give`, before the next
        transaction.

        Args:
            confirmed: of the control block.
        """
        return int(lib.rp_member_confirmed(self.pointer, confirmed))

    # --- all processes ----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version of the orders; odd while they are being changed."""
        return int(self.pointer.version)

    def orders(self) -> tuple[MemberOrders, int] | None:
        """Return the orders and their version; None: they are being changed, keep those you have."""
        found = ffi.new("rp_member_orders *")
        version = self._copy("version", "orders", found)
        return (_decode(found), version - 1) if version else None

    @property
    def own(self) -> StoreId | None:
        """This member's store; None: it is being changed, or not known yet."""
        found = ffi.new("rp_store_id *")
        is_whole = self._copy("own_version", "own", found)
        own = StoreId(_text(found.member), _text(found.incarnation))
        return own if is_whole and own.member else None

    def _copy(self, version: str, field: str, target: Any) -> int:
        """Copy a field, and return its version plus 1; 0: it is being changed."""
        lock, source = ffi.addressof(self.pointer, version), ffi.addressof(self.pointer, field)
        return int(lib.rp_sequence_copy(lock, target, source, ffi.sizeof(target[0])))

    # --- who opens the store ----------------------------------------------------------------------------------------

    def begin_tree(self) -> None:
        """Forget what the workers of the last process tree have reported; before new ones are forked."""
        block = self.pointer
        block.opened_epoch = -1
        block.sends_refused = block.stream_stopped = block.diverged = block.intake_paused = block.append_fault = 0
        block.cut_phy_offset = NO_CUT

    def cut(self, end: int) -> None:
        """Note that the log was cut at `end`: nothing after it was confirmed here. Before workers are forked."""
        block = self.pointer
        block.proposed_phy_offset = min(block.proposed_phy_offset, end)
        block.alone_phy_offset = min(block.alone_phy_offset, end)

    def set_own(self, own: tuple[str, str]) -> None:
        """Name the store that is open, before workers are forked. Raises: ValueError: a text is too long."""
        encoded = ffi.new("rp_store_id *")
        fill_store(encoded, own)
        lock, target = ffi.addressof(self.pointer, "own_version"), ffi.addressof(self.pointer, "own")
        lib.rp_sequence_write(lock, target, encoded, ffi.sizeof(encoded[0]))

    @property
    def opened_epoch(self) -> int:
        """The epoch that is in the epoch file, on the disk, with the next offsets of all queues known; -1: none."""
        return int(self.pointer.opened_epoch)

    @opened_epoch.setter
    def opened_epoch(self, epoch: int) -> None:
        self.pointer.opened_epoch = epoch

    # --- reports of workers -----------------------------------------------------------------------------------------

    @property
    def sends_refused(self) -> int:
        """Version of the orders under which sends are refused, with all that was taken before in the log; 0: none."""
        return int(self.pointer.sends_refused)

    @property
    def stream_stopped(self) -> int:
        """Version of the orders under which no stream is taken, with all that had come in the log or dropped; 0."""
        return int(self.pointer.stream_stopped)

    @property
    def newest_epoch_seen(self) -> int:
        """The newest epoch that a peer has named; -1: none."""
        return int(self.pointer.newest_epoch_seen)

    def see_epoch(self, epoch: int) -> None:
        lib.rp_member_see_epoch(self.pointer, epoch)

    def refute_epoch(self, seen: int, newest: int) -> None:
        """Forget that a peer has named epoch `seen`, because the newest one that there is is `newest`."""
        lib.rp_member_refute_epoch(self.pointer, seen, newest)

    @property
    def is_diverged(self) -> bool:
        """Return True if this log and the master's do not fit."""
        return bool(self.pointer.diverged)

    def set_diverged(self) -> None:
        """Report that this log and the master's do not fit; the next process tree begins anew."""
        self.pointer.diverged = 1

    @property
    def cut_phy_offset(self) -> int | None:
        """The position at which the log must end before it can follow the master; None: no cut is needed."""
        position = int(self.pointer.cut_phy_offset)
        return None if position == NO_CUT else position

    def append_fault(self, end: int) -> int:
        """Return the rp_status of the last append to the log that ends at `end`, if it failed; 0: it has not."""
        return int(lib.rp_member_append_fault(self.pointer, end))

    @property
    def epochs_version(self) -> int:
        """The number of writes of the epoch file."""
        return int(self.pointer.epochs_version)

    def count_epochs_change(self) -> None:
        """Count one more write of the epoch file."""
        self.pointer.epochs_version += 1


def _put(target: Any, text: str, bytes_max: int) -> None:
    encoded = text.encode()
    if len(encoded) > bytes_max or b"\0" in encoded:
        raise ValueError(f"{text!r} has {len(encoded)} bytes, at most {bytes_max}, and no zero byte")
    ffi.memmove(target, encoded + b"\0", len(encoded) + 1)


def fill_store(target: Any, store: tuple[str, str]) -> None:
    """Write a store's name to an `rp_store_id *`. Raises: ValueError: a text is too long."""
    _put(target.member, store[0], NAME_BYTES_MAX)
    _put(target.incarnation, store[1], INCARNATION_BYTES_MAX)


def _text(field: Any) -> str:
    return str(ffi.string(field).decode("utf-8", "replace"))


def _encode(orders: MemberOrders) -> Any:
    if len(orders.counting) > COUNTING_MAX:
        raise ValueError(f"{len(orders.counting)} stores have to acknowledge, at most {COUNTING_MAX}")
    encoded = ffi.new("rp_member_orders *")
    encoded.role = lib.RP_ROLE_MASTER if orders.is_master else lib.RP_ROLE_SLAVE
    encoded.epoch, encoded.following_epoch, encoded.unclean_epoch = orders.epoch, -1, orders.unclean_epoch
    encoded.takes_sends, encoded.answers_waits = orders.takes_sends, orders.answers_waits
    encoded.keeps_sends, encoded.pauses_intake = orders.keeps_sends, orders.pauses_intake
    encoded.sends_stream, encoded.is_broker_0 = orders.sends_stream, orders.is_broker_0
    if orders.following is not None:
        encoded.following_epoch = orders.following.epoch
        _put(encoded.following, orders.following.member, NAME_BYTES_MAX)
        _put(encoded.following_ha, orders.following.ha_address, ADDRESS_BYTES_MAX)
        _put(encoded.following_address, orders.following.address, ADDRESS_BYTES_MAX)
    encoded.counting_count = len(orders.counting)
    for place, store in zip(encoded.counting, sorted(orders.counting), strict=False):
        fill_store(place, store)
    return encoded


def _decode(found: Any) -> MemberOrders:
    following = Following(
        member=_text(found.following),
        epoch=int(found.following_epoch),
        ha_address=_text(found.following_ha),
        address=_text(found.following_address),
    )
    stores = found.counting[0 : found.counting_count]
    return MemberOrders(
        is_master=found.role == lib.RP_ROLE_MASTER,
        epoch=int(found.epoch),
        takes_sends=bool(found.takes_sends),
        keeps_sends=bool(found.keeps_sends),
        pauses_intake=bool(found.pauses_intake),
        answers_waits=bool(found.answers_waits),
        sends_stream=bool(found.sends_stream),
        is_broker_0=bool(found.is_broker_0),
        following=following if following.member else None,
        unclean_epoch=int(found.unclean_epoch),
        counting=frozenset(StoreId(_text(store.member), _text(store.incarnation)) for store in stores),
    )
