"""The file `topics.position`: up to which log position a saved `topics.json` knows the topics of all messages.

Two slots of a page each are overwritten in turn, in place: that needs no space on a full disk, and a write that is torn
by a power failure takes one slot, the older one.

      0  slot of the writes with an even number
    4096 slot of the writes with an odd number
    8192 end

A slot speaks of the bytes of one `topics.json`, which it names by their size and CRC. It says nothing of any other
content: of a file that was saved since, put back from a backup, or written by a Java broker.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import attrs

from rocketpy.atomic_file import make_directory, sync_directory

MAGIC = b"RKTP"
SLOT = struct.Struct(
    ">4s"  # magic     RKTP
    "Q"  # number      counts the writes: of two whole slots the one with the greater number is the newer
    "Q"  # table_size  bytes of the topics.json that this slot speaks of
    "I"  # table_crc   CRC-32 of these bytes
    "q"  # position    of the log: the table knows all topics of the messages below
)
SLOT_CRC = struct.Struct(
    ">I"  # CRC-32 of the bytes before
)
SLOT_BYTES = 4096
FILE_BYTES = 2 * SLOT_BYTES
CHUNK_BYTES = 1 << 20
assert SLOT.size + SLOT_CRC.size == 36


@attrs.frozen
class TableImage:
    """Names the bytes of a `topics.json`; without arguments: there is no file."""

    size: int = 0
    crc: int = 0

    @classmethod
    def of(cls, pieces: Iterable[bytes]) -> TableImage:
        size = crc = 0
        for piece in pieces:
            size, crc = size + len(piece), zlib.crc32(piece, crc)
        return cls(size, crc)

    @classmethod
    def of_file(cls, path: Path) -> TableImage:
        """Return the image of a file. Raises: OSError."""
        with path.open("rb") as file:
            return cls.of(iter(lambda: file.read(CHUNK_BYTES), b""))


@attrs.frozen
class Slot:
    """One written image of the table."""

    number: int
    table: TableImage
    position: int

    def encode(self) -> bytes:
        data = SLOT.pack(MAGIC, self.number, self.table.size, self.table.crc, self.position)
        return data + SLOT_CRC.pack(zlib.crc32(data))

    @classmethod
    def decode(cls, data: bytes) -> Slot | None:
        """None: it was never written, or it is torn."""
        if len(data) < SLOT.size + SLOT_CRC.size or SLOT_CRC.unpack_from(data, SLOT.size)[0] != zlib.crc32(
            data[: SLOT.size]
        ):
            return None
        magic, number, size, crc, position = SLOT.unpack_from(data)
        return cls(number, TableImage(size, crc), position) if magic == MAGIC and position >= 0 else None


class PositionFile:
    """The file at `path`, which need not be there. Nothing is kept open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number: int | None = None  # of the last write; None: not read yet

    def read(self) -> Slot | None:
        """The newest whole slot; None: there is none. Raises: OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            data = b""
        slots = [Slot.decode(data[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
        newest = max((slot for slot in slots if slot is not None), key=lambda slot: slot.number, default=None)
        self._number = newest.number if newest is not None else 0
        return newest

    def position_of(self, table: TableImage) -> int | None:
        """The position up to which this content knows all topics; None: the file does not say. Raises: OSError."""
        newest = self.read()
        return newest.position if newest is not None and newest.table == table else None

    def write(self, table: TableImage, position: int, *, sync: bool) -> None:
        """Overwrite the older slot, or create the file. `sync`: on return it is on the disk.

        Raises:
            OSError: the newest slot is still there; the new one may be, too.
        """
        if self._number is None:
            self.read()
        slot = Slot((self._number or 0) + 1, table, position)
        at = slot.number % 2 * SLOT_BYTES
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
        except FileNotFoundError:
            return self._create(slot, at)
        try:
            if os.fstat(descriptor).st_size >= FILE_BYTES:
                os.pwrite(descriptor, slot.encode(), at)
                if sync:
                    os.fdatasync(descriptor)
                self._number = slot.number
                return
        finally:
            os.close(descriptor)
        self._create(slot, at)  # somebody has cut it short

    def _create(self, slot: Slot, at: int) -> None:
        """Write all pages, so that no later write needs space."""
        make_directory(self.path.parent)
        new = Path(f"{self.path}.tmp")
        try:
            with new.open("wb") as file:
                file.write((bytes(at) + slot.encode()).ljust(FILE_BYTES, b"\0"))
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        sync_directory(self.path.parent)
        self._number = slot.number
