"""Reads the CommitLog: copies of single records, for the slow path.

A record is read only if all of it is between the log's beginning and the published position.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

from rocketpy.message.record import RECORD_HEAD_MAX, StoredRecord, decode_record, store_timestamp_of
from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock, fail

RECORD_SIZE = struct.Struct(">i")
MAPPINGS_MAX = 8


class CommitLog:
    """The view of one process; not thread-safe."""

    def __init__(self, directory: Path, control: ControlBlock, *, read_ahead: bool = True) -> None:
        """`read_ahead`: the kernel may read more of a file from the disk than is asked for."""
        self.control = control
        self.file_size = int(control.header.commitlog_file_size)
        self._view = lib.rp_log_view_open(os.fsencode(directory), self.file_size, MAPPINGS_MAX)
        if self._view == ffi.NULL:
            raise fail(f"cannot read {directory}")
        if not read_ahead:
            lib.rp_log_view_read_exactly(self._view)

    def close(self) -> None:
        if self._view != ffi.NULL:
            lib.rp_log_view_close(self._view)
            self._view = ffi.NULL

    def trim(self) -> None:
        """Unmap files that cleaning has deleted."""
        lib.rp_log_view_trim(self._view, self.control.min_phy_offset)

    def read(self, phy_offset: int, size: int) -> bytes | None:
        """`size` bytes at `phy_offset`; None if they are not complete in one file.

        Raises:
            StoreError: the file cannot be read now; the bytes may be valid.
        """
        if size <= 0 or phy_offset < self.control.min_phy_offset:
            return None
        if phy_offset + size > self.control.published_phy_offset:
            return None
        at = lib.rp_log_view_acquire(self._view, phy_offset, size)
        if at == ffi.NULL:
            if ffi.errno in (errno.ENOENT, errno.EINVAL):
                return None
            raise fail(f"cannot read the log at {phy_offset}")
        try:
            return bytes(ffi.buffer(at, size))
        finally:
            lib.rp_log_view_release(self._view, phy_offset)

    def record_image(self, phy_offset: int, size_max: int | None = None) -> bytes | None:
        """The record that starts at `phy_offset`, or None, also if it has more than `size_max` bytes.

        If the offset comes from a client, give a bound. It may point into a body, where any four bytes can be a size.
        """
        head = self.read(phy_offset, RECORD_SIZE.size)
        size = 0 if head is None else int(RECORD_SIZE.unpack(head)[0])
        return None if size_max is not None and size > size_max else self.read(phy_offset, size)

    def record(self, phy_offset: int) -> StoredRecord | None:
        """The same, decoded.

        Raises:
            RecordCorrupt: the bytes are not a valid record.
        """
        image = self.record_image(phy_offset)
        return None if image is None else decode_record(image, phy_offset)

    def store_timestamp_ms(self, phy_offset: int, size: int) -> int:
        """Store time of the record, or -1 if it cannot be read."""
        head = self.read(phy_offset, min(size, RECORD_HEAD_MAX))
        found = None if head is None else store_timestamp_of(head)
        return -1 if found is None else found
