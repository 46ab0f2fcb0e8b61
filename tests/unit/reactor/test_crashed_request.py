"""A worker that dies over a request: it is replaced, that request is not tried again and its connection closed, the
others are served, and the broker stays. Toy workers in real processes, over real rings, under the real supervisor."""

from __future__ import annotations

import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor import worker_messages
from rocketpy.reactor.crashed_request import drop_crashed_request
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.supervisor import ParentProcess, Supervisor
from rocketpy.reactor.topology import MANAGER, SEND, STORE, ReactorSizes, Topology
from rocketpy.reactor.worker_messages import CONNECTION_INTERNAL, CONNECTION_TIMER, TIMER, WorkerMessage
from rocketpy.reactor.worker_spec import RestartPolicy, WorkerContext, WorkerSpec
from rocketpy.remoting.fast_path import DueMessages
from tests.support import ring_messages
from tests.support.waiting import is_readable

QUICK = RestartPolicy(limit=3, backoff_s=0.001)
ORDINARY = 5


def hang() -> None:
    select.select([], [], [], 60)


def loop() -> None:
    while True:
        pass


def fail() -> None:
    raise ValueError("of this request")


DEATHS: dict[bytes, Callable[[], None]] = {
    b"segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    b"abrt": os.abort,
    b"hang": hang,
    b"loop": loop,
    b"fail": fail,
    b"kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def request(connection: int, body: bytes = b"", token: int = 0) -> bytes:
    """A SEND record."""
    return ring_messages.send(ring_messages.origin(connection, host="10.0.0.9"), body, opaque=7, token=token)


@attrs.frozen(eq=False)
class Eater:
    """A send worker that answers each request with its body, and dies of some."""

    topology: Topology

    def __call__(self, context: WorkerContext) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        logging.getLogger().handlers = [logging.StreamHandler(sys.stderr)]
        block = context.block
        drop_crashed_request(block, self.topology)
        readers = [RingReader(ring) for ring in self.topology.inputs(SEND)]
        replies = RingWriter(self.topology.ring(SEND, "selector-0"))
        context.report_ready()
        while not block.stop:
            block.beat(time.monotonic_ns())
            for reader in readers:
                while (found := reader.peek()) is not None:
                    self._eat(context, *found, replies)
                    reader.read()
                    block.serve(0)
            replies.finish_batch()
            block.prepare_sleep()
            if all(reader.is_empty() for reader in readers):
                is_readable(block.doorbell, 0.1)
            block.awake()

    def _eat(self, context: WorkerContext, kind: int, record: bytes, replies: RingWriter) -> None:
        if kind == WorkerMessage.DELIVER:
            context.block.serve(CONNECTION_INTERNAL)
            DEATHS[b"segv"]()
        if kind == WorkerMessage.TIMER:
            context.block.serve(CONNECTION_TIMER)
            return DEATHS[b"segv"]() if context.block.epoch < TIMER.read(record).number else None
        connection = worker_messages.connection_of(record)
        context.block.serve(connection)
        body = ring_messages.body_of(record)
        DEATHS.get(body, lambda: None)()
        assert replies.write(WorkerMessage.REPLY, worker_messages.encode_reply(connection, body))


@attrs.define
class Run:
    topology: Topology
    pid: int

    def feed(self, *records: bytes, producer: str = "codec-0", kind: WorkerMessage = WorkerMessage.SEND) -> None:
        writer = RingWriter(self.topology.ring(producer, SEND))
        for record in records:
            assert writer.write(kind, record)
        writer.finish_batch()

    def replies(self, count: int) -> list[tuple[int, bytes]]:
        """The next replies: (connection, body), the body b"close" where the connection is to be closed."""
        reader = RingReader(self.topology.ring(SEND, "selector-0"))
        found = []
        for _ in range(count):
            _, record = self.next_of(reader)
            connection, flags, frame = ring_messages.reply(record)
            found.append((connection, b"close" if flags else frame))
        return found

    @staticmethod
    def next_of(reader: RingReader) -> tuple[int, bytes]:
        """The next record; fails when none comes."""
        for _ in range(1000):
            record = reader.read()
            if record is not None:
                return record
            select.select([], [], [], 0.01)
        raise AssertionError("nothing came")

    def end(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def launch() -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(**fields: object) -> Run:
        topology = Topology.create(ReactorSizes())
        pid = os.fork()
        if pid == 0:
            status = 99
            logging.root.handlers.clear()  # those of pytest keep lines in memory
            try:
                spec = WorkerSpec(
                    name=SEND, role=SEND, block=topology.blocks[SEND], main=Eater(topology), restart=QUICK, **fields
                )
                status = Supervisor([spec], process=ParentProcess(jitter=lambda: 0.0)).run()
            finally:
                sys.stderr.flush()
                os._exit(status)
        runs.append(Run(topology, pid))
        return runs[-1]

    yield start
    for run in runs:
        if run.pid:
            os.kill(run.pid, signal.SIGKILL)
            os.waitpid(run.pid, 0)
        for block in run.topology.blocks.values():
            os.close(block.doorbell)
        for pair in run.topology.handoffs.values():
            for end in pair:
                end.close()


@pytest.mark.parametrize(("death", "times"), [(b"segv", 12), (b"abrt", 4), (b"fail", 4), (b"hang", 1)])
def test_the_request_goes_its_connection_is_closed_and_the_others_are_served(
    launch: Callable[..., Run], death: bytes, times: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fault: A request that killed its worker was retried after each restart, until the broker ended."""
    run = launch(hang_timeout_s=2.0 if death == b"hang" else 60.0)
    strangers = range(100, 100 + times)
    for stranger in strangers:
        run.feed(request(ORDINARY, b"before"), request(stranger, death), request(ORDINARY, b"after"))
    found = run.replies(3 * times)
    assert [one for one in found if one[0] == ORDINARY] == [(ORDINARY, b"before"), (ORDINARY, b"after")] * times
    assert [one for one in found if one[0] != ORDINARY] == [(stranger, b"close") for stranger in strangers]
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() == 0
    told = capfd.readouterr().err
    assert told.count("worker send crashed while it served a request of 10.0.0.9:4000 (code 310,") == times
    assert "while it served a request of connection 64;" in told


@pytest.mark.parametrize(("death", "counts"), [(b"loop", True), (b"hang", False)])
def test_a_hang_counts_as_a_crash_if_the_worker_has_computed(
    launch: Callable[..., Run], death: bytes, counts: bool
) -> None:
    """A disk that hangs says nothing of the request.
    Fault: A timer or delayed message whose delivery never ended was tried again for ever."""
    run = launch(hang_timeout_s=2.0)
    run.topology.blocks[SEND].pointer.has_crashed = not counts
    run.feed(request(7, death))
    assert run.replies(1) == [(7, b"close")]
    assert run.topology.blocks[SEND].pointer.has_crashed == counts


def test_what_came_behind_from_the_same_connection_has_its_turn(launch: Callable[..., Run]) -> None:
    """Its answer goes nowhere; but only what was at hand at the death is to blame."""
    run = launch()
    run.feed(request(7, b"segv"), request(7, b"next"))
    assert run.replies(2) == [(7, b"close"), (7, b"next")]


def test_a_put_of_the_managers_is_refused(launch: Callable[..., Run]) -> None:
    run = launch()
    run.feed(request(CONNECTION_INTERNAL, b"segv", token=77), producer="manager")
    run.feed(request(ORDINARY, b"after"))
    assert run.replies(1) == [(ORDINARY, b"after")]
    kind, record = run.next_of(RingReader(run.topology.ring(SEND, "manager")))
    assert kind == WorkerMessage.PUT_RESULT
    result = worker_messages.PUT_RESULT.read(record)
    assert (result.token, result.phy_offset, result.queue_offset, result.code) == (77, 0, 0, 1)


def test_deliveries_of_delayed_messages_are_refused_and_end_no_broker(
    launch: Callable[..., Run], capfd: pytest.CaptureFixture[str]
) -> None:
    """They are the manager's own, as internal puts are."""
    run = launch()
    for token in range(4):
        due = worker_messages.encode_deliver(DueMessages(3, 7, [(0, 100), (100, 100)]), token)
        run.feed(due, producer="manager", kind=WorkerMessage.DELIVER)
        run.feed(request(ORDINARY, b"after"))
        assert run.replies(1) == [(ORDINARY, b"after")]
    reader = RingReader(run.topology.ring(SEND, "manager"))
    found = [worker_messages.PUT_RESULT.read(run.next_of(reader)[1]) for _ in range(4)]
    assert [(result.token, result.code) for result in found] == [(token, 1) for token in range(4)]
    assert run.topology.blocks[SEND].pointer.has_crashed
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() == 0
    told = "worker send crashed while it served the delivery of 2 messages of delay level 3 from offset 7 on: dropped"
    assert capfd.readouterr().err.count(told) == 4


def test_a_timer_that_crashes_its_worker_stays_first_and_ends_no_broker(
    launch: Callable[..., Run], capfd: pytest.CaptureFixture[str]
) -> None:
    """The send worker counts its tries."""
    run = launch()
    run.feed(TIMER.write(number=6, phy_offset=700), producer=STORE, kind=WorkerMessage.TIMER)  # epoch 6 survives it
    for body in (b"1", b"2"):
        run.feed(request(CONNECTION_INTERNAL, body), producer=MANAGER)
    assert run.replies(2) == [(CONNECTION_INTERNAL, b"1"), (CONNECTION_INTERNAL, b"2")], "puts are not refused"
    run.feed(request(ORDINARY, b"after"))
    assert run.replies(1) == [(ORDINARY, b"after")]
    while RingReader(run.topology.ring(STORE, SEND)).peek() is not None:
        select.select([], [], [], 0.01)
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() == 0
    assert capfd.readouterr().err.count("worker send crashed while it served the timer at log offset 700;") == 5


def test_a_kill_from_outside_blames_nobody_and_is_bounded(
    launch: Callable[..., Run], capfd: pytest.CaptureFixture[str]
) -> None:
    run = launch()
    block = run.topology.blocks[SEND].pointer
    block.has_crashed = 1  # of an earlier process
    run.feed(request(7, b"kill"))
    assert run.end() == 1
    assert not block.has_crashed
    assert "send was killed by SIGKILL, after 3 restarts in 60 s: stopping" in capfd.readouterr().err
    assert RingReader(run.topology.ring(SEND, "selector-0")).read() is None
