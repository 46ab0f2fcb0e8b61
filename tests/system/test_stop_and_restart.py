"""What was acknowledged is there after every kind of stop, and a stop takes a bounded time whatever is going on."""

from __future__ import annotations

import collections
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, max_offset, pull_request, read_all, send_request, until

TOPIC = "Kept"
QUEUES = 4
LOADERS = 4
BODY_BYTES = 300
ENDS_WITHIN_S = 60.0  # several times stopTimeoutMillis: a stop that hangs is found, a slow machine is not


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(store=tmp_path / "store") as running:
        yield running


@attrs.define(eq=False)
class Load:
    """Connections that send without a pause until theirs ends; what was acknowledged, by queue and offset."""

    port: int
    acknowledged: dict[int, dict[int, bytes]] = attrs.field(factory=lambda: collections.defaultdict(dict))
    refusals: list[int] = attrs.field(factory=list)
    _threads: list[threading.Thread] = attrs.field(factory=list)

    def start(self) -> None:
        for number in range(LOADERS):
            thread = threading.Thread(target=self._send, args=(number,))
            thread.start()
            self._threads.append(thread)

    def _send(self, number: int) -> None:
        queue_id = number % QUEUES
        sent: dict[int, bytes] = {}
        try:
            with Wire.open(self.port) as wire:
                for n in range(1_000_000):
                    body = (b"%d/%d " % (number, n)).ljust(BODY_BYTES, b".")
                    (opaque,) = wire.tell(send_request(TOPIC, body, queue_id=queue_id))
                    sent[opaque] = body
                    if len(sent) >= 8:
                        self._take(wire, queue_id, sent)
        except (OSError, EOFError):
            return

    def _take(self, wire: Wire, queue_id: int, sent: dict[int, bytes]) -> None:
        answer = wire.read()
        body = sent.pop(answer.opaque)
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext_fields or {})["queueOffset"])
            assert offset not in self.acknowledged[queue_id], "one queue offset was given twice"
            self.acknowledged[queue_id][offset] = body
        else:
            self.refusals.append(answer.code)

    @property
    def count(self) -> int:
        return sum(len(offsets) for offsets in self.acknowledged.copy().values())

    def join(self) -> None:
        for thread in self._threads:
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive(), "a connection outlived its broker"


def assert_kept(broker: RunningBroker, load: Load) -> None:
    """Every acknowledged message is where it was said to be, and offsets have no gaps."""
    with Wire.open(broker.port) as wire:
        for queue_id, acknowledged in load.acknowledged.items():
            until(lambda: max_offset(wire, TOPIC, queue_id) > max(acknowledged), "dispatch")  # noqa: B023
            found = read_all(wire, TOPIC, max_offset(wire, TOPIC, queue_id), queue_id)
            assert [record.queue_offset for record in found] == list(range(len(found)))
            bodies = [record.body for record in found]
            assert all(bodies[offset] == body for offset, body in acknowledged.items())


def loaded(broker: RunningBroker) -> Load:
    """A load that is well under way."""
    with Wire.open(broker.port) as wire:
        assert wire.ask(send_request(TOPIC, b"creates the topic")).code == ResponseCode.SUCCESS
    load = Load(broker.port)
    load.start()
    until(lambda: load.count > 2_000, "the load is under way")
    return load


def reopened(broker: RunningBroker) -> str:
    """Start it again; what it said while it did."""
    said = len(broker.text())
    broker.start()
    return broker.text()[said:]


def test_a_stop_under_load_keeps_what_was_acknowledged(broker: RunningBroker) -> None:
    load = loaded(broker)
    assert broker.stop() == 0, broker.text()
    load.join()
    assert not (broker.store / "abort").exists()
    assert "killing" not in broker.text() and "Traceback" not in broker.text()
    assert "after an unclean stop" not in reopened(broker)
    assert_kept(broker, load)


