"""Streams of trio clients over real sockets. Short: connections of clients are tested with the connector."""

from __future__ import annotations

import socket
import struct

import trio

from rocketpy.transport.trio_socket_stream import TrioSocketStream


def test_a_reset_before_the_handshake_is_the_end_of_the_stream() -> None:
    """Fault: The failed send closed the socket, and the read waited for descriptor -1, as did later ones."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            accepted, _ = listener.accept()
            stream = TrioSocketStream(client)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            stream.write(b"ClientHello")
            with trio.fail_after(20):
                assert await stream.receive_early() == b""
        assert client.fileno() == -1

    trio.run(main)
