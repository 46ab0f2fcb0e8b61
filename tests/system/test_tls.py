"""A broker with TLS: clients with and without it on one port, each worker's death, and what the ports refuse."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client.messages import Message
from rocketpy.client.options import START_FIRST, ProducerOptions, PushOptions, TlsOptions
from rocketpy.client.producer import Producer
from rocketpy.client.push_consumer import PushConsumer
from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.certificates import Authority
from tests.support.waiting import wait_until
from tests.support.wire import Wire

MESSAGES = 50
SECONDS = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def permissive(authority: Authority) -> Iterator[RunningBroker]:
    settings = authority.issue("127.0.0.1").settings() | {"tls.server.mode": "permissive"}
    with running_broker(settings) as running:
        yield running
        assert running.stop() == 0


def send_and_consume(broker: RunningBroker, topic: str, tls: TlsOptions | None) -> list[bytes]:
    """Send MESSAGES and consume them in two clients; returns the bodies, sorted."""
    got: list[bytes] = []

    async def main() -> None:
        everything = trio.Event()

        async def handle(message: object) -> None:
            got.append(message.body)  # type: ignore[attr-defined]
            if len(set(got)) == MESSAGES:
                everything.set()

        common = {"name_servers": broker.namesrv, "tls": tls}
        async with Producer(f"{topic}-producer", ProducerOptions(**common, send_timeout=10.0)) as producer:
            for n in range(MESSAGES):
                await producer.send(Message(topic, b"%03d" % n + bytes(n * 1000)))
        options = PushOptions(**common, start=START_FIRST)
        async with PushConsumer(f"{topic}-consumer", {topic: "*"}, handle, options=options):
            with trio.fail_after(SECONDS):
                await everything.wait()

    trio.run(main)
    return sorted(got)


def sent() -> list[bytes]:
    return [b"%03d" % n + bytes(n * 1000) for n in range(MESSAGES)]


def test_clients_with_and_without_tls_share_a_port(permissive: RunningBroker, authority: Authority) -> None:
    assert send_and_consume(permissive, "WithTls", TlsOptions(ca_file=authority.ca_file)) == sent()
    assert send_and_consume(permissive, "Plain", None) == sent()


def test_the_peer_is_the_clients_address(permissive: RunningBroker, authority: Authority) -> None:
    """The statistics of connections show the client's socket, not the socket pair."""
    with tls_wire(permissive, authority) as wire:
        body = b'{"clientID":"seen@1","producerDataSet":[{"groupName":"seen"}],"consumerDataSet":[]}'
        assert wire.ask(RemotingCommand(code=RequestCode.HEART_BEAT, body=body)).code == 0
        fields = {"producerGroup": "seen"}
        with Wire.open(permissive.port) as plain:
            answer = plain.ask(RemotingCommand(code=RequestCode.GET_PRODUCER_CONNECTION_LIST, ext_fields=fields))
        assert f"127.0.0.1:{wire.sock.getsockname()[1]}".encode() in (answer.body or b"")


def test_a_dead_tls_worker_costs_its_connections_only(permissive: RunningBroker, authority: Authority) -> None:
    """Messages acknowledged before are there, plain connections go on, and new ones by TLS are served."""
    with Wire.open(permissive.port) as plain, tls_wire(permissive, authority) as encrypted:
        ask = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_CONFIG)
        assert plain.ask(ask).code == encrypted.ask(ask).code == 0
        os.kill(permissive.workers()["tls 0"], signal.SIGKILL)
        with pytest.raises((OSError, EOFError)):
            encrypted.ask(ask)
        assert plain.ask(ask).code == 0
    wait_until(lambda: can_ask(permissive, authority), SECONDS)
    assert send_and_consume(permissive, "AfterDeath", TlsOptions(ca_file=authority.ca_file)) == sent()


def test_a_dead_selector_ends_connections_with_tls(permissive: RunningBroker, authority: Authority) -> None:
    with tls_wire(permissive, authority) as encrypted:
        ask = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_CONFIG)
        assert encrypted.ask(ask).code == 0
        os.kill(permissive.workers()["selector 0"], signal.SIGKILL)
        with pytest.raises((OSError, EOFError)):
            encrypted.ask(ask)
    wait_until(lambda: can_ask(permissive, authority), SECONDS)


def test_enforcing_serves_tls_only_name_server_included(authority: Authority) -> None:
    settings = authority.issue("127.0.0.1").settings() | {
        "tls.server.mode": "enforcing",
        "tls.client.trustCertPath": str(authority.ca_file),
    }
    with running_broker(settings) as running:
        for port in (running.port, running.namesrv_port):
            with socket.create_connection(("127.0.0.1", port), SECONDS) as plain:
                plain.sendall(RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO).encode())
                assert is_closed(plain)
        assert send_and_consume(running, "Enforced", TlsOptions(ca_file=authority.ca_file)) == sent()
        assert running.stop() == 0


def test_a_certificate_is_renewed_under_open_connections(tmp_path: Path, authority: Authority) -> None:
    first, second = authority.issue("127.0.0.1"), authority.issue("127.0.0.1")
    with running_broker(first.settings() | {"tls.server.mode": "permissive"}) as running:
        ask = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_CONFIG)
        with tls_wire(running, authority) as before:
            assert before.ask(ask).code == 0
            served = certificate_of(running, authority)
            first.replace(second)
            wait_until(lambda: certificate_of(running, authority) != served, SECONDS)
            assert before.ask(ask).code == 0
        first.certificate.write_text("no certificate")
        wait_until(lambda: "cannot load the changed certificate" in running.text(), SECONDS)
        assert can_ask(running, authority)
        assert running.stop() == 0


def is_closed(plain: socket.socket) -> bool:
    try:
        return plain.recv(1) == b""
    except ConnectionResetError:
        return True


def context_of(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca_file)


def tls_wire(broker: RunningBroker, authority: Authority) -> Wire:
    plain = socket.create_connection(("127.0.0.1", broker.port), SECONDS)
    return Wire(context_of(authority).wrap_socket(plain, server_hostname="127.0.0.1"))


def certificate_of(broker: RunningBroker, authority: Authority) -> bytes | None:
    plain = socket.create_connection(("127.0.0.1", broker.port), SECONDS)
    with context_of(authority).wrap_socket(plain, server_hostname="127.0.0.1") as stream:
        return stream.getpeercert(binary_form=True)


def can_ask(broker: RunningBroker, authority: Authority) -> bool:
    try:
        with tls_wire(broker, authority) as wire:
            return wire.ask(RemotingCommand(code=RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
    except (OSError, EOFError):
        return False
