"""haTruncateDiverged: has a slave's log cut where it begins to differ from its master's, when it is opened next.

To find that place, the slave introduces itself as if its log ended up to CUT_BYTES_MAX earlier, and compares the bytes
that the master sends from there on with its own. None of these bytes goes to the log, and none is acknowledged.
"""

from __future__ import annotations

import logging
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import attrs

from rocketpy.failover.rules.epochs import CUT_BYTES_MAX
from rocketpy.native.core import lib
from rocketpy.store.files import DiskFiles
from rocketpy.store.recovery.diverged import NoRoomAside, check_room, request_cut

from .errors import Diverged, MasterUnusable
from .frames import DATA, FRAME
from .handshake_messages import Extent, Group
from .handshake_rules import ReadLog
from .slave_handshake import introduce
from .stream import ByteReader

logger = logging.getLogger(__name__)

SIZE = struct.Struct(">i")  # of a record, in its first bytes
STEP = 1 << 20  # bytes of the log that are read at once
BEATS_MAX = 100  # heartbeats while DATA is waited for


def find_cut(
    connection: socket.socket,
    reader: ByteReader,
    group: Group,
    broker_id: int,
    own: Extent,
    master: Extent,
    read_log: ReadLog,
) -> int:
    """The position at which the slave's log has to end, so that it can follow: the end of a record that both have.

    Args:
        connection: to the HA port of the master, a broker of rocketpy.
    Raises:
        Diverged: there is none, or more than CUT_BYTES_MAX would be cut. MasterUnusable: another try may tell.
    """
    start = max(own.begin, master.begin, own.end - CUT_BYTES_MAX) + 1
    if start >= min(own.end, master.end):
        raise Diverged(f"the part that both could have begins at {start - 1}: {_no_cut(own)}")
    try:
        welcome = introduce(connection, reader, group, broker_id, Extent(own.begin, start), master, read_log)
    except Diverged as exc:
        raise Diverged(f"both logs differ before {start}: {_no_cut(own)}") from exc
    equal = same_until(reader, Extent(start, min(own.end, welcome.master_end)), read_log)
    if equal == own.end:
        raise MasterUnusable("its log is this slave's, and goes on")
    cut = last_record_end(read_log, group.file_size, equal)
    if cut <= own.begin:
        raise Diverged(f"both logs have no record in common: {_no_cut(own)}")
    if own.end - cut > CUT_BYTES_MAX:
        raise Diverged(f"both logs are equal up to {cut}: {_no_cut(own)}")
    return cut


def _no_cut(own: Extent) -> str:
    return (
        f"haTruncateDiverged cuts at most {CUT_BYTES_MAX} bytes (this log ends at {own.end}) and leaves at least one "
        "record; keep the store of this slave aside and begin with an empty one"
    )


def same_until(reader: ByteReader, part: Extent, read_log: ReadLog) -> int:
    """Return the position at which the master's log first differs, or `part.end`. It comes in DATA from `part.begin`
    on.

    Raises:
        MasterUnusable: the master sends something else than its log from there on, or the slave's own cannot be read.
    """
    position, beats = part.begin, 0
    while position < part.end:
        size, kind = FRAME.unpack(reader.read(FRAME.size))
        if kind == lib.RP_HA_TYPE_HEARTBEAT and size == 1 + lib.RP_HA_SIZE_HEARTBEAT and beats < BEATS_MAX:
            reader.read(lib.RP_HA_SIZE_HEARTBEAT)
            beats += 1
            continue
        if kind != lib.RP_HA_TYPE_DATA or not 1 + DATA.size < size <= 1 + DATA.size + lib.RP_HA_DATA_MAX:
            raise MasterUnusable(f"it sent frame {kind} of {size} bytes instead of its log from {position} on")
        at, _, _, crc = DATA.unpack(reader.read(DATA.size))
        data = reader.read(size - 1 - DATA.size)
        if at != position or zlib.crc32(data) != crc:
            raise MasterUnusable(f"it sent position {at}, or damaged bytes, instead of its log from {position} on")
        theirs = data[: part.end - position]
        ours = _read(read_log, position, len(theirs))
        if ours != theirs:
            return position + next(i for i in range(len(ours)) if ours[i] != theirs[i])
        position += len(theirs)
    return part.end


def last_record_end(read_log: ReadLog, file_size: int, position: int) -> int:
    """The last position up to `position` at which a record of the slave's log ends: a file begins with a record.

    Raises:
        MasterUnusable: the slave's own log cannot be read.
    """
    at = position - position % file_size
    chunk, begin = b"", at
    while at + SIZE.size <= position:
        if at + SIZE.size > begin + len(chunk):
            begin, chunk = at, _read(read_log, at, min(STEP, position - at))
        (size,) = SIZE.unpack_from(chunk, at - begin)
        if size <= 0 or at + size > position:
            break
        at += size
    return at


def _read(read_log: ReadLog, position: int, size: int) -> bytes:
    data = read_log(position, size)
    if len(data) != size:
        raise MasterUnusable(f"this slave cannot read {size} bytes of its own log from {position} on now")
    return data


@attrs.frozen
class Truncation:
    """The way to have the log at `root` cut. `size_max`: bytes of all logs kept aside (haDivergedSizeMax)."""

    root: Path
    size_max: int

    def ask(self, why: Diverged, master: str, end: int, find: Callable[[], int]) -> None:
        """Ask for a cut; on return the request is on the disk, and the store has to be opened again.

        Args:
            why: what is wrong with the log, which ends at `end`.
            master: its address, for the log.
            find: where the log has to end (`find_cut`).
        Raises:
            Diverged: the log cannot be cut. MasterUnusable: as `find`. StoreError: the request cannot be written.
        """
        try:
            cut = find()
            check_room(DiskFiles(), self.root, cut, end, self.size_max)
        except (Diverged, NoRoomAside) as exc:
            raise Diverged(f"{why}; it is not cut: {exc}") from exc
        request_cut(self.root, cut)
        logger.warning(
            "the log ends at %d and differs from that of the master %s from %d on (%s): opening the store again, to "
            "cut %d bytes and keep them aside (haTruncateDiverged)",
            end,
            master,
            cut,
            why,
            end - cut,
        )
