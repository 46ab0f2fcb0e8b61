"""Official clients while `systemctl restart` restarts the broker and the name server of deploy/ in a real systemd
(`make test-dist`; Java 17, Maven, Go)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.programs import Launcher, Program
from tests.interop.training import prepare
from tests.support.own_systemd import OwnSystemd

from .test_units import BROKER, NAMESRV, rocketpy, systemd  # noqa: F401  fixtures

LANGUAGES = ("java-4.9.8", "java-5.3.3", "go")
APART = 200  # sends of each client between two restarts


@pytest.fixture
def launcher(systemd: OwnSystemd, tmp_path: Path) -> Iterator[Launcher]:  # noqa: F811
    """Its programs run in the network of this systemd."""
    try:
        prepare()
    except toolchain.Missing as missing:
        pytest.skip(f"{missing}: the official clients need a JDK (17 or later), Maven and Go")
    launcher = Launcher("127.0.0.1:9876", tmp_path, ["nsenter", "-t", str(systemd.pid), "-n"])
    yield launcher
    launcher.close()


def keys(programs: list[Program], kind: str) -> set[str]:
    return {str(event["key"]) for program in programs for event in program.of_kind(kind)}


def test_restarts_are_not_noticed_by_official_clients(
    systemd: OwnSystemd,  # noqa: F811
    launcher: Launcher,
) -> None:
    for unit in (NAMESRV, BROKER):
        systemd.start(unit)
    words = ("updateTopic", "-n", launcher.namesrv, "-c", "DefaultCluster", "-t", "T")
    created = systemd.run("/opt/rocketpy/bin/mqadmin", *words)
    assert created.returncode == 0, created.stdout + created.stderr
    consumers = [launcher.start(name, "push", topic="T", group="g") for name in ("java-4.9.8", "go")]
    for consumer in consumers:
        consumer.wait_until(lambda consumer=consumer: consumer.queues, "queues")
    producers = [
        launcher.start(
            name, "send", topic="T", group="p", prefix=name, mode="stream", retries=2, pause=2, timeout=20_000
        )
        for name in LANGUAGES
    ]
    for unit in (BROKER, NAMESRV, BROKER, None):
        for producer in producers:
            before = len(producer.of_kind("sent"))
            producer.wait_until(lambda p=producer, n=before: len(p.of_kind("sent")) >= n + APART, "sends go on")
        if unit is not None:
            restarted = systemd.run("systemctl", "restart", unit)
            assert restarted.returncode == 0, restarted.stderr
    for producer in producers:
        producer.leave()
        assert producer.of_kind("failed") == [], "a retry of the client succeeds"
    sent = keys(producers, "sent")
    consumers[0].wait_until(lambda: keys(consumers, "message") >= sent, "all that was acknowledged")
    for consumer in consumers:
        consumer.leave()
