"""One connection to the master that brings its log: read by Python up to the end of the slave's log, then by C."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.ring import Ring, WorkerBlock
from rocketpy.store.control_block import ControlBlock

from .errors import MasterUnusable
from .follower import Follower
from .handshake_messages import Extent
from .reference_start import REPORT

TURN_S = 1.0
NOTHING_REPORTED = (1 << 64) - 1
ENDS = {
    lib.RP_STREAM_END_CLOSED: "the master closed the connection",
    lib.RP_STREAM_END_FAILED: "the connection failed",
    lib.RP_STREAM_END_SILENT: "the master sent nothing for haHousekeepingInterval",
    lib.RP_STREAM_END_MISPLACED: "the master sent another position than the next one",
    lib.RP_STREAM_END_REFUSED: "a part of the log was refused",
    lib.RP_STREAM_END_DAMAGED: "bytes of the log came damaged",
    lib.RP_STREAM_END_UNKNOWN: "the master sent a frame that is not known here",
    lib.RP_STREAM_END_FENCED: "the broker is not master any more: it knows a newer epoch",
}


@attrs.frozen(kw_only=True)
class StreamSettings:
    """Bounds of a stream: fields of rp_slave_stream_config."""

    is_durable: bool  # acknowledge what is on the disk, not what is published
    report_interval_ns: int
    silence_max_ns: int

    @classmethod
    def of(cls, settings: BrokerSettings) -> StreamSettings:
        return cls(is_durable=settings.is_sync_flush, **settings.c_fields("rp_slave_stream_config"))


@attrs.frozen(eq=False)
class Intake:
    """The way of a master's log into this slave's: the shared memory through which it goes, and its bounds.

    `to_send` is the ring to the send worker, which writes the log.
    """

    block: WorkerBlock
    control: ControlBlock
    master_link: MasterLink
    to_send: Ring
    settings: StreamSettings

    @property
    def own(self) -> Extent:
        """The positions between which this slave has the log."""
        header = self.control.header
        return Extent(int(header.min_phy_offset), int(header.published_phy_offset))

    @property
    def file_size(self) -> int:
        """mappedFileSizeCommitLog, as the store was opened with."""
        return int(self.control.header.commitlog_file_size)

    @property
    def is_drained(self) -> bool:
        """Return True if all that was received is in the log."""
        return not self.to_send.depth_bytes

    @property
    def is_settled(self) -> bool:
        """Return True if all that was received is in the log, and with SYNC_FLUSH on the disk."""
        header = self.control.header
        is_behind = self.settings.is_durable and int(header.durable_phy_offset) < int(header.published_phy_offset)
        return self.is_drained and not is_behind

    @property
    def config(self) -> dict[str, Any]:
        """Fields of rp_slave_stream_config."""
        return {
            "worker": self.block.pointer,
            "control": self.control.header,
            "master_link": self.master_link.pointer,
            "to_send": self.to_send.pointer,
            **attrs.asdict(self.settings),
        }


@attrs.frozen(kw_only=True)
class Agreement:
    """The beginning of a stream, as both sides have agreed on it.

    Args:
        phy_offset: the first byte that goes into this slave's log.
        master_end: where the master's log ended.
        is_rocketpy: frames of rocketpy follow; otherwise those of the reference.
        body_left: bytes of a frame of the reference that was read in part.
        report_least: the first position that may be reported to a master of the reference.
        adds_zero: the master sends from position 1 on. Byte 0 is known: the high byte of a record's size.
    """

    phy_offset: int
    master_end: int
    is_rocketpy: bool
    body_left: int = 0
    report_least: int = 0
    adds_zero: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """Fields of rp_slave_stream_config."""
        return {
            "phy_offset": self.phy_offset,
            "is_rocketpy": self.is_rocketpy,
            "body_left": self.body_left,
            "report_least": self.report_least,
            "adds_zero": self.adds_zero,
        }


class ByteReader:
    """Reads exactly as many bytes as asked for, and shows meanwhile that the worker is alive."""

    def __init__(
        self, connection: socket.socket, silence_max_s: float, beat: Callable[[], None], turn_s: float = TURN_S
    ) -> None:
        """`beat` is called every `turn_s`, and may raise."""
        self._turn_s = turn_s
        self._connection = connection
        self._silence_max_s = silence_max_s
        self._beat = beat
        self._poller = select.poll()
        self._poller.register(connection, select.POLLIN)

    def read(self, size: int, *, is_short: bool = False) -> bytes:
        """Read `size` bytes. Each byte puts the end of the wait off, unless they are short: then all must come in time.

        Raises:
            MasterUnusable: closed, failed, silent, or too slow.
        """
        parts = []
        until_s = time.monotonic() + self._silence_max_s
        while size:
            self._beat()
            is_there = bool(self._poller.poll(self._turn_s * 1000))
            if (is_short or not is_there) and time.monotonic() >= until_s:
                raise MasterUnusable(f"{size} bytes did not come in time" if is_there else "it sent nothing in time")
            if not is_there:
                continue
            try:
                data = self._connection.recv(size)
            except OSError as exc:
                raise MasterUnusable(f"the connection failed: {exc}") from exc
            if not data:
                raise MasterUnusable("it closed the connection")
            if not is_short:
                until_s = time.monotonic() + self._silence_max_s
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


def send_report(connection: socket.socket, position: int) -> None:
    """Send a report of 4.9. Raises: MasterUnusable: the connection failed."""
    try:
        connection.sendall(REPORT.pack(position))
    except OSError as exc:
        raise MasterUnusable(f"the connection failed: {exc}") from exc


class LogStream:
    """The part of a stream that C reads. Always close it.

    Args:
        config: further fields of rp_slave_stream_config.
    """

    def __init__(
        self,
        connection: socket.socket,
        agreement: Agreement,
        intake: Intake,
        config: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        connection.setblocking(False)
        self.agreement = agreement
        self._kept = connection, intake, config  # C has pointers into them
        self._block = intake.block
        fields = {"socket": connection.fileno(), **intake.config, **agreement.config, **config}
        self._handle: Any = lib.rp_slave_stream_open(ffi.new("rp_slave_stream_config *", fields))
        if self._handle == ffi.NULL:
            raise MemoryError

    def run(self) -> bool:
        """Receive until the stream ends, or the worker is to stop. Returns whether the stream has ended."""
        while (event := self.turn(TURN_S)) == lib.RP_STREAM_IDLE or self._goes_on(event):
            pass
        return bool(event == lib.RP_STREAM_ENDED)

    def _goes_on(self, event: int) -> bool:
        """Return True if the stream only asks something, and goes on."""
        return False

    def turn(self, timeout_s: float) -> int:
        """Receive for so long. Returns why it has returned: RP_STREAM_IDLE and others of `rp_stream_event`."""
        event = int(lib.rp_slave_stream_run(self._handle, int(timeout_s * 1e9)))
        stream = self._handle
        position = stream.master_end if stream.config.is_rocketpy else stream.phy_offset + stream.body_left
        end = max(self.agreement.master_end, int(position))
        self._block.show(lib.RP_COUNT_MASTER_END, end)
        self._block.show(lib.RP_COUNT_REPORTED, 0 if stream.reported == NOTHING_REPORTED else stream.reported)
        return event

    @property
    def received_bytes(self) -> int:
        return int(self._handle.received)

    @property
    def is_refused(self) -> bool:
        """Return True if the send worker has refused the stream."""
        return bool(self._handle.end == lib.RP_STREAM_END_REFUSED)

    @property
    def reason(self) -> str:
        """Why it has ended."""
        reason = int(self._handle.end)
        has_errno = reason == lib.RP_STREAM_END_FAILED and ffi.errno != errno.EAGAIN
        cause = f": {os.strerror(ffi.errno)}" if has_errno else ""
        return ENDS[reason] + cause

    def close(self) -> None:
        lib.rp_slave_stream_close(self._handle)


class MemberStream(LogStream):
    """The same with automatic failover: the stream asks its follower for orders, and for epochs that begin."""

    def __init__(self, connection: socket.socket, agreement: Agreement, intake: Intake, follower: Follower) -> None:
        super().__init__(connection, agreement, intake, follower.stream_settings())
        self._follower = follower

    def _goes_on(self, event: int) -> bool:
        asks = event in (lib.RP_STREAM_ORDERS, lib.RP_STREAM_NEEDS_EPOCH)
        return asks and self._follower.go_on(self._handle, event)
