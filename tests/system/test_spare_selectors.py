"""Selectors that start when all others are full: real processes, few connections for each."""

from __future__ import annotations

import contextlib
import resource
import ssl
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import ResponseCode
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.certificates import Authority
from tests.support.waiting import metric, metrics_page, wait_until
from tests.support.wire import Wire, read_all, send_request

ROOM, SELECTORS = 20, 3
FEW = {"connectionsMax": str(ROOM), "selectorWorkers": "1", "selectorWorkersMax": str(SELECTORS)}
NO_MORE = 64 << 20  # bytes of address space: less than any process of the broker has
REFUSED = "rocketpy_remoting_connections_refused_total"


@attrs.define(eq=False)
class Crowd:
    """A broker, and connections to it."""

    broker: RunningBroker
    metrics_port: int
    stack: contextlib.ExitStack
    wires: list[Wire] = attrs.field(factory=list)

    @property
    def selectors(self) -> list[str]:
        return sorted(name for name in self.broker.workers() if name.startswith("selector"))

    def opened(self) -> float:
        return metric(self.metrics_port, "rocketpy_remoting_connections{")

    def connect(self, count: int) -> None:
        self.wires += [self.stack.enter_context(Wire.open(self.broker.port)) for _ in range(count)]

    def served(self) -> int:
        """How many connections answer a send; the others are dropped from the list."""
        self.wires = [wire for wire in self.wires if is_served(wire)]
        return len(self.wires)


def is_served(wire: Wire) -> bool:
    try:
        return wire.ask(send_request("T", b"x")).code == ResponseCode.SUCCESS
    except (OSError, EOFError):
        return False


@contextlib.contextmanager
def crowd_of(**settings: str) -> Iterator[Crowd]:
    metrics_port, _ = free_ports()
    given = FEW | {"metricsPort": str(metrics_port)} | settings
    with running_broker(given) as broker, contextlib.ExitStack() as stack:
        yield Crowd(broker, metrics_port, stack)


@pytest.mark.parametrize("codecs", ["0", "2"])
def test_the_first_connection_too_many_starts_another_selector(codecs: str) -> None:
    """Holds: network, processes of the reactor."""
    with crowd_of(codecWorkers=codecs) as crowd:
        crowd.connect(ROOM)
        assert crowd.served() == ROOM and crowd.selectors == ["selector 0"]
        crowd.connect(5)
        assert crowd.served() == ROOM + 5 and crowd.selectors == ["selector 0", "selector 1"]
        for number, wire in enumerate(crowd.wires):
            assert wire.ask(send_request("pulled", b"%d" % number)).code == ResponseCode.SUCCESS
        for wire in (crowd.wires[0], crowd.wires[-1]):
            assert len(read_all(wire, "pulled", len(crowd.wires))) == len(crowd.wires)
        assert crowd.broker.stop() == 0


def test_beyond_all_selectors_connections_are_refused_counted_and_logged() -> None:
    with crowd_of() as crowd:
        crowd.connect(SELECTORS * ROOM + 7)
        assert crowd.served() == SELECTORS * ROOM
        assert crowd.selectors == [f"selector {n}" for n in range(SELECTORS)]
        assert metric(crowd.metrics_port, REFUSED) == 7
        wait_until(lambda: "the limit is reached; raise connectionsMax" in crowd.broker.text(), "the line of the log")
        for _ in range(5):
            crowd.wires.pop().sock.close()
        wait_until(lambda: crowd.opened() == SELECTORS * ROOM - 5, "the end of five connections")
        crowd.connect(5)
        assert crowd.served() == SELECTORS * ROOM
        assert metric(crowd.metrics_port, REFUSED) == 7
        assert crowd.broker.stop() == 0


def test_a_killed_spare_selector_is_replaced_and_takes_connections_again() -> None:
    with crowd_of() as crowd:
        crowd.connect(2 * ROOM)
        assert crowd.served() == 2 * ROOM
        killed = crowd.broker.kill_worker("selector 1")
        wait_until(lambda: crowd.broker.workers().get("selector 1", killed) != killed, "another selector 1")
        wait_until(lambda: crowd.opened() == ROOM, "the end of its connections")
        assert crowd.served() == ROOM
        crowd.connect(ROOM)
        assert crowd.served() == 2 * ROOM
        assert crowd.selectors == ["selector 0", "selector 1"] and metric(crowd.metrics_port, REFUSED) == 0
        assert crowd.broker.stop() == 0


def test_a_spare_selector_that_cannot_start_ends_nothing_and_takes_no_connections() -> None:
    """Fault: One connection too many ended a broker that had no memory for another selector."""
    with crowd_of() as crowd:
        crowd.connect(ROOM)
        assert crowd.served() == ROOM and crowd.broker.process is not None
        before = resource.prlimit(crowd.broker.process.pid, resource.RLIMIT_AS, (NO_MORE, resource.RLIM_INFINITY))
        late = crowd.stack.enter_context(Wire.open(crowd.broker.port))
        tries = "worker selector-1 cannot start"
        wait_until(lambda: crowd.broker.text().count(tries) >= 3, "failed starts")
        for _ in range(5):
            crowd.wires.pop().sock.close()
        wait_until(lambda: crowd.opened() == ROOM - 5, "the end of five connections")
        crowd.connect(5)
        assert crowd.served() == ROOM
        wait_until(lambda: crowd.broker.text().count(tries) >= 13, "failed starts", 60)
        resource.prlimit(crowd.broker.process.pid, resource.RLIMIT_AS, before)
        assert is_served(late) and crowd.selectors == ["selector 0", "selector 1"]
        assert crowd.broker.stop() == 0


def test_selectors_that_never_started_have_no_samples_and_stop_with_the_broker() -> None:
    """Fault: Each ring of a selector that did not run had two samples in every scrape."""
    with crowd_of() as crowd:
        assert "selector-0" in metrics_page(crowd.metrics_port)
        assert "selector-1" not in metrics_page(crowd.metrics_port)
        assert crowd.selectors == ["selector 0"]
        assert crowd.broker.stop() == 0
        assert "in time" not in crowd.broker.text()


def test_a_spare_selector_serves_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=authority.ca_file)
    with crowd_of(**authority.issue("127.0.0.1").settings(), **{"tls.server.mode": "permissive"}) as crowd:
        crowd.connect(ROOM)
        assert crowd.served() == ROOM
        crowd.connect(2)
        for wire in crowd.wires[-2:]:
            wire.sock = context.wrap_socket(wire.sock, server_hostname="127.0.0.1")
        assert crowd.served() == ROOM + 2 and crowd.selectors == ["selector 0", "selector 1"]
        assert crowd.broker.stop() == 0
