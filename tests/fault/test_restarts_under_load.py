"""Restarts under load with ports that are kept open: no connection is refused, no send fails, nothing is lost."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import START_FIRST, Message, ProducerOptions, PushOptions, ReceivedMessage
from rocketpy.client.sync import Producer, PushConsumer
from tests.support.broker import free_ports
from tests.support.handed_over import HandedOver, handed_over
from tests.support.pair import NameServer
from tests.support.waiting import wait_until

RESTARTS = 3
SENDERS = 4
APART = 40  # acknowledged sends of each sender between two restarts
SETTINGS = {"mappedFileSizeCommitLog": "1048576", "maxMessageSize": "65536", "brokerName": "broker-a"}


@attrs.define(eq=False)
class Traffic:
    """Senders of the client with its default number of retries, and somebody who dials all ports all the time."""

    namesrv: str
    ports: tuple[int, ...]
    acknowledged: dict[int, list[bytes]] = attrs.field(factory=dict)
    failures: list[BaseException] = attrs.field(factory=list)
    gap_max_s: float = 0.0
    _over: threading.Event = attrs.field(factory=threading.Event)

    def send(self, number: int) -> None:
        sent = self.acknowledged[number] = []
        options = ProducerOptions(name_servers=self.namesrv, send_timeout=20.0)  # a busy machine starts slowly
        try:
            with Producer(f"p{number}", options) as producer:
                last_s = time.monotonic()
                while not self._over.is_set():
                    body = b"%d/%d" % (number, len(sent))
                    producer.send(Message("T", body))
                    sent.append(body)
                    now_s = time.monotonic()
                    self.gap_max_s = max(self.gap_max_s, now_s - last_s)
                    last_s = now_s
        except BaseException as error:
            self.failures.append(error)

    def dial(self) -> None:
        try:
            while not self._over.is_set():
                for port in self.ports:
                    socket.create_connection(("127.0.0.1", port), timeout=20.0).close()
        except OSError as error:
            self.failures.append(error)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.send, args=(number,)) for number in range(SENDERS)]
        threads.append(threading.Thread(target=self.dial))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def wait_for_more(self) -> None:
        before = {number: len(sent) for number, sent in self.acknowledged.items()}
        wait_until(
            lambda: (
                bool(self.failures)
                or all(
                    len(self.acknowledged.get(number, ())) >= before.get(number, 0) + APART for number in range(SENDERS)
                )
            ),
            "sends go on",
        )
        assert self.failures == []

    def bodies(self) -> list[bytes]:
        return [body for sent in self.acknowledged.values() for body in sent]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HandedOver]:
    port, namesrv_port = free_ports()
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "namesrv.log", {})
    try:
        namesrv.start()
        with handed_over(tmp_path, port, namesrv_port, SETTINGS) as running:
            yield running
            running.check_crashes()
    finally:
        namesrv.kill_all()


def test_restarts_are_not_noticed_by_clients(broker: HandedOver) -> None:
    received: set[bytes] = set()

    def take(message: ReceivedMessage) -> None:
        received.add(message.body)

    traffic = Traffic(broker.namesrv, (broker.port, broker.port - 2, broker.port + 1))
    options = PushOptions(name_servers=broker.namesrv, start=START_FIRST)
    with PushConsumer("g", {"T": None}, take, options=options):
        with traffic.running():
            traffic.wait_for_more()
            for _ in range(RESTARTS):
                broker.restart()
                traffic.wait_for_more()
        assert traffic.failures == []
        sent = traffic.bodies()
        assert len(sent) >= SENDERS * APART * (RESTARTS + 1)
        wait_until(lambda: received >= set(sent), "all that was acknowledged is consumed")
    print(f"longest wait of a sender: {traffic.gap_max_s:.2f} s")
