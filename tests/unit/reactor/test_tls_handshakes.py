"""A new connection that cannot be taken over costs itself alone: the thread of handshakes goes on, with all others."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trustme

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import TlsConfig
from rocketpy.reactor import tls_handshakes
from rocketpy.reactor.handoff import handoff_pair, pass_to_tls
from rocketpy.reactor.tls_handshakes import Handshake, HandshakeLoop
from rocketpy.reactor.worker_messages import HOST, encode_host
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, TlsSession
from rocketpy.tls.handshake_counts import FILES

TURNS = 10


@attrs.define(eq=False)
class Rig:
    """The loop of the thread, turned by the test, which is a selector and its clients."""

    trust: ssl.SSLContext
    selector: socket.socket
    loop: HandshakeLoop
    completed: list[Handshake]
    ends: contextlib.ExitStack

    @classmethod
    def make(cls, directory: Path) -> Rig:
        authority, completed = trustme.CA(), list[Handshake]()
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(directory / "both.pem")
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(trust)
        file = str(directory / "both.pem")
        certificates = Certificates.of_server(TlsConfig(tls_server_cert_path=file, tls_server_key_path=file))
        ends = contextlib.ExitStack()
        selector, way = map(ends.enter_context, handoff_pair())
        return cls(trust, selector, HandshakeLoop([way], certificates, completed.append), completed, ends)

    def close(self) -> None:
        for handshake in self.completed:
            handshake.close()
        self.loop.stop()
        self.loop.run()
        self.ends.close()

    def connect(self) -> socket.socket:
        """Pass a connection on; its client."""
        client, accepted = map(self.ends.enter_context, socket.socketpair())
        plain = pass_to_tls(self.selector, accepted, Peer("127.0.0.1", 1))
        assert plain is not None
        self.ends.enter_context(plain)
        accepted.close()
        client.setblocking(False)
        return client

    def shake_hands(self, client: socket.socket) -> None:
        session, count = TlsSession.client(self.trust, "127.0.0.1"), len(self.completed)
        for _ in range(TURNS):
            client.sendall(session.take_outgoing())
            self.loop.turn(0)
            with contextlib.suppress(BlockingIOError):
                session.receive(client.recv(65_536))
        assert len(self.completed) == count + 1


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.make(tmp_path)
    yield made
    made.close()


def fail_once(work: Callable[..., object]) -> Callable[..., object]:
    """`work`, which fails at the first call as the kernel does without memory."""
    errors = [OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))]

    def do(*arguments: object) -> object:
        if errors:
            raise errors.pop()
        return work(*arguments)

    return do


def pass_no_socket(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    count, ends = len(os.listdir("/proc/self/fd")), os.pipe()
    rights = array.array("i", ends)
    rig.selector.sendmsg([HOST.write(**encode_host("::1", 9))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    for end in ends:
        os.close(end)
    rig.loop.turn(0)
    assert len(os.listdir("/proc/self/fd")) == count, "none is left open"


def fail_to_receive(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshakes, "take_arrival", fail_once(tls_handshakes.take_arrival))
    rig.shake_hands(rig.connect())  # what was not received waits


def fail_to_begin(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TlsSession, "server", fail_once(TlsSession.server))
    client = rig.connect()
    rig.loop.turn(0)
    assert client.recv(1) == b"", "it is closed"


@pytest.mark.parametrize("fail", [pass_no_socket, fail_to_receive, fail_to_begin])
def test_an_arrival_that_fails_costs_that_connection_only(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Rig, pytest.MonkeyPatch], None]
) -> None:
    """Fault: An error of the kernel for one new connection ended the TLS worker with all connections."""
    before = rig.connect()
    rig.loop.turn(0)
    fail(rig, monkeypatch)
    rig.shake_hands(before)
    rig.shake_hands(rig.connect())
    assert rig.loop.counts.refused == {FILES: 1} and len(rig.loop) == 0
