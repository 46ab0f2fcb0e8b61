"""Official clients while the broker is restarted with ports that systemd keeps open: no send fails, nothing is lost.

The Java client 5.3.3 calls by TLS, the others are plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import create_topic
from tests.interop.programs import Launcher, Program, java_flags
from tests.support.broker import free_ports
from tests.support.certificates import Authority
from tests.support.handed_over import HandedOver, handed_over
from tests.support.pair import NameServer

BY_TLS = "java-5.3.3"
LANGUAGES = ("java-4.9.8", BY_TLS, "go")
QUEUES, RESTARTS, APART = 4, 2, 200


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[HandedOver]:
    port, namesrv_port = free_ports()
    tls = {"tls.config.file": "/dev/null", "tls.server.mode": "permissive"} | authority.issue().settings()
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "namesrv.log", tls)
    try:
        namesrv.start()
        with handed_over(tmp_path, port, namesrv_port, tls | {"brokerName": "broker-a"}) as running:
            yield running
            running.check_crashes()
    finally:
        namesrv.kill_all()


def keys(programs: list[Program], kind: str) -> set[str]:
    return {str(event["key"]) for program in programs for event in program.of_kind(kind)}


def test_restarts_are_not_noticed_by_clients(
    broker: HandedOver, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker, "T", QUEUES)
    launcher = Launcher(broker.namesrv, tmp_path)

    def start_sender(name: str) -> Program:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(java_flags(authority.trusting())) if name == BY_TLS else "")
        arguments = {"prefix": name, "mode": "stream", "retries": 2, "pause": 2, "timeout": 20_000}
        return launcher.start(name, "send", topic="T", group="p", **arguments)

    try:
        consumers = [launcher.start(name, "push", topic="T", group="g") for name in ("java-4.9.8", "go")]
        for consumer in consumers:
            consumer.wait_until(lambda consumer=consumer: consumer.queues, "queues")
        producers = [start_sender(name) for name in LANGUAGES]
        for number in range(RESTARTS + 1):
            for producer in producers:
                before = len(producer.of_kind("sent"))
                producer.wait_until(lambda p=producer, n=before: len(p.of_kind("sent")) >= n + APART, "sends go on")
            if number < RESTARTS:
                broker.restart()
        for producer in producers:
            producer.leave()
            assert producer.of_kind("failed") == [], "a retry of the client succeeds"
        sent = keys(producers, "sent")
        consumers[0].wait_until(lambda: keys(consumers, "message") >= sent, "all that was acknowledged")
        for consumer in consumers:
            consumer.leave()
    finally:
        launcher.close()
