"""A TLS proxy as operators put one before a broker: 127.0.0.2 before 127.0.0.1, with the same port numbers.

Short: forwarding.py forwards.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Collection, Iterator

import trio
import trustme

from tests.support.forwarding import PROXY_HOST, forwarded

__all__ = ["PROXY_HOST", "tls_proxy"]


@contextlib.contextmanager
def tls_proxy(ports: Collection[int], authority: trustme.CA) -> Iterator[None]:
    """In a thread of its own; its certificate names PROXY_HOST."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(PROXY_HOST).configure_cert(context)

    def near(plain: trio.SocketStream) -> trio.SSLStream[trio.SocketStream]:
        return trio.SSLStream(plain, context, server_side=True, https_compatible=True)

    with forwarded({port: port for port in ports}, near):
        yield
