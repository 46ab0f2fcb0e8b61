"""Real brokers and a real Prometheus: every panel of a dashboard shows something, and alerts fire when a broker is
broken on purpose."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest

from rocketpy.client import START_FIRST, Message, ProducerOptions, PushOptions
from rocketpy.client.sync import Producer, PushConsumer
from rocketpy.codes import RequestCode, ResponseCode
from tests.support.certificates import Authority
from tests.support.etcd import MISSING, free_ports, is_installed
from tests.support.ha.group import Group, Member, real_group
from tests.support.pair import NameServer
from tests.support.prometheus import FIRES_S, Prometheus, alerts, needs_prometheus, running_prometheus
from tests.support.rules import ROOT
from tests.support.running_console import RunningConsole, running_console
from tests.support.waiting import wait_until
from tests.support.wire import Wire, send_request

pytestmark = [needs_prometheus, pytest.mark.skipif(not is_installed(), reason=MISSING)]

TOPIC = "Watched"
MASTERS = 'rocketpy_ha_member{state="master"} == 1'
CELL = re.compile("<td.*?>(.*?)</td>", re.DOTALL)
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = sorted(set(GRAFANA.glob("*.json")) - {GRAFANA / "spark.json"})  # tests/spark/test_lag.py has that one


@attrs.frozen
class Scene:
    """A group of two with automatic failover, its name server, and the Prometheus that watches them."""

    group: Group
    prometheus: Prometheus

    @property
    def master(self) -> Member:
        """The member that is master now."""
        self.group.wait_for(self.group.master, "a master")
        return self.group.members[self.group.master() or ""]

    @property
    def slave(self) -> Member:
        return self.group.members[self.group.other(self.master.name)]

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
            yield Scene(group, prometheus)


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
    with Wire.open(scene.master.port) as wire:
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
    member = scene.master
    for _ in range(3):
        died = member.pids()["pull"]
        os.kill(died, signal.SIGKILL)
        wait_until(lambda died=died: member.pids().get("pull", died) != died, "the next one")  # type: ignore[misc]
    alert = scene.prometheus.wait_until_fires("RocketpyWorkerRestarts")
    assert alert["labels"]["worker"] == "pull"


def test_a_broker_that_is_started_repeatedly(scene: Scene) -> None:
    """Starts within one second look like one, as the metric has whole seconds.
    Fault: A broker that died every minute, and was started by systemd, was named by no alert."""
    slave = scene.slave
    instance = f"127.0.0.1:{slave.settings['metricsPort']}"
    start = f'rocketpy_broker_start_time_seconds{{instance="{instance}"}}'
    for _ in range(4):
        (before,) = scene.prometheus.query(start)
        wait_until(lambda second=before[1]: time.time() > second + 1, "another second")  # type: ignore[misc]
        slave.kill_all()
        slave.begin()
        is_new = partial(lambda old: scene.prometheus.query(start) not in ([], [old]), before)
        wait_until(is_new, "its start", FIRES_S)
    wait_until(lambda: scene.prometheus.fires("RocketpyRestarts", instance=instance), "the alert", FIRES_S)
    scene.group.wait_in_sync()


def test_a_coordinator_that_hangs(scene: Scene) -> None:
    """The master's lease ends before the guardian replaces the coordinator, and the group elects.
    Fault: A former master, which follows now, was said to have lost its last slave for six hours."""
    member, epoch = scene.master, scene.group.epoch()
    hanging, instance = member.pids()["coordinator"], f"127.0.0.1:{member.settings['metricsPort']}"

    def is_told() -> bool:
        return scene.prometheus.fires("RocketpyLeaseLost", instance=instance)

    os.kill(hanging, signal.SIGSTOP)
    wait_until(is_told, "the alert RocketpyLeaseLost", FIRES_S)
    wait_until(lambda: member.pids().get("coordinator", hanging) != hanging, "another coordinator", FIRES_S)
    assert "coordinator has made no turn for" in member.text()
    scene.group.wait_for(lambda: scene.group.epoch() > epoch, "an election")
    scene.group.wait_in_sync()
    wait_until(lambda: not is_told(), "the end of the alert", FIRES_S)
    follows = f'rocketpy_ha_following{{instance="{instance}"}}'
    wait_until(lambda: bool(scene.prometheus.query(follows)), "a scrape of the former master", FIRES_S)
    (lost,) = (rule["expr"] for rule in alerts() if rule["alert"] == "RocketpySlaveLost")
    assert instance not in [labels["instance"] for labels, _ in scene.prometheus.query(lost)]


def test_a_guardian_that_hangs(scene: Scene) -> None:
    """That of a slave, which could not become master. A master serves without its guardian, and no alert fires."""
    slave = scene.slave
    assert slave.process is not None
    slave.process.send_signal(signal.SIGSTOP)
    alert = scene.prometheus.wait_until_fires("RocketpyMemberFault")
    record = scene.group.registered(slave.name)
    slave.process.send_signal(signal.SIGCONT)
    assert alert["annotations"]["summary"] == "1 members cannot serve as master"
    assert record is not None and record.fault == "its guardian does not run"
    wait_until(lambda: "RocketpyMemberFault" not in scene.prometheus.firing(), "the end of the alert", FIRES_S)


def shown_roles(page: str, *addresses: str) -> list[list[str]]:
    """Role, answer, state, epoch and whom it follows of each member, as the page Failover shows them."""
    rows = {}
    for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL):
        texts = [" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in CELL.findall(row)]
        rows[texts[0] if texts else ""] = texts
    return [[*rows[address][1:5], rows[address][6]] for address in addresses if address in rows]


def check_shown_roles(console: RunningConsole, scene: Scene) -> None:
    scene.group.wait_in_sync()
    master, slave = scene.master, scene.slave
    slave_id = {"a": 1, "b": 2}[slave.name]
    expected = [
        ["master 0", "up", "MASTER", str(scene.group.epoch()), "-"],
        [f"slave {slave_id}", "up", "IN_SYNC", "-", master.address],
    ]

    def shown() -> list[list[str]]:
        return shown_roles(console.page("/failover"), master.address, slave.address)

    with contextlib.suppress(AssertionError):  # the next line says what it shows
        wait_until(lambda: shown() == expected, "the roles", FIRES_S)
    assert shown() == expected
    assert f"Slaves of {master.address}, 1 in sync" in console.page("/failover")


def test_the_console_follows_a_change_of_the_master(scene: Scene, tmp_path: Path) -> None:
    """Role, state and epoch of each member, whom it follows, and who is in sync.

    Fault: Brokers of a group told neither console nor mqadmin their state and epoch.
    """
    with running_console(scene.namesrv, tmp_path / "log") as console:
        check_shown_roles(console, scene)
        scene.group.switch_over(scene.slave.name)
        check_shown_roles(console, scene)


def test_a_lost_slave(scene: Scene) -> None:
    scene.slave.kill_all()
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
