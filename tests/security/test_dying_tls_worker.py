"""kill -9 of one of two TLS workers of a broker under load: plain connections and those of the other worker notice
nothing, the other senders by TLS connect again, and each acknowledged message is there."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import ResponseCode
from tests.support.broker import RunningBroker, running_broker
from tests.support.certificates import HOST, Authority
from tests.support.waiting import wait_until
from tests.support.wire import Wire, max_offset, read_all, send_request

TOPIC = "Killed"
SENDERS, DEATHS = 6, 3
ACKNOWLEDGED_BETWEEN = 50  # messages by TLS, between two deaths


@attrs.define(eq=False)
class Senders:
    """SENDERS threads that send by TLS and connect again, and one that sends by one plain connection."""

    broker: RunningBroker
    trust: ssl.SSLContext
    acknowledged: list[bytes] = attrs.field(init=False, factory=list)
    broken: list[int] = attrs.field(init=False, factory=list)
    """The ports of connections that ended."""
    plain_failure: BaseException | None = attrs.field(init=False, default=None)
    _over: threading.Event = attrs.field(init=False, factory=threading.Event)
    _threads: list[threading.Thread] = attrs.field(init=False, factory=list)

    def __enter__(self) -> Senders:
        works = [threading.Thread(target=self._by_tls, args=(number,)) for number in range(SENDERS)]
        self._threads = [*works, threading.Thread(target=self._plain)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _by_tls(self, sender: int) -> None:
        sent = 0
        while not self._over.is_set():
            plain = Wire.open(self.broker.port).sock
            port = plain.getsockname()[1]
            try:
                with Wire(self.trust.wrap_socket(plain, server_hostname=HOST)) as wire:
                    while not self._over.is_set():
                        sent += 1
                        self._send(wire, b"tls %d %d" % (sender, sent))
            except (OSError, EOFError):
                self.broken.append(port)

    def _plain(self) -> None:
        sent = 0
        try:
            with Wire.open(self.broker.port) as wire:
                while not self._over.is_set():
                    sent += 1
                    self._send(wire, b"plain %d" % sent)
        except BaseException as exc:
            self.plain_failure = exc

    def _send(self, wire: Wire, body: bytes) -> None:
        if wire.ask(send_request(TOPIC, body)).code == ResponseCode.SUCCESS:
            self.acknowledged.append(body)

    def wait_for_acknowledged(self) -> None:
        """Wait for ACKNOWLEDGED_BETWEEN messages by TLS."""
        wanted = self._by_tls_count() + ACKNOWLEDGED_BETWEEN
        wait_until(lambda: self._by_tls_count() >= wanted, "acknowledged messages by TLS")

    def _by_tls_count(self) -> int:
        return sum(body.startswith(b"tls") for body in list(self.acknowledged))


def ports_of_clients(pid: int, port: int) -> set[int]:
    """The ports of the clients whose connections to `port` a process has."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [(row[1].rpartition(":")[2], row[2].rpartition(":")[2]) for row in rows if row[9] in inodes]
    return {int(client, 16) for own, client in ends if int(own, 16) == port}


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(authority: Authority) -> Iterator[RunningBroker]:
    settings = authority.issue().settings() | {"tls.server.mode": "permissive", "tls.config.file": "/dev/null"}
    settings |= {"tlsWorkers": "2"}
    with running_broker(settings) as running:
        yield running
        assert running.stop() == 0


def test_nothing_acknowledged_is_lost(broker: RunningBroker, authority: Authority) -> None:
    """Holds: network, TLS of servers."""
    trust = ssl.create_default_context(cafile=authority.ca_file)
    with Senders(broker, trust) as senders:
        for _ in range(DEATHS):
            senders.wait_for_acknowledged()
            wait_until(lambda: {"tls 0", "tls 1"} <= broker.workers().keys(), "both TLS workers")
            others, known = ports_of_clients(broker.workers()["tls 1"], broker.port), len(senders.broken)
            assert others, "the other worker has connections"
            os.kill(broker.workers()["tls 0"], signal.SIGKILL)
            wait_until(lambda known=known: len(senders.broken) > known, "a connection of the killed worker ends")
            senders.wait_for_acknowledged()
            assert not others & set(senders.broken[known:]), "connections of the other worker go on"
    assert senders.plain_failure is None
    assert any(body.startswith(b"plain") for body in senders.acknowledged)
    with Wire.open(broker.port) as wire:
        stored = {record.body for record in read_all(wire, TOPIC, max_offset(wire, TOPIC))}
    assert not set(senders.acknowledged) - stored
