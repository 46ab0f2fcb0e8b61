"""Official clients and mqadmin by TLS with our name server and broker, and official servers by TLS with ours.

The Go client 2.1.2 has no TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.client import Message, ProducerOptions, PullOptions, TlsOptions
from rocketpy.client.sync import Producer, PullConsumer
from tests.support.broker import free_ports
from tests.support.certificates import Authority, Issued
from tests.support.pair import LoneBroker, NameServer

from .brokers import wait_until
from .java_broker import JavaBroker, write_logback
from .mqadmin import NewMqAdmin
from .programs import Launcher, java_flags

JAVA = ("java-4.9.8", "java-5.3.3")
COUNT = 5
OF_SERVERS = {"tls.config.file": "/dev/null", "tls.server.mode": "enforcing"}
OF_CALLS = {"tls.config.file": "/dev/null", "useTLS": "true", "tls.client.authServer": "true"}


@attrs.frozen
class Encrypted:
    """Our name server and broker, which ask for certificates of clients."""

    authority: Authority
    namesrv: NameServer
    broker: LoneBroker
    shown: Issued  # by clients


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "certificates")
    shown = authority.issue("client")
    serving = OF_SERVERS | authority.issue(password="secret").settings() | authority.asking("require")
    port, namesrv_port = free_ports()
    namesrv = NameServer(directory / "namesrv", 0, namesrv_port, directory / "namesrv.log", serving)
    own = serving | OF_CALLS | authority.trusting(shown) | {"autoCreateTopicEnable": "true"}
    broker = LoneBroker(directory / "broker", port, namesrv_port, directory / "broker.log", own)
    try:
        namesrv.start()
        broker.start()
        yield Encrypted(authority, namesrv, broker, shown)
        namesrv.check_crashes()
        broker.check_crashes()
    finally:
        broker.kill_all()
        namesrv.kill_all()


@pytest.mark.parametrize("language", JAVA)
def test_official_clients_and_our_servers(
    encrypted: Encrypted, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a certificate they send and read; without one they get nothing.

    Holds: network, TLS of servers.
    """
    topic = f"Encrypted_{language.replace('.', '_')}"

    def set_flags(*given: dict[str, str]) -> None:
        flags = java_flags(encrypted.authority.trusting(), *given)
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(flags))

    launcher = Launcher(encrypted.namesrv.namesrv, tmp_path)
    try:
        set_flags(encrypted.shown.settings("client"))
        launcher.run(language, "send", topic=topic, group=f"{topic}_sender", prefix="m", count=COUNT)
        reader = launcher.start(language, "litepull", topic=topic, group=f"{topic}_reader")
        assert len(reader.wait_messages(COUNT)) == COUNT
        reader.leave()
        set_flags()
        stranger = launcher.start(language, "send", topic=topic, group=f"{topic}_stranger", prefix="s")
        wait_until(lambda: "exception.Remoting" in stranger.errors.read_text(), "a client without certificate fails")
        assert not stranger.of_kind("sent")
    finally:
        launcher.close()
    assert "it shows no certificate" in encrypted.namesrv.text()


def test_official_mqadmin_and_our_servers(
    encrypted: Encrypted, new_mqadmin: NewMqAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = java_flags(encrypted.authority.trusting(encrypted.shown))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(flags))
    listed = new_mqadmin(encrypted.broker, "clusterList")
    assert f"127.0.0.1:{encrypted.broker.port}" in listed
    status = new_mqadmin(encrypted.broker, "brokerStatus", "-b", encrypted.broker.address)
    assert "bootTimestamp" in status


def test_an_official_broker_and_our_name_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    issued = authority.issue()
    port, namesrv_port = free_ports()
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "log", OF_SERVERS | issued.settings())
    home = tmp_path / "home"
    home.mkdir()
    write_logback(home)
    small = {"mappedFileSizeCommitLog": str(64 << 20), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}
    flags = java_flags(OF_SERVERS, issued.settings(), authority.trusting())
    broker = JavaBroker(home, home / "store", port, namesrv_port, small | {"autoCreateTopicEnable": "true"}, flags)
    try:
        namesrv.start()
        assert namesrv.process is not None
        broker.processes["namesrv"] = namesrv.process  # instead of its own
        broker.start()
        send_and_read(namesrv.namesrv, TlsOptions(ca_file=authority.ca_file), "Official")
        namesrv.check_crashes()
    finally:
        broker.kill_all()
        namesrv.kill_all()


def test_our_broker_and_an_official_name_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    issued = authority.issue()
    port, namesrv_port = free_ports()
    home = tmp_path / "home"
    home.mkdir()
    write_logback(home)
    flags = java_flags(OF_SERVERS, issued.settings())
    official = JavaBroker(home, home / "store", 0, namesrv_port, {}, flags)
    own = OF_SERVERS | issued.settings() | OF_CALLS | authority.trusting() | {"autoCreateTopicEnable": "true"}
    broker = LoneBroker(tmp_path / "broker", port, namesrv_port, tmp_path / "broker.log", own)
    try:
        official.start_namesrv()
        broker.start()
        send_and_read(official.namesrv, TlsOptions(ca_file=authority.ca_file), "Own")
        broker.check_crashes()
    finally:
        broker.kill_all()
        official.close()


def send_and_read(namesrv: str, tls: TlsOptions, topic: str) -> None:
    with Producer("G", ProducerOptions(name_servers=namesrv, tls=tls)) as producer:
        for number in range(COUNT):
            producer.send(Message(topic, b"%d" % number))
    with PullConsumer("G", PullOptions(name_servers=namesrv, tls=tls)) as consumer:
        consumer.subscribe(topic)
        read: set[bytes] = set()
        while len(read) < COUNT:
            polled = consumer.poll(timeout=30)
            assert polled, f"only {len(read)} messages came"
            read |= {message.body for message in polled}
