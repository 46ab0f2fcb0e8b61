"""The replicator of a master in one thread: a real log, real sockets, and a clock that the test moves."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import random
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rocketpy.native.core import ffi, lib
from rocketpy.networks import parse_networks
from rocketpy.reactor.ring import STOP_LEAVE, WorkerBlock
from rocketpy.reactor.topology import Topology
from rocketpy.replication.handshake_messages import Group
from rocketpy.replication.master import Master, MasterMember
from rocketpy.replication.master_handshakes import HaPort
from rocketpy.replication.slave_table import SlaveState, SlaveTable
from rocketpy.store.control_block import ControlBlock
from tests.support.waiting import wait_until

FILE_SIZE = 65_536
HEADER = struct.Struct(">qi")


def report(position: int) -> bytes:
    return struct.pack(">q", position)


class MasterRig:
    """`options`: fields of rp_master_config."""

    def __init__(
        self,
        root: Path,
        *,
        addresses: str = "127.0.0.0/8",
        secret: bytes = b"",
        member: MasterMember | None = None,
        tls_workers: Sequence[socket.socket] = (),
        is_tls_required: bool = False,
        **options: Any,
    ) -> None:
        self.member = member
        self.now_ns = 1_000_000_000_000
        self.directory = root / "commitlog"
        self.directory.mkdir(parents=True)
        self.control = ControlBlock(root / "control", FILE_SIZE)
        self.worker, self.send = WorkerBlock("replicator", 0), WorkerBlock("send", 1)
        self.table = SlaveTable()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.log = b""
        self._slaves: list[socket.socket] = []
        self._clock = ffi.callback("uint64_t(void)", lambda: self.now_ns)
        self._directory = ffi.new("char[]", os.fsencode(self.directory))
        self.config = ffi.new(
            "rp_master_config *",
            {
                "worker": self.worker.pointer,
                "send": self.send.pointer,
                "block": self.control.block,
                "table": self.table.pointer,
                "commitlog_directory": self._directory,
                "slaves_max": 16,
                "frame_max": 32_768,
                "heartbeat_ns": 5_000_000_000,
                "housekeeping_ns": 20_000_000_000,
                "stall_ns": 3_000_000_000,
                "clock_ns": self._clock,
            }
            | options,
        )
        self._port = HaPort(self.listener, parse_networks(addresses), tls_workers, is_tls_required)
        self.group = Group(cluster="DefaultCluster", broker_name="broker-a", file_size=FILE_SIZE, secret=secret)
        self.master = self.open()

    def open(self) -> Master:
        return Master(self.config, self._port, self.control.header, self.table, self.group, member=self.member)

    def close(self) -> None:
        self.master.close()
        for slave in (*self._slaves, self.listener):
            slave.close()
        for block in (self.worker, self.send):
            os.close(block.doorbell)
        self.control.close()

    def append(self, size: int, *, publish: bool = True) -> bytes:
        """Random bytes at the end of the log, whose files begin at multiples of FILE_SIZE."""
        data = random.Random(len(self.log)).randbytes(size)
        self.log += data
        begin = int(self.control.min_phy_offset)
        for start in range(begin - begin % FILE_SIZE, len(self.log), FILE_SIZE):
            path = self.directory / f"{start:020d}"
            path.write_bytes(self.log[start : start + FILE_SIZE].ljust(FILE_SIZE, b"\0"))
        if publish:
            self.control.header.published_phy_offset = len(self.log)
        return data

    def turn(self, times: int = 3) -> bool:
        """Do all that can be done now. Returns False once stopped."""
        return all(self.master.turn(0) for _ in range(times))

    def pass_time(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        self.turn()

    def connect(
        self, position: int | None = None, *, buffer_bytes: int | None = None, host: str = "127.0.0.1"
    ) -> socket.socket:
        """A slave on `host` that the master has accepted or refused, with its first report."""
        slave = socket.socket()
        slave.bind((host, 0))
        if buffer_bytes:
            slave.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._slaves.append(slave)
        before = self._seen()
        slave.connect(self.listener.getsockname())
        slave.settimeout(0)
        self.turn_until(lambda: self._seen() > before)
        if position is not None:
            self.say(slave, position)
        return slave

    def _seen(self) -> int:
        closed = self.table.closed()
        return int(self.table.pointer.opened) + closed["stranger"] + closed["too_many"]

    def say(self, slave: socket.socket, *positions: int) -> None:
        """Report these positions; returns when the master has read them."""
        self.say_bytes(slave, b"".join(map(report, positions)))

    def say_bytes(self, slave: socket.socket, data: bytes) -> None:
        slave.sendall(data)
        wait_until(lambda: unsent(slave) == 0, "the kernel to deliver a report")
        self.turn()

    def turn_until(self, holds: Callable[[], bool]) -> None:
        def look() -> bool:
            self.turn(1)
            return holds()

        wait_until(look, "the master")

    def received(self, slave: socket.socket, log_size: int = 0) -> bytes:
        """What has arrived at the slave, once that is at least so many bytes of the log; frames are whole."""
        data = b""

        def read() -> bool:
            nonlocal data
            with contextlib.suppress(BlockingIOError):
                data += slave.recv(1 << 20)
            return len(log_of(data)) >= log_size

        self.turn_until(read)
        return data

    def is_open(self, slave: socket.socket) -> bool:
        """Whether the connection is open as far as can be seen now; what was sent before is dropped."""
        self.turn()
        try:
            while slave.recv(1 << 20):
                pass
        except BlockingIOError:
            return True
        except ConnectionResetError:
            pass
        return False

    def wait_until_closed(self, slave: socket.socket) -> None:
        wait_until(lambda: not self.is_open(slave), "the master to close a connection")

    def stop(self) -> None:
        self.worker.order(STOP_LEAVE)

    def slaves(self) -> list[SlaveState]:
        return self.table.slaves(self.now_ns)

    @property
    def replicated(self) -> int:
        return int(self.control.header.replicated_phy_offset)

    def can_wait(self, end: int, fall_behind_max: int = 268_435_456) -> bool:
        return bool(lib.rp_slave_table_can_wait(self.table.pointer, end, fall_behind_max))


def unsent(connection: socket.socket) -> int:
    """Bytes that the other side's kernel has not acknowledged (SIOCOUTQ)."""
    value = array.array("i", [0])
    fcntl.ioctl(connection, termios.TIOCOUTQ, value)
    return value[0]


def log_of(data: bytes) -> bytes:
    """The bytes of the log in the whole frames of `data`."""
    log, at = [], 0
    while at + HEADER.size <= len(data):
        end = at + HEADER.size + HEADER.unpack_from(data, at)[1]
        if end > len(data):
            break
        log.append(data[at + HEADER.size : end])
        at = end
    return b"".join(log)


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """(position, bytes) of each frame of the stream of the reference."""
    found = []
    at = 0
    while at < len(data):
        position, size = HEADER.unpack_from(data, at)
        at += HEADER.size
        assert at + size <= len(data), "a frame is cut off"
        found.append((position, data[at : at + size]))
        at += size
    return found


def close_topology(topology: Topology) -> None:
    """Give the descriptors back."""
    for handoff in topology.handoffs.values():
        for end in handoff:
            end.close()
    for block in topology.blocks.values():
        os.close(block.doorbell)
