"""TLS between whole processes: brokers register by it, a slave asks its master by it, tools call by it, and the name
server goes on with a certificate that is replaced."""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message, ProducerOptions, TlsOptions
from rocketpy.client.sync import Producer
from tests.support import preloaded
from tests.support.broker import free_ports
from tests.support.certificates import Authority, Issued
from tests.support.pair import LoneBroker, NameServer, log_hashes
from tests.support.tls_proxy import PROXY_HOST, tls_proxy
from tests.support.wire import until

TOPIC = "Encrypted"
FILES = {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "65536", "flushDelayOffsetInterval": "500"}


@attrs.frozen
class Encrypted:
    """A name server that serves TLS alone, and brokers that are reached by TLS alone, through a proxy."""

    authority: Authority
    issued: Issued  # of the name server
    namesrv: NameServer
    master: LoneBroker
    slave: LoneBroker

    @property
    def options(self) -> TlsOptions:
        return TlsOptions(ca_file=self.authority.ca_file)

    def mqadmin(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [*preloaded.COMMAND, "admin", *words, "-n", self.namesrv.namesrv]
        return preloaded.run(command, timeout=60, env=os.environ | environ)


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Encrypted]:
    authority = Authority(tmp_path / "certificates")
    issued = authority.issue()
    serving = issued.settings() | {"tls.server.mode": "enforcing", "tls.config.file": "/dev/null"}
    calling = authority.trusting() | {"useTLS": "true", "tls.config.file": "/dev/null"}
    own = FILES | calling | {"brokerName": "broker-a", "brokerIP1": PROXY_HOST, "brokerIP2": "127.0.0.1"}
    port, namesrv_port = free_ports()
    slave_port, _ = free_ports()
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "namesrv.log", serving)
    master = LoneBroker(tmp_path / "master", port, namesrv_port, tmp_path / "master.log", own)
    as_slave = own | {"brokerRole": "SLAVE", "brokerId": "1"}
    slave = LoneBroker(tmp_path / "slave", slave_port, namesrv_port, tmp_path / "slave.log", as_slave)
    with tls_proxy([port, slave_port], authority.ca):
        try:
            namesrv.start()
            master.start()
            yield Encrypted(authority, issued, namesrv, master, slave)
            for one in (namesrv, master, slave):
                one.check_crashes()
        finally:
            for process in (slave, master, namesrv):
                process.kill_all()


def send(encrypted: Encrypted, count: int) -> None:
    with Producer("G", ProducerOptions(name_servers=encrypted.namesrv.namesrv, tls=encrypted.options)) as producer:
        for number in range(count):
            producer.send(Message(TOPIC, b"%d" % number))


def test_brokers_slaves_and_tools_call_by_tls(encrypted: Encrypted) -> None:
    """Holds: network, TLS of clients."""
    send(encrypted, 20)
    encrypted.slave.start()
    until(lambda: log_hashes(encrypted.slave.store) == log_hashes(encrypted.master.store), "the slave has the log")
    topics = encrypted.slave.store / "config" / "topics.json"
    until(lambda: topics.exists() and TOPIC in topics.read_text(), "the slave has the topics")
    ca = str(encrypted.authority.ca_file)
    listed = encrypted.mqadmin("--tls", "--tls-ca", ca, "clusterList")
    assert listed.returncode == 0 and listed.stdout.count("broker-a") == 2, listed
    assert encrypted.mqadmin("topicList", ROCKETMQ_TLS="1", ROCKETMQ_TLS_CA=ca).returncode == 0
    for words, message in ((["topicList"], "closed"), (["--tls", "topicList"], "its certificate is refused")):
        refused = encrypted.mqadmin(*words)
        assert refused.returncode == 1 and message in refused.stderr, refused


@pytest.mark.long
def test_a_certificate_is_replaced_while_it_is_used(encrypted: Encrypted) -> None:
    """The connections of before go on: the broker stays registered on its own.

    Holds: network, TLS of servers.
    """
    before = served_certificate(encrypted.namesrv)
    encrypted.issued.replace(encrypted.authority.issue())
    until(lambda: served_certificate(encrypted.namesrv) != before, "the new certificate is served")
    encrypted.issued.certificate.write_text("no certificate\n")
    until(lambda: "cannot load the changed certificate" in encrypted.namesrv.text(), "the bad file was seen")
    send(encrypted, 5)
    assert "loaded the changed certificate" in encrypted.namesrv.text()
    assert "removed broker" not in encrypted.namesrv.text(), "its connection was never closed"


def served_certificate(namesrv: NameServer) -> str:
    time.sleep(0.1)  # between two looks at a process that looks once a second
    return ssl.get_server_certificate(("127.0.0.1", namesrv.namesrv_port), timeout=5)


def test_doctor_sees_both_sides(encrypted: Encrypted, tmp_path: Path) -> None:
    broker, namesrv = tmp_path / "broker.conf", tmp_path / "namesrv.conf"
    for file, server in ((broker, encrypted.master), (namesrv, encrypted.namesrv)):
        file.write_text("".join(f"{key}={value}\n" for key, value in server.settings.items()))
    with broker.open("a") as more:
        more.write(f"namesrvAddr={encrypted.namesrv.namesrv}\nstorePathRootDir={tmp_path}\n")
    with namesrv.open("a") as more:
        more.write(f"listenPort={encrypted.namesrv.namesrv_port}\n")
    words = [*preloaded.COMMAND, "doctor", "-c", str(broker), "--namesrv", str(namesrv)]
    done = preloaded.run(words, timeout=60, env={"COLUMNS": "400", "HOME": "/"})
    report = " ".join(done.stdout.split())
    assert f"TLS at {encrypted.namesrv.namesrv}" in report and f"serves {encrypted.issued.certificate}" in report
    assert f"TLS of {encrypted.namesrv.namesrv}" in report and "trusted" in report
    assert "expires in 29 days" in report


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tls.server.mode": "enforcing"}, "tls.server.mode: enforcing needs tls.server.certPath"),
        ({"tls.server.certPath": "/none", "tls.server.keyPath": "/none"}, "cannot use /none with the key /none: /none"),
    ],
)
def test_a_start_that_cannot_be_is_one_line(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    words = [*preloaded.COMMAND, "namesrv", "--set", f"kvConfigPath={tmp_path}/kv.json"]
    for key, value in ({"tls.server.mode": "permissive", "tls.config.file": "/dev/null"} | settings).items():
        words += ["--set", f"{key}={value}"]
    done = preloaded.run(words, timeout=60)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1


def test_a_broker_with_bad_files_starts_nothing(tmp_path: Path) -> None:
    words = [*preloaded.COMMAND, "broker", "-n", "127.0.0.1:1", "--set", f"storePathRootDir={tmp_path}/s"]
    words += ["--set", "useTLS=true", "--set", "tls.client.trustCertPath=/none", "--set", "tls.config.file=/dev/null"]
    done = preloaded.run(words, timeout=60)
    assert done.returncode == 1 and not (tmp_path / "s").exists()
    assert (
        done.stderr
        == "rocketpy: tls.client.trustCertPath: cannot use /none: No such file or directory; correct the path\n"
    )
