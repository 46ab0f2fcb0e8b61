"""The systemd units of deploy/: systemd's own tools take them, and a real systemd runs them (`make test-dist`)."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.own_systemd import OwnSystemd, own_systemd
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

UNITS = sorted((ROOT / "deploy").glob("rocketpy-*.service")) + sorted((ROOT / "deploy").glob("rocketpy-*.socket"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
BROKER, NAMESRV = "rocketpy-broker.service", "rocketpy-namesrv.service"
BROKER_SOCKET = "rocketpy-broker.socket"
EXPOSURE_MAX = 2.0  # of 10, by systemd-analyze security
PYTHON = "/usr/bin/python3"  # ProtectHome=yes hides those below home directories
SEND = """
import sys
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
with Producer("units", ProducerOptions(name_servers="127.0.0.1:9876")) as producer:
    for number in range(int(sys.argv[1])):
        print(producer.send(Message("Units", b"%d" % number)).status.name)
"""
SEND_ON = """
import select, sys
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
number, options = 0, ProducerOptions(name_servers="127.0.0.1:9876", send_timeout=60, api_timeout=60)
with Producer("units", options) as producer:
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        number += 1
        print(producer.send(Message("Restarts", b"sent", keys=f"key-{number}")).status.name, number, flush=True)
print("sent", number)
"""
READ = """
from rocketpy.client import PullOptions
from rocketpy.client.sync import PullConsumer
with PullConsumer("units", PullOptions(name_servers="127.0.0.1:9876")) as consumer:
    for queue in consumer.queues("Restarts"):
        offset, end = 0, consumer.max_offset(queue)
        while offset < end:
            found = consumer.pull(queue, offset)
            for message in found.messages:
                print(message.properties["KEYS"])
            offset = found.next_begin_offset
"""
DIAL = """
import socket
print("dialling", flush=True)
while True:
    for port in (10911, 10909, 10912, 9876):
        socket.create_connection(("127.0.0.1", port)).close()
"""

CONNECT = """
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
"""
DIE = """printf '[Service]
ExecStart=
ExecStart=/opt/rocketpy/bin/python -c "import os; \\
    from rocketpy.processes.boot.service_manager import ServiceManager; \\
    ServiceManager.of(os.environ); os.kill(os.getpid(), 9)"
