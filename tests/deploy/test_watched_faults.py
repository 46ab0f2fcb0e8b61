"""Faults while alerts and console look on: each is named by both, the commands of its page end it, and no acknowledged
message is lost.

One cluster for all tests, in their order: each leaves it as it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import START_FIRST, PushOptions
from rocketpy.client.sync import PushConsumer
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.certificates import Issued
from tests.support.ha.needs import needs_compiler, needs_disks
from tests.support.prometheus import FIRES_S, needs_prometheus
from tests.support.waiting import wait_until
from tests.support.watched import SLOW_GROUP, TOPIC, Watched, watched
from tests.support.wire import Wire, send_request

pytestmark = [pytest.mark.watch, pytest.mark.one_try, needs_prometheus, needs_disks, needs_compiler]

MONITOR = "run/monitor.md"
BROKER_PAGE = "/broker?name=broker-a"
HOUR_S = 3600.0
OLD_S = 48 * HOUR_S


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("watched")) as scene:
        try:
            yield scene
        except BaseException as failure:
            for broker in (scene.master, scene.slave):
                failure.add_note(f"{broker.store}:\n{broker.text()[-6000:]}")
            raise


@pytest.fixture
def scene(whole: Watched) -> Iterator[Watched]:
    """The cluster; afterwards nothing fires, clients are served, and every acknowledged message is there."""
    yield whole
    whole.wait_until_calm()
    whole.load.wait_until_served()
    whole.load.check(whole.master.port)
    assert "Traceback" not in whole.master.text() + whole.slave.text()


def test_each_worker_that_hangs(scene: Watched) -> None:
    """The manager serves the metrics, so a manager that hangs answers no scrape."""
    master, workers = scene.instance(scene.master), scene.master.workers()
    assert {"codec 0", "query 0"} <= workers.keys()
    for title, pid in workers.items():
        name = title.replace(" ", "-")
        os.kill(pid, signal.SIGSTOP)
        if name == "manager":
            scene.wait_for_alert("RocketpyDown", instance=master)
        else:
            scene.wait_for_alert("RocketpyWorkerHangs", instance=master, worker=name)
        scene.wait_for_console(f"worker {name} has not moved", "does not answer")
        scene.wait_for_alert("RocketpyWorkerReplaced", instance=master, worker=name)
        scene.wait_for_console(f"worker {name} was replaced", path=BROKER_PAGE)
        log = scene.follow(MONITOR, "RocketpyWorkerHangs", block=0)
        assert f"worker {name} has not sent a heartbeat" in log
        assert f"worker {name} was killed by SIGKILL; restarting" in scene.follow(MONITOR, "RocketpyWorkerReplaced")
        scene.load.wait_until_served()


def test_the_replicator_of_a_slave_hangs(scene: Watched) -> None:
    os.kill(scene.slave.workers()["replicator"], signal.SIGSTOP)
    scene.wait_for_alert("RocketpyWorkerHangs", instance=scene.instance(scene.slave), worker="replicator")
    scene.wait_for_console("worker replicator has not moved")
    scene.wait_for_alert("RocketpyWorkerReplaced", instance=scene.instance(scene.slave), worker="replicator")
    scene.wait_for_console(f"broker broker-a {scene.slave.address}: worker replicator was replaced")


def test_a_supervisor_that_hangs_with_a_worker(scene: Watched) -> None:
    """Nobody replaces the worker: the page says that a restart does."""
    master = scene.master
    assert master.process is not None
    os.kill(master.process.pid, signal.SIGSTOP)
    os.kill(master.workers()["pull"], signal.SIGSTOP)
    begun_s = time.monotonic()
    scene.wait_for_alert("RocketpyWorkerHangs", instance=scene.instance(master), worker="pull")
    scene.wait_for_console("worker pull has not moved")
    wait_until(lambda: time.monotonic() > begun_s + 15, "the time in which a worker would be replaced")
    assert scene.prometheus.fires("RocketpyWorkerHangs", worker="pull")
    scene.follow(MONITOR, "RocketpyWorkerHangs", block=1)


def test_a_group_that_reads_slowly(scene: Watched) -> None:
    options = PushOptions(name_servers=scene.namesrv.namesrv, start=START_FIRST, concurrency=1)
    with contextlib.ExitStack() as first:
        hanging = PushConsumer(SLOW_GROUP, {TOPIC: "*"}, lambda message: time.sleep(1), options=options)
        first.enter_context(hanging)
        scene.wait_for_alert("RocketpyBacklogAlarm", instance=scene.instance(scene.master))
        scene.wait_for_console(f"group {SLOW_GROUP}:")
        scene.wait_for_console(TOPIC, path=f"/group?name={SLOW_GROUP}")
        shown = scene.follow(MONITOR, "RocketpyBacklogAlarm", GROUP=SLOW_GROUP)
        assert TOPIC in shown and "CLIENT" in shown.upper(), "queues that wait, members that should read"
    with PushConsumer(SLOW_GROUP, {TOPIC: "*"}, lambda message: None, options=options):
        scene.wait_until_calm()
    scene.operators["master"].run(f"mqadmin deleteSubGroup -b $HOST:10911 -g {SLOW_GROUP} -r true\n")


def test_a_client_that_reads_no_answers(scene: Watched) -> None:
    """Each asks for a large message again and again, and takes no answer: together more than unsentOutputMax."""
    phy_offset = scene.load.send_large()
    question = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(phy_offset)})
    with contextlib.ExitStack() as stack:
        for _ in range(10):  # of one the broker reads no more when a megabyte waits
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", scene.master.port))
            with contextlib.suppress(OSError):  # it is closed already
                Wire(sock).tell(*[question] * 150)
        scene.wait_for_alert("RocketpyUnreadAnswers", instance=scene.instance(scene.master))
        scene.wait_for_console("connections closed whose clients left answers unread")
    assert "unread responses took more than unsentOutputMax" in scene.follow(MONITOR, "RocketpyUnreadAnswers")


def test_a_storm_of_connections(scene: Watched) -> None:
    def storm(count: int) -> int:
        """Open connections and return how many of them the broker closes at once."""
        with contextlib.ExitStack() as stack:
            address = ("127.0.0.1", scene.master.port)
            opened = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
            time.sleep(1)
            return sum(_is_closed(each) for each in opened)

    assert storm(300) > 100
    scene.wait_for_alert("RocketpyConnectionsRefused", instance=scene.instance(scene.master))
    scene.wait_for_console(f"broker broker-a {scene.master.address}: ", path=BROKER_PAGE)
    scene.wait_for_console("connections refused within", path=BROKER_PAGE)
    scene.follow(MONITOR, "RocketpyConnectionsRefused")
    assert storm(300) == 0


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])
def test_a_clock_that_jumps(scene: Watched, jump_s: float) -> None:
    scene.clock.step(wall_s=jump_s)
    scene.wait_for_alert("RocketpyClockSkew", instance=scene.instance(scene.master))
    way = "ahead of" if jump_s > 0 else "behind"
    texts = (f"{scene.master.address}: its clock is {s} s {way} that" for s in range(3590, 3611))
    scene.wait_for_console(*texts, path=BROKER_PAGE)
    scene.load.wait_until_served()
    scene.follow(MONITOR, "RocketpyClockSkew")


def test_a_certificate_that_has_expired(scene: Watched, tmp_path: Path) -> None:
    etc = scene.master.conf.parent
    in_use = Issued(etc / "server.pem", etc / "server-key.pem")
    in_use.replace(scene.authority.issue(days=-1))
    scene.wait_for_alert("RocketpyCertificateExpires", instance=scene.instance(scene.master))
    scene.wait_for_console(f"{scene.master.address}: its certificate expired")
    new = scene.authority.issue()
    for name, file in (("server.pem", new.certificate), ("server-key.pem", new.key)):
        (tmp_path / name).write_bytes(file.read_bytes())
    assert "notAfter=" in scene.follow("run/tls.md", "Replace a certificate", **{"new/": f"{tmp_path}/"})


def test_a_lost_slave(scene: Watched) -> None:
    scene.slave.kill_all()
    for alert, broker in (("RocketpySlaveLost", scene.master), ("RocketpyDown", scene.slave)):
        scene.wait_for_alert(alert, instance=scene.instance(broker))
    scene.wait_for_console(f"broker broker-a {scene.slave.address}: this slave")
    scene.follow(MONITOR, "RocketpySlaveLost", on="slave")
    status = "mqadmin haStatus"
    wait_until(lambda: "replicating" in scene.operators["slave"].run(status).lower(), "the slave", FIRES_S)


def test_a_full_disk(scene: Watched) -> None:
    """Files of the log are old, and fileReservedTime keeps them for three days."""
    old = sorted((scene.master.store / "commitlog").glob("[0-9]*"))[:30]
    for file in old:
        at_s = file.stat().st_mtime - OLD_S
        os.utime(file, (at_s, at_s))
    failures = scene.load.failures
    scene.disk.fill_but(18 << 20)
    scene.wait_for_alert("RocketpyDiskFilling", instance=scene.instance(scene.master))
    scene.wait_for_alert("RocketpySendFailures", instance=scene.instance(scene.master))
    scene.wait_for_console(f"broker broker-a {scene.master.address}: disk 9")
    scene.wait_for_console("sends answered with an error", path=BROKER_PAGE)
    assert scene.load.failures > failures
    shown = scene.follow(MONITOR, "RocketpySendFailures")
    assert "putMessageFailedTimes" in shown and "disk" in shown
    scene.follow("run/backup-and-repair.md", "Full disk")
    scene.wait_until_calm()
    assert not any(file.exists() for file in old)
    scene.disk.make_room()


def test_sends_that_the_manager_refuses(scene: Watched) -> None:
    """The send worker passes what it does not know to the manager, which says no."""
    with Wire.open(scene.master.port) as wire:

        def is_told() -> bool:
            answer = wire.ask(send_request("no such name!", b"refused"))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            return scene.prometheus.fires("RocketpySendFailures", instance=scene.instance(scene.master))

        wait_until(is_told, "the alert RocketpySendFailures", FIRES_S)
    refused = scene.prometheus.query('rocketpy_send_failures_total{worker="manager"}')
    assert sum(value for _, value in refused) > 0
    scene.wait_for_console("sends answered with an error", path=BROKER_PAGE)
