"""A proxy in front of a port that flips single bits of what passes, on connections that are otherwise whole."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

BUFFER_BYTES = 1 << 16


@attrs.define(eq=False)
class FlippingProxy:
    """Listens on `listen`, passes to `target`. One bit in about `every` bytes is flipped while `flips`."""

    listen: tuple[str, int]
    target: tuple[str, int]
    every: int
    choose: random.Random
    flips: bool = False
    flipped: int = 0
    _server: socket.socket = attrs.field(init=False)
    _open: set[socket.socket] = attrs.field(init=False, factory=set)

    def start(self) -> None:
        self._server = socket.create_server(self.listen)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        for one in (self._server, *list(self._open)):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, 5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._open |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BUFFER_BYTES):
                target.sendall(self._spoiled(data))
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _spoiled(self, data: bytes) -> bytes:
        if not self.flips or self.choose.random() >= len(data) / self.every:
            return data
        self.flipped += 1
        at, image = self.choose.randrange(len(data)), bytearray(data)
        image[at] ^= 1 << self.choose.randrange(8)
        return bytes(image)


@contextmanager
def flipping_proxy(
    listen: tuple[str, int], target: tuple[str, int], *, every: int, seed: object
) -> Iterator[FlippingProxy]:
    proxy = FlippingProxy(listen, target, every, random.Random(f"{seed}"))
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
