"""TrioByteStream on a real socket: what a connection keeps while it waits."""

import socket
import tracemalloc

import trio

from rocketpy.transport.trio_socket_stream import TrioSocketStream
from rocketpy.transport.trio_stream import TrioByteStream

SIZE = 60_000


class Counting:
    """A receiver that keeps nothing."""

    def __init__(self) -> None:
        self.size = 0

    def received(self, data: bytes | bytearray) -> None:
        self.size += len(data)

    def drained(self) -> None:
        pass


async def held_after_a_read(stream: TrioByteStream | TrioSocketStream, peer: trio.SocketStream) -> int:
    """Bytes that were allocated since the stream runs, and are held when it waits for a second read."""
    receiver = Counting()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run, receiver, SIZE)
        await peer.send_all(b"x")
        while receiver.size < 1:
            await trio.sleep(0.001)
        tracemalloc.start()
        await peer.send_all(bytes(SIZE))
        while receiver.size < SIZE + 1:
            await trio.sleep(0.001)
        await trio.sleep(0.01)
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
