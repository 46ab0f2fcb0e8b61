"""Where streams come from: addresses of both families and their failures."""

import subprocess
import sys

import pytest
import trio
from trio.testing import memory_stream_pair

from rocketpy.errors import ConnectFailed
from rocketpy.remoting.abc import Peer
from rocketpy.transport.streams import connect, listening_port, open_listeners, peer_of


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
