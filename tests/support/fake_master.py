"""A master of the reference as its slave sees it: a port for requests, and one that sends the log."""

from __future__ import annotations

import json
import socket
import threading
from types import TracebackType
from typing import Self

from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FrameCutter
from rocketpy.replication.reference_start import HEADER, REPORT

PORT_TRIES = 50


class FakeMaster:
    """Answers 26 and 28 in a thread; the test plays the other port, or has `log` served from what a slave reports."""

    def __init__(self, file_size: int, begin: int = 0, log: bytes = b"") -> None:
        self.file_size, self.begin, self.log = file_size, begin, log
        self.code = 0  # of answers
        self.remark = "refused"  # of answers with a code
        self.numbers: tuple[str, str, str] | None = None  # size of files, begin, end: instead of the true ones
        self.version: bytes | None = None  # body of the answer to GET_REPLICATION_VERSION; None: not supported
        self.more = ""  # lines of its configuration
        self.later: bytes | None = None  # the log from the second connection on
        self.reports: list[int] = []
        self.requests: list[RemotingCommand] = []
        self.connections = 0
        self._stop = threading.Event()
        self._requests, self._ha = self._listeners()
        self._threads = [threading.Thread(target=self._serve_requests), threading.Thread(target=self._serve_log)]

    @staticmethod
    def _listener(port: int = 0) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        listener.settimeout(0.05)
        return listener

    def _listeners(self) -> tuple[socket.socket, socket.socket]:
        """For requests and for the log: the second port is the one behind the first, as the reference has it."""
        for _ in range(PORT_TRIES):
            requests = self._listener()
            try:
                return requests, self._listener(requests.getsockname()[1] + 1)
            except OSError:
                requests.close()
        raise AssertionError("no two ports one behind the other are free")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._requests.getsockname()[1]}"

    @property
    def ha(self) -> str:
        return f"127.0.0.1:{self._ha.getsockname()[1]}"

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._requests.close()
        self._ha.close()

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        while not self._stop.is_set():
            try:
                connection = listener.accept()[0]
            except TimeoutError:
                continue
            connection.settimeout(0.05)
            return connection
        return None

    def _receive(self, connection: socket.socket) -> bytes | None:
        """None: nothing now; empty: closed."""
        try:
            return connection.recv(65_536)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def _serve_requests(self) -> None:
        while (connection := self._accept(self._requests)) is not None:
            cutter = FrameCutter()
            with connection:
                while not self._stop.is_set() and (data := self._receive(connection)) != b"":
                    cutter.feed(data or b"")
                    while (frame := cutter.next_frame()) is not None:
                        connection.sendall(self._answer(RemotingCommand.from_frame(frame)).encode())

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        self.requests.append(request)
        if self.code:
            return RemotingCommand.response(self.code, self.remark).answering(request)
        if request.code not in (26, 28):
            code, remark = (3, "not supported") if self.version is None else (0, None)
            return RemotingCommand.response(code, remark, body=self.version).answering(request)
        if request.code == 26:
            body = f"brokerName=a\nmappedFileSizeCommitLog={self._numbers[0]}\n{self.more}".encode()
        else:
            table = {"commitLogMinOffset": self._numbers[1], "commitLogMaxOffset": self._numbers[2]}
            body = json.dumps({"table": table}).encode()
        return RemotingCommand.response(body=body).answering(request)

    @property
    def _numbers(self) -> tuple[str, str, str]:
        return self.numbers or (str(self.file_size), str(self.begin), str(self.begin + len(self.log)))

    def _serve_log(self) -> None:
        while (connection := self._accept(self._ha)) is not None:
            self.connections += 1
            if self.connections > 1 and self.later is not None:
                self.log = self.later
            with connection:
                self._stream(connection)

    def _stream(self, connection: socket.socket) -> None:
        reported, position = b"", -1
        while not self._stop.is_set() and (data := self._receive(connection)) != b"":
            reported += data or b""
            while len(reported) >= REPORT.size:
                self.reports.append(REPORT.unpack(reported[: REPORT.size])[0])
                reported = reported[REPORT.size :]
                if position < 0:
                    position = self.reports[-1]
            if position < 0:
                continue
            at = position - self.begin
            part = self.log[at : min(at + 3000, at - at % self.file_size + self.file_size)]
            try:
                connection.sendall(HEADER.pack(position, len(part)) + part)
            except OSError:
                return
            position += len(part)