def test_a_second_signal_at_once_is_the_same_stop(broker: RunningBroker) -> None:
    """`timeout` and service managers signal the server, and then its group.
    Fault: A stop signal sent twice in a moment, as by `timeout`, made the stop a hard one."""
    load = loaded(broker)
    process = broker.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(ENDS_WITHIN_S) == 0, broker.text()
    load.join()
    broker.process = None
    assert "Traceback" not in broker.text() and "killing" not in broker.text()
    broker.start()
    assert_kept(broker, load)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_a_clean_stop(broker: RunningBroker, number: int) -> None:
    """A terminal sends SIGINT to every process of the foreground group, systemd SIGTERM to all of the unit.
    Fault: SIGTERM to the whole process group ended the workers that an orderly stop needs."""
    load = loaded(broker)
    process = broker.process
    assert process is not None
    os.killpg(process.pid, number)
    assert process.wait(ENDS_WITHIN_S) == 0, broker.text()
    load.join()
    assert not (broker.store / "abort").exists()
    said = broker.text()
    assert "Traceback" not in said and "KeyboardInterrupt" not in said
    assert "killed" not in said and "killing" not in said and "restarting" not in said
    broker.process = None
    broker.start()
    assert_kept(broker, load)


def test_the_death_of_all_processes_loses_nothing_that_was_acknowledged(broker: RunningBroker) -> None:
    load = loaded(broker)
    broker.kill_all()
    load.join()
    assert (broker.store / "abort").exists()
    assert "after an unclean stop" in reopened(broker)
    assert_kept(broker, load)
    with Wire.open(broker.port) as wire:
        before = max_offset(wire, TOPIC, 1)
        answer = wire.ask(send_request(TOPIC, b"after", queue_id=1))
        assert int((answer.ext_fields or {})["queueOffset"]) == before
    assert broker.stop() == 0


def test_workers_end_with_their_supervisor(broker: RunningBroker) -> None:
    pids = list(broker.workers().values())
    assert broker.process is not None
    broker.process.kill()
    broker.process.wait(ENDS_WITHIN_S)
    broker.process = None
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the workers end")
    broker.start()


def test_idle_connections_are_closed_and_busy_ones_are_not(tmp_path: Path) -> None:
    """Holds: network, idle connections."""
    settings = {"serverChannelMaxIdleTimeSeconds": "2"}
    with (
        running_broker(settings, store=tmp_path / "store") as broker,
        Wire.open(broker.port) as idle,
        Wire.open(broker.port) as busy,
    ):
        ended: list[bool] = []
        listener = threading.Thread(target=lambda: ended.append(idle.is_closed_by_peer()))
        listener.start()
        while listener.is_alive():
            assert busy.ask(send_request(TOPIC, b"alive")).code == ResponseCode.SUCCESS
            listener.join(0.2)
        assert ended == [True]
        assert busy.ask(send_request(TOPIC, b"still alive")).code == ResponseCode.SUCCESS


def how_it_ends(wire: Wire) -> str:
    """FIN or reset; Java clients fail what waits for an answer at once on a reset only."""
    try:
        return "data" if wire.sock.recv(1) else "FIN"
    except ConnectionResetError:
        return "reset"


def hold(wire: Wire) -> None:
    """A pull that is suspended for longer than any test."""
    assert wire.ask(send_request(TOPIC, b"makes the topic")).code == ResponseCode.SUCCESS
    wire.tell(pull_request(TOPIC, 0, queue_id=1, hold_ms=600_000))
    wire.ask(pull_request(TOPIC, 0, queue_id=2))  # answered, so the other has been taken


@pytest.mark.parametrize("victim", ["selector 0", "all"])
def test_a_death_is_a_reset_for_who_waits(broker: RunningBroker, victim: str) -> None:
    """Fault: The death of a selector closed connections with FIN, and Java consumers waited 32 s for their pulls."""
    with Wire.open(broker.port) as wire, Wire.open(broker.namesrv_port) as other:
        hold(wire)
        route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": TOPIC})
        assert other.ask(route).code is not None
        if victim == "all":
            broker.kill_all()
            assert how_it_ends(other) == "reset"
        else:
            broker.kill_worker(victim)
        assert how_it_ends(wire) == "reset"


def test_a_stop_is_a_reset_behind_the_answers(broker: RunningBroker) -> None:
    """Fault: After the FIN of a stop, Java clients waited out the timeout of a send that the broker did not read."""
    with Wire.open(broker.port) as wire, Wire.open(broker.namesrv_port) as other:
        assert wire.ask(send_request(TOPIC, b"there")).code == ResponseCode.SUCCESS
        route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": TOPIC})
        assert other.ask(route).code is not None
        assert broker.stop() == 0
        assert (how_it_ends(wire), how_it_ends(other)) == ("reset", "FIN")
