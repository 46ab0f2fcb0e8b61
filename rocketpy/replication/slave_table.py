"""The slaves that are connected to this master, in shared memory (csrc/replication/slave_table.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rocketpy.failover.rules.in_sync import Ack
from rocketpy.native.core import ffi, lib, shared

REPLICATING = "replicating"
STATES = {
    lib.RP_SLAVE_CONNECTED: "connected",
    lib.RP_SLAVE_REPLICATING: REPLICATING,
    lib.RP_SLAVE_CATCHING_UP: "catching_up",
    lib.RP_SLAVE_STALLED: "stalled",
}
REASONS = {
    lib.RP_SLAVE_LEFT: "left",
    lib.RP_SLAVE_SILENT: "silent",
    lib.RP_SLAVE_LONGER: "longer",
    lib.RP_SLAVE_BEHIND: "behind",
    lib.RP_SLAVE_IMPLAUSIBLE: "implausible",
    lib.RP_SLAVE_FAILED: "failed",
    lib.RP_SLAVE_STRANGER: "stranger",
    lib.RP_SLAVE_TOO_MANY: "too_many",
    lib.RP_SLAVE_DIVERGED: "diverged",
    lib.RP_SLAVE_FENCED: "fenced",
    lib.RP_SLAVE_PLAIN: "plain",
    lib.RP_SLAVE_NO_TLS: "no_tls",
}


@attrs.frozen(kw_only=True)
class SlaveState:
    """One connection, as it was at one moment."""

    address: str  # host:port
    state: str  # connected (in the handshake), replicating, catching_up or stalled
    acked_phy_offset: int | None  # None: it does not replicate yet
    sent_bytes: int  # of the log, on this connection
    behind_ns: int  # since its last progress, while bytes wait for it; 0: it has everything

    def lag_bytes(self, end: int) -> int | None:
        """Return the lag behind a log that ends at `end`; None: it does not replicate yet."""
        return None if self.acked_phy_offset is None else max(0, end - self.acked_phy_offset)


class SlaveTable:
    """Created before the first fork. The replicator writes, through `pointer`; all other processes read."""

    def __init__(self) -> None:
        self.pointer = shared("rp_slave_table", "the table of slaves")

    def clear(self) -> None:
        """Remove all rows, before workers are forked: they would find the slaves of earlier workers in it."""
        lib.rp_slave_table_clear(self.pointer)

    def slaves(self, now_ns: int) -> list[SlaveState]:
        """All connections. `now_ns`: CLOCK_MONOTONIC."""
        return [
            SlaveState(
                address=ffi.string(row.address).decode(errors="replace"),
                state=STATES[state],
                acked_phy_offset=None if state == lib.RP_SLAVE_CONNECTED else int(row.acked_phy_offset),
                sent_bytes=int(row.sent_bytes),
                behind_ns=max(0, now_ns - behind_since_ns) if (behind_since_ns := int(row.behind_since_ns)) else 0,
            )
            for row in self.pointer.rows
            if (state := int(row.state)) in STATES
        ]

    def acknowledged(self) -> dict[str, Ack]:
        """Return what each member of the group has acknowledged, on its newest connection that brought any."""
        rows = [found for row in self.pointer.rows if (found := self._member(row)) is not None]
        return {member: ack for _, member, ack in sorted(rows, key=lambda found: found[0])}

    def _member(self, row: Any) -> tuple[int, str, Ack] | None:
        """The connection's number, the member and what it has; None: it has acknowledged nothing, or goes just now."""
        opened = int(row.opened)
        if row.state in (lib.RP_SLAVE_FREE, lib.RP_SLAVE_CONNECTED) or row.epoch < 0 or not opened:
            return None
        member = ffi.string(row.store.member).decode("utf-8", "replace")
        incarnation = ffi.string(row.store.incarnation).decode("utf-8", "replace")
        ack = Ack(incarnation, int(row.epoch), int(row.acked_phy_offset))
        return (opened, member, ack) if member and int(row.opened) == opened else None

    @property
    def needed_phy_offset(self) -> int | None:
        """The first position of the log that a connected slave still needs; None: there is no slave."""
        needed = int(self.pointer.needed)
        return needed - 1 if needed else None

    @property
    def sent_bytes(self) -> int:
        """The bytes of the log that were sent to all slaves since the start."""
        return int(self.pointer.sent_bytes)

    @property
    def opened(self) -> int:
        """Number of connections since the start."""
        return int(self.pointer.opened)

    def closed(self) -> Mapping[str, int]:
        """Number of connections closed since the start, by reason."""
        return {name: int(self.pointer.closed[reason]) for reason, name in REASONS.items()}

    def take(self, address: str) -> int | None:
        """Replicator: take a row for a new connection; None: no row is free."""
        for number, row in enumerate(self.pointer.rows):
            if row.state == lib.RP_SLAVE_FREE:
                ffi.buffer(ffi.addressof(row))[:] = bytes(ffi.sizeof(row))
                row.address = address.encode()[: lib.RP_SLAVE_ADDRESS_MAX - 1]
                row.epoch, row.opened = -1, self.pointer.opened + 1
                row.state = lib.RP_SLAVE_CONNECTED
                self.pointer.opened += 1
                return number
        return None

    def identify(self, row: int, store: Any) -> None:
        """Replicator, before a slave is served: which member's it is (an `rp_store_id *`)."""
        self.pointer.rows[row].store = store[0]

    def free(self, row: int) -> None:
        """Replicator: the connection of a row was closed before it was served."""
        self.pointer.rows[row].state = lib.RP_SLAVE_FREE

    def count_closed(self, reason: int) -> None:
        """Replicator: a connection was closed before it was served."""
        self.pointer.closed[reason] += 1
