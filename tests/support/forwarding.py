"""Addresses of this machine: is there IPv6; ports of one are forwarded to another, as NAT and TLS proxies do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping

import trio

from rocketpy.transport.streams import connect, open_listeners

PROXY_HOST = "127.0.0.2"
START_TIMEOUT_S = 60.0

Near = Callable[[trio.SocketStream], trio.abc.Stream]


def has_ipv6() -> bool:
    """Return True if this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def forwarded(ports: Mapping[int, int], near: Near = lambda stream: stream) -> Iterator[Counter[int]]:
    """Forward ports of PROXY_HOST to ports of 127.0.0.1, in a thread of its own. Yields connections by port.

    Args:
        near: makes the stream to a client of its connection.
    """
    started = threading.Event()
    scope = trio.CancelScope()
    tokens: list[trio.lowlevel.TrioToken] = []
    counts: Counter[int] = Counter()

    async def main() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        with scope:
            async with trio.open_nursery() as nursery:
                for port, target in ports.items():
                    listeners = await open_listeners(PROXY_HOST, port)
                    nursery.start_soon(trio.serve_listeners, _forwarding(port, target, near, counts), listeners)
                started.set()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    try:
        assert started.wait(START_TIMEOUT_S)
        yield counts
    finally:
        tokens[0].run_sync_soon(scope.cancel)
        thread.join()


def _forwarding(
    port: int, target: int, near: Near, counts: Counter[int]
) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def forward(plain: trio.SocketStream) -> None:
        counts[port] += 1
        client = near(plain)
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, ExceptionGroup):
            server = await connect(f"127.0.0.1:{target}")
            async with plain, server, trio.open_nursery() as nursery:
                nursery.start_soon(_copy, client, server, nursery.cancel_scope)
                nursery.start_soon(_copy, server, client, nursery.cancel_scope)

    return forward


async def _copy(source: trio.abc.ReceiveStream, target: trio.abc.SendStream, both: trio.CancelScope) -> None:
    """Until one side ends; then both directions do."""
    async for data in source:
        await target.send_all(data)
    both.cancel()
