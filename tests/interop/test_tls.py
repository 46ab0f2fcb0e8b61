"""Our client and the official name server and broker, which refuse plain connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from rocketpy.client import Message, ProducerOptions, PullOptions, TlsOptions
from rocketpy.client.sync import Producer, PullConsumer
from rocketpy.errors import RocketError

from .java_broker import JavaBroker, running_java_broker

TOPIC = "Encrypted"
BODIES = [b"short", bytes(range(256)) * 1024, b"last"]  # the second one has many TLS records


@attrs.frozen
class Encrypted:
    broker: JavaBroker
    ca_file: Path
    certificate_file: Path


def write_pkcs8(issued: trustme.LeafCert, file: Path) -> None:
    """The key as Netty reads it."""
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    pkcs8 = serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption()))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    ca, chain, key, client = (directory / name for name in ("ca.pem", "chain.pem", "key.pem", "client.pem"))
    authority.cert_pem.write_to_path(ca)
    for part in issued.cert_chain_pems:
        part.write_to_path(chain, append=True)
    write_pkcs8(issued, key)
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(client)
    of_server = {
        "keyPath": key,
        "certPath": chain,
        "trustCertPath": ca,
        "authClient": "true",
        "need.client.auth": "optional",
    }
    flags = ["-Dtls.test.mode.enable=false", "-Dtls.enable=true", "-Dtls.server.mode=enforcing"]
    flags += [f"-Dtls.server.{name}={value}" for name, value in of_server.items()]
    with running_java_broker({"autoCreateTopicEnable": "true"}, flags=flags) as broker:
        yield Encrypted(broker, ca, client)


def send_and_read(encrypted: Encrypted, group: str, tls: TlsOptions) -> None:
    """Send the bodies, and read them."""
    with Producer(group, ProducerOptions(name_servers=encrypted.broker.namesrv, tls=tls)) as producer:
        for body in BODIES:
            producer.send(Message(TOPIC + group, body))
    with PullConsumer(group, PullOptions(name_servers=encrypted.broker.namesrv, tls=tls)) as consumer:
        consumer.subscribe(TOPIC + group)
        read: list[bytes] = []
        while len(read) < len(BODIES):
            polled = consumer.poll(timeout=30)
            assert polled, f"only {len(read)} messages came"
            read += [message.body for message in polled]
    assert sorted(read) == sorted(BODIES)


def test_messages_travel_encrypted(encrypted: Encrypted) -> None:
    """Holds: network, TLS of clients."""
    send_and_read(encrypted, "trusting", TlsOptions(ca_file=encrypted.ca_file))
    send_and_read(encrypted, "anybody", TlsOptions(verify=False))
    shown = encrypted.certificate_file
    send_and_read(encrypted, "known", TlsOptions(ca_file=encrypted.ca_file, certificate_file=shown))


@pytest.mark.parametrize(
    ("tls", "message"), [(None, "connection"), (TlsOptions(), "its certificate is refused: unable to get local issuer")]
)
def test_who_does_not_trust_the_server_or_speaks_plainly_gets_nothing(
    encrypted: Encrypted, tls: TlsOptions | None, message: str
) -> None:
    options = ProducerOptions(name_servers=encrypted.broker.namesrv, tls=tls, retries=0)
    with Producer("stranger", options) as producer, pytest.raises(RocketError, match=message):
        producer.send(Message(TOPIC, b"never stored"))