' > /etc/systemd/system/rocketpy-broker.service.d/die.conf; systemctl daemon-reload"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("systemd-analyze") or not shutil.which("unshare"),
    reason="needs root, systemd and unshare",
)


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:  # the commands are not there yet, and no user rocketpy
        text = re.sub(r"^ExecStart=.*", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(re.sub(r"^User=.*", "User=daemon", text, flags=re.MULTILINE))
    for unit in UNITS:
        words = ["systemd-analyze", "verify", str(tmp_path / unit.name)]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
        said = [line for line in checked.stderr.splitlines() if "rocketpy" in line]
        assert (checked.returncode, said) == (0, []), checked.stderr


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: str(unit.name))
def test_the_exposure_of_a_unit(unit: Path) -> None:
    words = ["systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_MAX * 10:.0f}"]
    checked = subprocess.run([*words, str(unit)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.fixture(scope="module")
def rocketpy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that becomes /opt/rocketpy: the wheel in an environment of the system's Python."""
    (wheel,) = (ROOT / "dist").glob(f"*-abi3-manylinux*_{platform.machine()}.whl")
    home = tmp_path_factory.mktemp("opt")
    pip = [shutil.which("python3"), "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", home]
    for words in ([PYTHON, "-m", "venv", "--without-pip", home], [*pip, "install", wheel]):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for script in (home / "bin").iterdir():
        if script.is_file() and not script.is_symlink() and (text := script.read_text()).startswith(f"#!{home}"):
            script.write_text(text.replace(f"#!{home}", "#!/opt/rocketpy", 1))
    home.chmod(0o755)
    return home


@pytest.fixture
def systemd(rocketpy: Path, tmp_path: Path) -> Iterator[OwnSystemd]:
    configuration = tmp_path / "configuration"
    (tmp_path / "units").mkdir()
    configuration.mkdir()
    for name in ("broker.conf", "namesrv.conf"):
        shutil.copy(ROOT / "deploy" / name, configuration)
    with (configuration / "broker.conf").open("a") as file:
        file.write("\nmappedFileSizeCommitLog=8388608\n")
    for unit in UNITS:
        shutil.copy(unit, tmp_path / "units")
    with own_systemd(rocketpy, configuration, tmp_path) as own:
        yield own


def send(systemd: OwnSystemd, count: int) -> None:
    sent = systemd.run("/opt/rocketpy/bin/python", "-c", SEND, count)
    assert sent.stdout.split() == ["SEND_OK"] * count, sent.stdout + sent.stderr


def main_pid(systemd: OwnSystemd) -> int:
    return int(systemd.show(BROKER, "MainPID") or 0)


def test_a_started_unit_serves(systemd: OwnSystemd) -> None:
    """Under all restrictions of the unit: MemoryDenyWriteExecute, the filter of system calls and the others."""
    systemd.start(NAMESRV)
    systemd.start(BROKER)
    send(systemd, 10)
    assert systemd.show(BROKER, "WatchdogUSec") == "30s"
    stopped = systemd.run("systemctl", "stop", BROKER, NAMESRV)
    assert stopped.returncode == 0, stopped.stderr
    for unit in SERVICES:
        assert systemd.show(unit.name, "Result") == "success"


def test_a_broker_that_hangs_is_restarted(systemd: OwnSystemd) -> None:
    systemd.run("sed", "-i", "s/^WatchdogSec=.*/WatchdogSec=2/", f"/etc/systemd/system/{BROKER}")
    systemd.run("systemctl", "daemon-reload")
    systemd.start(NAMESRV)
    systemd.start(BROKER)
    send(systemd, 1)
    first = main_pid(systemd)
    systemd.run("kill", "-STOP", first)
    wait_until(lambda: main_pid(systemd) not in (first, 0), "the restart of the broker")
    assert systemd.show(BROKER, "NRestarts") == "1"
    wait_until(lambda: systemd.show(BROKER, "ActiveState") == "active", "the broker")
    send(systemd, 1)


def sent_count(log: Path) -> int:
    return log.read_text().count("SEND_OK")


def check_sent(systemd: OwnSystemd, log: Path) -> None:
    """Hold what a run of SEND_ON has printed against the broker: each send succeeded, and is stored once."""
    *lines, last = log.read_text().splitlines()
    acknowledged = [line for line in lines if line.startswith("SEND_OK ")]
    assert last == f"sent {len(acknowledged)}" and "Connection refused" not in log.read_text(), log.read_text()[-4000:]
    keys = [f"key-{line.split()[1]}" for line in acknowledged]
    stored: Counter[str] = Counter()

    def is_stored() -> bool:
        read = systemd.run("/opt/rocketpy/bin/python", "-c", READ)
        assert read.returncode == 0, read.stderr
        stored.clear()
        stored.update(read.stdout.split())
        return stored.keys() >= set(keys)

    with contextlib.suppress(AssertionError):  # the next line names the keys
        wait_until(is_stored, "all messages")
    assert [(key, stored[key]) for key in keys if stored[key] != 1] == []


@contextlib.contextmanager
def dialled(systemd: OwnSystemd) -> Iterator[subprocess.Popen[str]]:
    """Somebody connects to all ports all the time; at the end no connection may have been refused."""
    words = ["nsenter", "-t", str(systemd.pid), "-n", PYTHON, "-c", DIAL]
    dialling = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert dialling.stdout is not None and dialling.stdout.readline() == "dialling\n"
    try:
        yield dialling
        assert dialling.poll() is None, dialling.communicate()[1]
    finally:
        dialling.kill()
        dialling.communicate()


@pytest.mark.parametrize("units", [(), ("rocketpy-namesrv.socket", BROKER_SOCKET)], ids=["default", "socket units"])
def test_a_restart_refuses_no_connection_and_loses_no_message(
    systemd: OwnSystemd, tmp_path: Path, units: tuple[str, ...]
) -> None:
    """A client sends all the time. Its retries after a connection that ended succeed."""
    for unit in (*units, NAMESRV, BROKER):
        systemd.start(unit)
    log = tmp_path / "sender.log"

    def wait_for_sends() -> None:
        count = sent_count(log)
        wait_until(lambda: sending.poll() is not None or sent_count(log) >= count + 50, "sends", 120)
        assert sending.poll() is None, log.read_text()[-4000:]

    with systemd.begin("/opt/rocketpy/bin/python", "-c", SEND_ON, log=log) as sending:
        wait_for_sends()
        try:
            with dialled(systemd):
                for unit in (BROKER, NAMESRV, BROKER):
                    wait_for_sends()
                    restarted = systemd.run("systemctl", "restart", unit)
                    assert restarted.returncode == 0, restarted.stderr
                wait_for_sends()
        finally:
            sending.communicate()
    check_sent(systemd, log)


def connect(systemd: OwnSystemd, port: int = 10911) -> bool:
    return systemd.run(PYTHON, "-c", CONNECT, port).returncode == 0


def kept_count(systemd: OwnSystemd, unit: str) -> int:
    return int(systemd.show(unit, "NFileDescriptorStore"))


def test_systemd_keeps_each_socket_once_until_a_stop(systemd: OwnSystemd) -> None:
    """Over 20 restarts, and a kill -9. The ports are closed while the servers are stopped."""
    for unit in (NAMESRV, BROKER):
        systemd.start(unit)
    with dialled(systemd):
        for unit in (NAMESRV, BROKER) * 10:
            systemd.run("systemctl", "reset-failed", unit)  # so many starts in a row are refused
            restarted = systemd.run("systemctl", "restart", unit)
            assert restarted.returncode == 0, restarted.stderr
        first = main_pid(systemd)
        systemd.run("kill", "-KILL", first)
        wait_until(lambda: main_pid(systemd) not in (first, 0), "the restart of the broker")
        wait_until(lambda: systemd.show(BROKER, "ActiveState") == "active", "the broker")
        assert (kept_count(systemd, NAMESRV), kept_count(systemd, BROKER)) == (1, 3)
    assert systemd.run("systemctl", "stop", BROKER, NAMESRV).returncode == 0
    assert (kept_count(systemd, NAMESRV), kept_count(systemd, BROKER)) == (0, 0)
    assert [port for port in (10909, 10911, 10912, 9876) if connect(systemd, port)] == []


def test_a_restart_with_another_address_closes_the_former_one(systemd: OwnSystemd) -> None:
    """Other ports, of which 10911 was another one before, and then the same ports of all addresses."""
    systemd.start(BROKER)
    for lines, open_ports in (("listenPort=10913", (10911, 10913, 10914)), ("bindAddress=::", (10911, 10913, 10914))):
        systemd.run("sh", "-c", f"echo {lines} >> /etc/rocketpy/broker.conf")
        assert systemd.run("systemctl", "restart", BROKER).returncode == 0
        assert [port for port in (10909, 10911, 10912, 10913, 10914) if connect(systemd, port)] == list(open_ports)
        assert kept_count(systemd, BROKER) == 3


@pytest.mark.parametrize(
    "change",
    ["echo listenPort=none >> FILE", "echo storePathRootDir=/proc/store >> FILE", "rm FILE", DIE],
    ids=["a wrong property", "no store", "no file", "a signal"],
)
def test_clients_do_not_wait_for_a_broker_that_cannot_start(systemd: OwnSystemd, change: str) -> None:
    """They are refused while systemd tries it again and again, on a slow machine for ever."""
    systemd.start(BROKER)
    systemd.run("sh", "-c", change.replace("FILE", "/etc/rocketpy/broker.conf"))
    assert systemd.run("systemctl", "restart", BROKER).returncode != 0
    assert kept_count(systemd, BROKER) == 0 and not connect(systemd)


def test_a_stop_with_socket_units_takes_both_units(systemd: OwnSystemd) -> None:
    """As docs/run/upgrade.md says: the next connection starts a broker whose service alone was stopped."""
    for unit in (BROKER_SOCKET, BROKER):
        systemd.start(unit)
    stopped = systemd.run("systemctl", "stop", BROKER)
    assert stopped.returncode == 0 and BROKER_SOCKET in stopped.stderr, "systemd says what can start it again"
    assert connect(systemd)
    wait_until(lambda: systemd.show(BROKER, "ActiveState") == "active", "the start by a connection")
    assert systemd.run("systemctl", "stop", BROKER_SOCKET, BROKER).returncode == 0
    assert not connect(systemd) and systemd.show(BROKER, "ActiveState") == "inactive"


def test_another_address_is_written_beside_the_socket_unit(systemd: OwnSystemd) -> None:
    """Sockets are no default for this reason: with its own bindAddress alone a broker does not start."""
    systemd.run("sed", "-i", "s/^bindAddress.*/bindAddress=127.0.0.2/", "/etc/rocketpy/broker.conf")
    systemd.start(BROKER_SOCKET)
    assert systemd.run("systemctl", "start", BROKER).returncode != 0
    assert systemd.run("systemctl", "stop", BROKER_SOCKET, BROKER).returncode == 0
    addresses = ("", *(f"127.0.0.2:{port}" for port in (10911, 10909, 10912)))
    lines = "".join(f"ListenStream={address}\\n" for address in addresses)
    systemd.run("sh", "-c", f"printf '[Socket]\\n{lines}' > /etc/systemd/system/{BROKER_SOCKET}.d/ports.conf")
    systemd.run("systemctl", "daemon-reload")
    systemd.start(BROKER_SOCKET)
    systemd.start(BROKER)
    assert not connect(systemd), "nothing listens on 127.0.0.1"
