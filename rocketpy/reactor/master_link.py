"""A slave's link to its master: shared memory of the slave's workers (csrc/ipc/master_link.h)."""

from __future__ import annotations

import os
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib

ADDRESS_MAX = lib.RP_ADDRESS_TEXT_MAX - 1


class MasterLink:
    """Created before the first fork. The manager sets the master's addresses; the replicator reads them, and says which
    master it follows."""

    def __init__(self) -> None:
        self.pointer: Any = lib.rp_master_link_create()
        if self.pointer == ffi.NULL:
            raise StoreError(f"no shared memory for replication: {os.strerror(ffi.errno)}")

    def set_master(self, master: str, ha: str) -> None:
        """Set the master's address for requests, and its HA address; empty: not known."""
        lib.rp_master_link_set_master(self.pointer, master.encode()[:ADDRESS_MAX], ha.encode()[:ADDRESS_MAX])

    def master(self) -> tuple[str, str] | None:
        """Both addresses; None: they are being changed."""
        texts = ffi.new("char[][320]", 2)
        if not lib.rp_master_link_read_master(self.pointer, texts[0], texts[1]):
            return None
        return ffi.string(texts[0]).decode("utf-8", "replace"), ffi.string(texts[1]).decode("utf-8", "replace")

    def set_followed(self, master: str) -> None:
        """Set the address for requests of the master whose log is followed; empty: none is."""
        lib.rp_master_link_set_followed(self.pointer, master.encode()[:ADDRESS_MAX])

    @property
    def followed(self) -> str:
        """The address for requests of the master that is followed; empty: none is, or it is being changed."""
        text = ffi.new("char[320]")
        if not lib.rp_master_link_read_followed(self.pointer, text):
            return ""
        return str(ffi.string(text).decode("utf-8", "replace"))

    @property
    def stream(self) -> int:
        """The number of the last stream: each connection to the master begins another one."""
        return int(self.pointer.stream)

    @property
    def refused_position(self) -> int:
        """The published position at which the send worker refused the last stream."""
        return int(self.pointer.refused_phy_offset)

    @property
    def is_refused_for_a_record(self) -> bool:
        """Return True if the send worker refused the last stream for a bad record; else for a gap, which its restart
        leaves."""
        return bool(self.pointer.refused_reason == lib.RP_REFUSED_BAD_RECORD)
