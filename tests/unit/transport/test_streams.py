"""Where streams come from: addresses of both families and their failures.

Of trio alone: servers run under it, and clients under trio connect by it. test_connector.py has clients in each loop.
"""

import subprocess
import sys

import pytest
import trio
from trio.testing import memory_stream_pair

from rocketpy.errors import ConnectFailed
from rocketpy.remoting.abc import Peer
from rocketpy.transport.streams import connect, listening_port, open_listeners, peer_of, unacknowledged_bytes


def test_both_ends_know_each_other() -> None:
    async def main() -> None:
        (listener,) = await open_listeners("127.0.0.1", 0)
        port = listening_port(listener)
        async with listener, await connect(f"127.0.0.1:{port}") as near, await listener.accept() as far:
            assert peer_of(near) == Peer("127.0.0.1", port)
            assert peer_of(far).host == "127.0.0.1"

    trio.run(main)


def test_stream_without_address() -> None:
    assert peer_of(memory_stream_pair()[0]) == Peer("0.0.0.0", 0)


@pytest.mark.parametrize("address", ["", "host", "127.0.0.1:port", "127.0.0.1:1"])
def test_no_connection(address: str) -> None:
    with pytest.raises(ConnectFailed, match=f"<{address}>"):
        trio.run(connect, address)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_name_in_ascii_needs_no_tables_for_international_names(host: str) -> None:
    program = (
        "import sys, trio; from rocketpy.errors import ConnectFailed; from rocketpy.transport.streams import connect\n"
        f"try: trio.run(connect, '{host}:1')\n"
        "except ConnectFailed: pass\n"
        "print('encodings.idna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_bytes_are_unacknowledged_until_the_machine_of_the_peer_has_them() -> None:
    """A stream in memory cannot tell."""

    async def main() -> None:
        (listener,) = await open_listeners("127.0.0.1", 0)
        async with listener, await connect(f"127.0.0.1:{listening_port(listener)}") as stream:
            peer = await listener.accept()
            await stream.send_all(b"answered by the kernel, read by nobody")
            with trio.fail_after(60):
                while unacknowledged_bytes(stream):  # noqa: ASYNC110 -- no event tells
                    await trio.sleep(0.001)
            with trio.move_on_after(0.2):
                await stream.send_all(bytes(64 << 20))  # more than the buffers of both take
            assert unacknowledged_bytes(stream) > 0
            await peer.aclose()
        assert unacknowledged_bytes(stream) == 0, "it is closed"
        assert unacknowledged_bytes(memory_stream_pair()[0]) == 0

    trio.run(main)
