"""TrioByteStream on a real socket: what a connection keeps while it waits."""

import socket
import tracemalloc

import trio
import trio.testing

from rocketpy.transport.trio_socket_stream import TrioSocketStream
from rocketpy.transport.trio_stream import TrioByteStream

SIZE = 60_000


class Counting:
    """A receiver that keeps nothing."""

    def __init__(self) -> None:
        self._left = 0
        self._all = trio.Event()

    def received(self, data: bytes | bytearray) -> None:
        self._left -= len(data)
        if not self._left:
            self._all.set()

    async def take(self, peer: trio.SocketStream, size: int) -> None:
        """Let the peer send so many bytes, and wait until they are here."""
        self._left, self._all = size, trio.Event()
        await peer.send_all(bytes(size))
        await self._all.wait()

    def drained(self) -> None:
        pass


async def held_after_a_read(stream: TrioByteStream | TrioSocketStream, peer: trio.SocketStream) -> int:
    """Bytes that were allocated since the stream runs, and are held when it waits for a second read."""
    receiver = Counting()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run, receiver, SIZE)
        await receiver.take(peer, 1)
        tracemalloc.start()
        await receiver.take(peer, SIZE)
        await trio.testing.wait_all_tasks_blocked()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        stream.abort()
    return held


def test_a_stream_that_waits_keeps_nothing_of_its_last_read() -> None:
    """Fault: Each silent connection of a name server kept its last read, up to 64 KiB, beyond every bound of memory."""

    async def scenario() -> None:
        for of_server in (True, False):
            listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
            peer = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
            accepted = await listener.accept()
            stream: TrioByteStream | TrioSocketStream
            if of_server:
                stream = TrioByteStream(accepted, ("127.0.0.1", 1))
            else:
                stream = TrioSocketStream(socket.socket(fileno=accepted.socket.detach()))
            assert await held_after_a_read(stream, peer) < SIZE / 4
            await peer.aclose()
            await listener.aclose()

    trio.run(scenario)
