"""Clients of a selector that a test turns by hand: how they begin, and how their connections end."""

from __future__ import annotations

import socket
import struct

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.selector_rig import SelectorRig, frame


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def greet(rig: SelectorRig, **options: int) -> tuple[socket.socket, int]:
    client = rig.connect(**options)
    client.sendall(frame(b"hello"))
    return client, rig.next().connection


def ending(client: socket.socket) -> str:
    """Read to the end, which is `FIN` or `reset`. What the death of the process does is in tests/system."""
    client.settimeout(10)
    with client:
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            return "reset"
    return "FIN"
