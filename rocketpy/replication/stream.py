"""One connection to the master that brings its log: read by Python up to the end of the slave's log, then by C."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import attrs

from rocketpy.native.core import ffi, lib
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.ring import Ring, WorkerBlock
from rocketpy.store.control_block import ControlBlock

from .errors import MasterUnusable
from .follower import Follower
from .start import REPORT, Start

TURN_S = 1.0
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
    """Bounds of a stream."""

    is_durable: bool  # acknowledge what is on the disk, not what is published
    report_interval_ns: int
    silence_max_ns: int


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
        master_end: where the master's log ended at its start.
        is_rocketpy: frames of rocketpy; otherwise those of the reference.
        follower: with automatic failover.
    """

    def __init__(
        self,
        connection: socket.socket,
        start: Start,
        body_left: int,
        *,
        master_end: int = 0,
        is_rocketpy: bool = False,
        block: WorkerBlock,
        control: ControlBlock,
        master_link: MasterLink,
        to_send: Ring,
        settings: StreamSettings,
        follower: Follower | None = None,
    ) -> None:
        connection.setblocking(False)
        of_member = {} if follower is None else follower.stream_settings()
        self._follower = follower
        self._kept = connection, block, control, master_link, to_send, of_member
        self._block = block
        self._master_end = master_end
        self._handle: Any = lib.rp_slave_stream_open(
            ffi.new(
                "rp_slave_stream_config *",
                {
                    "worker": block.pointer,
                    "control": control.header,
                    "master_link": master_link.pointer,
                    "to_send": to_send.pointer,
                    "socket": connection.fileno(),
                    "is_rocketpy": is_rocketpy,
                    "is_durable": settings.is_durable,
                    "phy_offset": start.end,
                    "body_left": body_left,
                    "report_least": 0 if is_rocketpy else start.report,
                    "adds_zero": start.adds_zero,
                    "report_interval_ns": settings.report_interval_ns,
                    "silence_max_ns": settings.silence_max_ns,
                }
                | of_member,
            )
        )
        if self._handle == ffi.NULL:
            raise MemoryError

    def run(self) -> bool:
        """Receive until the stream ends, or the worker is to stop. Returns whether the stream has ended."""
        while (event := self.turn(TURN_S)) == lib.RP_STREAM_IDLE or self._goes_on(event):
            pass
        return bool(event == lib.RP_STREAM_ENDED)

    def _goes_on(self, event: int) -> bool:
        """Return True if the stream only asks the member something, and goes on."""
        asks = event in (lib.RP_STREAM_ORDERS, lib.RP_STREAM_NEEDS_EPOCH)
        return asks and self._follower is not None and self._follower.go_on(self._handle, event)

    def turn(self, timeout_s: float) -> int:
        """Receive for so long. Returns why it has returned: RP_STREAM_IDLE and others of `rp_stream_event`."""
        event = int(lib.rp_slave_stream_run(self._handle, int(timeout_s * 1e9)))
        end = max(self._master_end, lib.rp_slave_stream_position(self._handle))
        self._block.show(lib.RP_COUNT_MASTER_END, end)
        self._block.show(lib.RP_COUNT_REPORTED, lib.rp_slave_stream_reported(self._handle))
        return event

    @property
    def received_bytes(self) -> int:
        return int(lib.rp_slave_stream_received(self._handle))

    @property
    def is_refused(self) -> bool:
        """Return True if the send worker has refused the stream."""
        return bool(lib.rp_slave_stream_end(self._handle) == lib.RP_STREAM_END_REFUSED)

    @property
    def reason(self) -> str:
        """Why it has ended."""
        reason = int(lib.rp_slave_stream_end(self._handle))
        has_errno = reason == lib.RP_STREAM_END_FAILED and ffi.errno != errno.EAGAIN
        cause = f": {os.strerror(ffi.errno)}" if has_errno else ""
        return ENDS[reason] + cause

    def close(self) -> None:
        lib.rp_slave_stream_close(self._handle)
