"""A TLS proxy as operators put one before a broker: 127.0.0.2 before 127.0.0.1, with the same port numbers."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator

import trio
import trustme

from rocketpy.transport.streams import connect, open_listeners

PROXY_HOST = "127.0.0.2"
START_TIMEOUT_S = 60.0


@contextlib.contextmanager
def tls_proxy(ports: Collection[int], authority: trustme.CA) -> Iterator[None]:
    """In a thread of its own; its certificate names PROXY_HOST."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(PROXY_HOST).configure_cert(context)
    started = threading.Event()
    scope = trio.CancelScope()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        with scope:
            async with trio.open_nursery() as nursery:
                for port in ports:
                    listeners = await open_listeners(PROXY_HOST, port)
                    nursery.start_soon(trio.serve_listeners, _forwarding(port, context), listeners)
                started.set()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    try:
        assert started.wait(START_TIMEOUT_S)
        yield
    finally:
        tokens[0].run_sync_soon(scope.cancel)
        thread.join()


def _forwarding(port: int, context: ssl.SSLContext) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def forward(plain: trio.SocketStream) -> None:
        near = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, ExceptionGroup):
            far = await connect(f"127.0.0.1:{port}")
            async with plain, far, trio.open_nursery() as nursery:
                nursery.start_soon(_copy, near, far, nursery.cancel_scope)
                nursery.start_soon(_copy, far, near, nursery.cancel_scope)

    return forward


async def _copy(source: trio.abc.ReceiveStream, target: trio.abc.SendStream, both: trio.CancelScope) -> None:
    """Until one side ends; then both directions do."""
    async for data in source:
        await target.send_all(data)
    both.cancel()
