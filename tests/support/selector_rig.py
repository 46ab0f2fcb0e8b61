"""A selector in this process, turned by hand: the test is acceptor, codec, processor and client at once.

`turn` is one call of rp_selector_run; the kernel delivers loopback bytes before `send` returns, and where a test has
to wait for more than that it turns until what it waits for is there (bounded, so that a failure is a failure).
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import ffi, lib
from rocketpy.reactor.handoff import handoff_pair
from rocketpy.reactor.worker_messages import REPLY
from tests.support import ring_messages
from tests.support.shared_memory import remove_ring, remove_worker, worker_block

READY_TURNS = 3  # what has arrived already needs no waiting
WAIT_NS = 2_000_000
WAITS_MAX = 5000


def frame(content: bytes, header: bytes = b"{}") -> bytes:
    """A whole frame in the JSON serialisation; the selector does not look into the header."""
    return struct.pack(">II", 4 + len(header) + len(content), len(header)) + header + content


def body_of(cut: bytes) -> bytes:
    """The body of a frame that has lost its length bytes."""
    return cut[4 + (int.from_bytes(cut[:4], "big") & 0xFFFFFF) :]


@attrs.frozen
class Record:
    kind: int
    connection: int
    listener: int
    peer: tuple[str, int]
    frame: bytes


class SelectorRig:
    def __init__(
        self,
        *,
        codecs: int = 1,
        capacity: int = 1 << 20,
        index: int = 3,
        epoch: int = 0,
        log: Any = ffi.NULL,
        tls_workers: int = 0,
        **config: int,
    ) -> None:
        self.worker = worker_block(0)
        self.worker.epoch = epoch
        self.others = [worker_block(1 + n) for n in range(codecs + 1)]
        self.codec_rings = [lib.rp_ring_create(capacity, self.worker, other) for other in self.others[:codecs]]
        self.reply_ring = lib.rp_ring_create(1 << 20, self.others[codecs], self.worker)
        self.codecs = [lib.rp_ring_reader_open(ring) for ring in self.codec_rings]
        self.replies = lib.rp_ring_writer_open(self.reply_ring)
        self.acceptor, self.handoff = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.clients: list[socket.socket] = []
        self.tls = [handoff_pair() for _ in range(tls_workers)]
        """By TLS worker: the selector's end, and the worker's."""
        tls = ffi.new("int32_t[]", [near.fileno() for near, _ in self.tls])
        self._keep = [ffi.new("rp_ring *[]", self.codec_rings), ffi.new("rp_ring *[]", [self.reply_ring]), tls, config]
        settings = {
            "worker": self.worker,
            "index": index,
            "handoff": self.handoff.fileno(),
            "reply_count": 1,
            "codec_count": codecs,
            "replies": self._keep[1],
            "codecs": self._keep[0],
            "log": log,
            "tls_count": tls_workers,
            "tls": tls,
            **config,
        }
        self.selector = lib.rp_selector_open(ffi.new("rp_selector_config *", settings))
        assert self.selector != ffi.NULL, os.strerror(ffi.errno)

    def close(self, *, keep_clients: bool = False) -> None:
        if self.selector == ffi.NULL:
            return
        lib.rp_selector_close(self.selector)
        self.selector = ffi.NULL
        for client in () if keep_clients else self.clients:
            client.close()
        for reader in self.codecs:
            lib.rp_ring_reader_close(reader)
        lib.rp_ring_writer_close(self.replies)
        for ring in (*self.codec_rings, self.reply_ring):
            remove_ring(ring)
        for held in (self.acceptor, self.handoff, self.listener, *(end for pair in self.tls for end in pair)):
            held.close()
        for worker in (self.worker, *self.others):
            remove_worker(worker)

    # -- the acceptor and the clients

    def connect(
        self, listener: int = 0, *, receive_buffer: int | None = None, source: str | None = None
    ) -> socket.socket:
        client = socket.socket()
        if source is not None:
            client.bind((source, 0))
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(self.listener.getsockname())
        accepted, _ = self.listener.accept()
        if receive_buffer is not None:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_buffer)
        rights = array.array("i", [accepted.fileno()])
        self.acceptor.sendmsg([bytes([listener])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        accepted.close()
        client.settimeout(10)
        self.clients.append(client)
        self.turn()
        return client

    # -- the selector

    def turn(self, timeout_ns: int = 0) -> int:
        return lib.rp_selector_run(self.selector, timeout_ns)

    def turn_until(self, done: Callable[[], Any]) -> Any:
        for waits in range(WAITS_MAX):
            if result := done():
                return result
            self.turn(0 if waits < READY_TURNS else WAIT_NS)
        raise AssertionError("it did not happen")

    @property
    def open_count(self) -> int:
        return lib.rp_selector_connection_count(self.selector)

    def counter(self, number: int) -> int:
        return self.worker.counters[number]

    # -- the codecs

    def read(self, codec: int = 0) -> Record | None:
        data, size, kind = ffi.new("uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
        if lib.rp_ring_read(self.codecs[codec], data, size, kind) != lib.RP_OK:
            return None
        origin = ffi.cast("rp_origin *", data[0])
        header = ffi.sizeof("rp_origin")
        peer = (socket.inet_ntoa(bytes(origin.peer.address[0:4])), origin.peer.port)
        content = bytes(ffi.buffer(data[0] + header, size[0] - header))
        record = Record(kind[0], origin.connection, origin.listener, peer, content)
        assert origin.received_ns > 0
        lib.rp_ring_release(self.codecs[codec])
        return record

    def records(self, codec: int = 0) -> list[Record]:
        found = []
        while (record := self.read(codec)) is not None:
            found.append(record)
        return found

    def next(self, codec: int = 0) -> Record:
        return self.turn_until(lambda: self.read(codec))

    # -- the processors

    def reply(self, connection: int, content: bytes, flags: int = 0) -> bool:
        return self.write(lib.RP_MSG_REPLY, REPLY.write(connection, flags, len(content)) + content)

    def pull_reply(self, connection: int, head: bytes, slices: list[tuple[int, int]]) -> bool:
        return self.write(lib.RP_MSG_PULL_REPLY, ring_messages.pull_reply(connection, head, slices))

    def write(self, kind: int, record: bytes) -> bool:
        source = ffi.from_buffer(record)
        span = ffi.new("rp_span[1]", [{"data": source, "size": len(record)}])
        taken = lib.rp_ring_write(self.replies, kind, span, 1) == lib.RP_OK
        lib.rp_ring_wake(self.replies)
        return taken

    def receive(self, client: socket.socket, size: int) -> bytes:
        """Exactly `size` bytes, turning the selector while they are not all there."""
        client.setblocking(False)
        pieces: list[bytes] = []
        missing = size

        def more() -> bool:
            nonlocal missing
            lib.rp_ring_pump(self.replies)
            lib.rp_ring_wake(self.replies)
            try:
                while missing:
                    piece = client.recv(missing)
                    assert piece, f"closed with {missing} bytes missing"
                    pieces.append(piece)
                    missing -= len(piece)
            except BlockingIOError:
                return False
            return True

        self.turn_until(more)
        return b"".join(pieces)

    def is_closed(self, client: socket.socket) -> bool:
        """Without having been sent anything."""
        client.setblocking(False)

        def seen() -> str:
            try:
                return "closed" if client.recv(1) == b"" else "data"
            except ConnectionResetError:
                return "closed"
            except BlockingIOError:
                return ""

        return self.turn_until(seen) == "closed"
