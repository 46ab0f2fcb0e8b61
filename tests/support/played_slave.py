"""A slave that a test plays against a running master: it copies the log, and acknowledges it unless told not to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

HEADER = struct.Struct(">qi")


class PlayedSlave:
    """Speaks the stream of the reference, in a thread of its own; dials again at once when it is disconnected."""

    def __init__(self, port: int) -> None:
        self.log = bytearray()
        self.acknowledges = threading.Event()
        self.acknowledges.set()
        self._port, self._stop = port, threading.Event()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self.acknowledges.set()
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 30) as connection:
                self._connection = connection
                self._follow(connection)
            self._stop.wait(0.01)

    def _follow(self, connection: socket.socket) -> None:
        self._report(connection)
        while not self._stop.is_set():
            position, size = HEADER.unpack(receive(connection, HEADER.size))
            assert position == len(self.log), f"the frame begins at {position}, the log ends at {len(self.log)}"
            self.log += receive(connection, size)
            self.acknowledges.wait()
            if size:
                self._report(connection)

    def _report(self, connection: socket.socket) -> None:
        connection.sendall(struct.pack(">q", len(self.log)))


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the master has closed the connection")
        data += piece
    return data
