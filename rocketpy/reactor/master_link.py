"""A slave's link to its master: shared memory of the slave's workers (csrc/ipc/master_link.h)."""

from __future__ import annotations

from rocketpy.native.core import ffi, lib, shared

ADDRESS_MAX = lib.RP_ADDRESS_TEXT_MAX - 1


def _padded(address: str) -> bytes:
    return bytes(address.encode()[:ADDRESS_MAX].ljust(ADDRESS_MAX + 1, b"\0"))


class MasterLink:
    """Created before the first fork. The manager sets the master's addresses; the replicator reads them, and says which
    master it follows."""

    def __init__(self) -> None:
        self.pointer = shared("rp_master_link", "replication")

    def set_master(self, master: str, ha: str) -> None:
        """Set the master's address for requests, and its HA address; empty: not known."""
        self._write("address_version", "master", _padded(master) + _padded(ha))

    def master(self) -> tuple[str, str] | None:
        """Both addresses; None: they are being changed."""
        texts = self._read("address_version", "master", 2)
        return None if texts is None else (texts[0], texts[1])

    def set_followed(self, master: str) -> None:
        """Set the address for requests of the master whose log is followed; empty: none is."""
        self._write("followed_version", "followed", _padded(master))

    @property
    def followed(self) -> str:
        """The address for requests of the master that is followed; empty: none is, or it is being changed."""
        texts = self._read("followed_version", "followed", 1)
        return "" if texts is None else texts[0]

    def _write(self, version: str, field: str, data: bytes) -> None:
        """Change the fields from `field` on, under their sequence lock."""
        link = self.pointer
        lib.rp_sequence_write(ffi.addressof(link, version), getattr(link, field), ffi.from_buffer(data), len(data))

    def _read(self, version: str, field: str, count: int) -> list[str] | None:
        """Return `count` addresses from `field` on; None: they are being changed."""
        link, texts = self.pointer, ffi.new("char[][320]", count)
        source = getattr(link, field)
        if not lib.rp_sequence_copy(ffi.addressof(link, version), texts, source, ffi.sizeof(texts)):
            return None
        return [ffi.string(text).decode("utf-8", "replace") for text in texts]

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
