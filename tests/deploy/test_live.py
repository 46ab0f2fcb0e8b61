"""Real brokers and a real Prometheus: every panel of a dashboard shows something, and alerts fire when a broker is
broken on purpose."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.client import START_FIRST, Message, ProducerOptions, PushOptions
from rocketpy.client.sync import Producer, PushConsumer
from rocketpy.codes import RequestCode, ResponseCode
from tests.support.certificates import Authority
from tests.support.etcd import MISSING, free_ports, is_installed
from tests.support.ha.group import Group, real_group
from tests.support.pair import NameServer
from tests.support.prometheus import Prometheus, needs_prometheus, running_prometheus
from tests.support.rules import ROOT
from tests.support.waiting import wait_until
from tests.support.wire import Wire, send_request

pytestmark = [needs_prometheus, pytest.mark.skipif(not is_installed(), reason=MISSING)]

TOPIC = "Watched"
MASTERS = 'rocketpy_ha_member{state="master"} == 1'
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = sorted(set(GRAFANA.glob("*.json")) - {GRAFANA / "spark.json"})  # tests/spark/test_lag.py has that one


@attrs.frozen
class Scene:
    """A group of two with automatic failover, its name server, and the Prometheus that watches them."""

    group: Group
    prometheus: Prometheus
    master: str

    @property
    def namesrv(self) -> str:
        return self.group.namesrv.namesrv

    def send(self, count: int) -> None:
        with Producer("watched", ProducerOptions(name_servers=self.namesrv)) as producer:
            for number in range(count):
                producer.send(Message(TOPIC, b"%d" % number))

    def consumer(self, group: str, tags: str = "*") -> PushConsumer:
        options = PushOptions(name_servers=self.namesrv, start=START_FIRST)
        return PushConsumer(group, {TOPIC: tags}, lambda message: None, options=options)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("scene")
    own, of_namesrv, *of_members = free_ports(4)

    class Watched(NameServer):
        def command(self) -> list[str]:
            return [*super().command(), "--set", f"metricsPort={of_namesrv}"]

    settings = {"backlogAlarmMessages": "50", "metricsNames": "rocketpy,exporter,rocketmq5"}
    ports = iter(of_members)
    with real_group(
        directory,
        settings=settings,
        kind=Watched,
        arrange=lambda member: member.settings.update(metricsPort=str(next(ports))),
    ) as group:
        targets = {"rocketpy-broker": of_members, "rocketpy-namesrv": [of_namesrv], "rocketpy-queues": of_members}
        with running_prometheus(directory, own, targets, TOPIC) as prometheus:
            wait_until(lambda: len(prometheus.query(MASTERS)) == 1, "a master")
            ((labels, _),) = prometheus.query(MASTERS)
            (master,) = (
                name for name, each in group.members.items() if each.settings["metricsPort"] in labels["instance"]
            )
            yield Scene(group, prometheus, master)


def test_nothing_fires_where_nothing_is_wrong(scene: Scene) -> None:
    wait_until(lambda: scene.prometheus.query("sum(up)") == [({}, 5.0)], "scrapes of all servers")
    wait_until(lambda: bool(scene.prometheus.query("instance:rocketpy_send_messages:rate1m")), "the recorded rates")
    wait_until(lambda: scene.prometheus.firing() == {}, "silence")


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: str(file.stem))
def test_every_panel_shows_something(scene: Scene, file: Path) -> None:
    scene.send(10)
    with scene.consumer("readers"):
        scene.prometheus.wait_until_panels_have_data(file)


def test_figures_of_queues_are_scraped_beside_the_others(scene: Scene) -> None:
    """By the job that names topics; its answers have nothing of the others."""
    query = f'rocketpy_queue_consumer_offset{{job="rocketpy-queues",group="readers",topic="{TOPIC}"}}'
    wait_until(lambda: sum(value for _, value in scene.prometheus.query(query)) > 0, "offsets of the queues")
    assert scene.prometheus.query('rocketpy_broker_topics{job="rocketpy-queues"}') == []


def test_sends_that_fail(scene: Scene) -> None:
    with Wire.open(scene.group.members[scene.master].port) as wire:
        answer = wire.ask(send_request(TOPIC, b"no batch", code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    alert = scene.prometheus.wait_until_fires("RocketpySendFailures")
    assert "sends per second with an error" in alert["annotations"]["summary"]


def test_a_group_that_is_behind(scene: Scene) -> None:
    with scene.consumer("readers"):
        scene.send(5)
    scene.send(60)
    scene.prometheus.wait_until_fires("RocketpyBacklogAlarm")


def test_members_that_subscribe_differently(scene: Scene) -> None:
    with scene.consumer("divided"), scene.consumer("divided", "A"):
        alert = scene.prometheus.wait_until_fires("RocketpyDifferingSubscriptions")
    assert alert["annotations"]["summary"] == "members of group divided subscribe differently"


def test_a_worker_that_dies_repeatedly(scene: Scene) -> None:
    member = scene.group.members[scene.master]
    for _ in range(3):
        died = member.pids()["pull"]
        os.kill(died, signal.SIGKILL)
        wait_until(lambda died=died: member.pids().get("pull", died) != died, "the next one")  # type: ignore[misc]
    alert = scene.prometheus.wait_until_fires("RocketpyWorkerRestarts")
    assert alert["labels"]["worker"] == "pull"


def test_a_lost_slave(scene: Scene) -> None:
    scene.group.members[scene.group.other(scene.master)].kill_all()
    for alert in ("RocketpyDown", "RocketpySlaveLost", "RocketpyLoneMaster"):
        scene.prometheus.wait_until_fires(alert)


def test_a_lost_etcd(scene: Scene) -> None:
    """The last test of the group: it has no master afterwards."""
    scene.group.etcd.kill(0)
    for alert in ("RocketpyLeaseLost", "RocketpyNoMaster"):
        scene.prometheus.wait_until_fires(alert)


def test_certificates_and_handshakes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue(days=5)
    own, metrics, port = free_ports(3)
    settings = issued.settings() | {"tls.server.mode": "enforcing", "tls.config.file": "/dev/null"}
    settings |= {"metricsPort": str(metrics)}
    namesrv = NameServer(tmp_path / "store", 0, port, tmp_path / "log", settings)
    try:
        namesrv.start()
        with running_prometheus(tmp_path, own, {"rocketpy-namesrv": [metrics]}) as prometheus:
            prometheus.wait_until_fires("RocketpyCertificateExpires")
            issued.certificate.write_text("no certificate")
            prometheus.wait_until_fires("RocketpyCertificateNotLoaded")

            def is_told() -> bool:
                for _ in range(60):
                    with socket.create_connection(("127.0.0.1", port)) as stranger:
                        stranger.sendall(bytes(100))
                return "RocketpyTlsRefused" in prometheus.firing()

            wait_until(is_told, "the alert RocketpyTlsRefused")
    finally:
        namesrv.kill_all()
