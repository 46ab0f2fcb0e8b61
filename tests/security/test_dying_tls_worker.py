"""kill -9 of a broker's TLS worker under load: plain connections notice nothing, senders by TLS connect again, and each
acknowledged message is there."""

from __future__ import annotations

import os
import signal
import ssl
import threading
from collections.abc import Iterator

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import ResponseCode
from tests.support.broker import RunningBroker, running_broker
from tests.support.certificates import HOST, Authority
from tests.support.waiting import wait_until
from tests.support.wire import Wire, max_offset, read_all, send_request

TOPIC = "Killed"
SENDERS, DEATHS = 4, 3
ACKNOWLEDGED_BETWEEN = 50  # messages by TLS, between two deaths


@attrs.define(eq=False)
class Senders:
    """SENDERS threads that send by TLS and connect again, and one that sends by one plain connection."""

    broker: RunningBroker
    trust: ssl.SSLContext
    acknowledged: list[bytes] = attrs.field(init=False, factory=list)
    broken: int = attrs.field(init=False, default=0)
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
            try:
                with Wire(self.trust.wrap_socket(Wire.open(self.broker.port).sock, server_hostname=HOST)) as wire:
                    while not self._over.is_set():
                        sent += 1
                        self._send(wire, b"tls %d %d" % (sender, sent))
            except (OSError, EOFError):
                self.broken += 1

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


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(authority: Authority) -> Iterator[RunningBroker]:
    settings = authority.issue().settings() | {"tls.server.mode": "permissive", "tls.config.file": "/dev/null"}
    with running_broker(settings) as running:
        yield running
        assert running.stop() == 0


def test_nothing_acknowledged_is_lost(broker: RunningBroker, authority: Authority) -> None:
    """Holds: network, TLS of servers."""
    trust = ssl.create_default_context(cafile=authority.ca_file)
    with Senders(broker, trust) as senders:
        for _ in range(DEATHS):
            senders.wait_for_acknowledged()
            os.kill(broker.workers()["tls 0"], signal.SIGKILL)
        senders.wait_for_acknowledged()
    assert senders.plain_failure is None
    assert senders.broken >= DEATHS, "each death has ended connections"
    assert any(body.startswith(b"plain") for body in senders.acknowledged)
    with Wire.open(broker.port) as wire:
        stored = {record.body for record in read_all(wire, TOPIC, max_offset(wire, TOPIC))}
    assert not set(senders.acknowledged) - stored
