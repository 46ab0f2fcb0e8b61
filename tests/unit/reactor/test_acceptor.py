"""Acceptor and handoff: every connection goes to one selector, the least loaded; none is lost, nothing spins."""

from __future__ import annotations

import errno
import math
import os
import resource
import socket
from collections.abc import Callable, Iterator

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConfigError, TransportError
from rocketpy.native.core import lib
from rocketpy.reactor.acceptor import Acceptor, Target, open_listener
from rocketpy.reactor.handoff import HANDOFF_MAX, NOT_NOW, Accepted, hand_over, handoff_pair
from rocketpy.reactor.ring import STOP_LEAVE, WorkerBlock
from rocketpy.reactor.worker_spec import WorkerContext


@attrs.define(eq=False)
class Desk:
    """An acceptor whose selectors are played by the test."""

    listeners: list[socket.socket]
    pairs: list[tuple[socket.socket, socket.socket]]
    targets: list[Target]
    acceptor: Acceptor
    now: list[float]
    clients: list[socket.socket] = attrs.field(factory=list)

    @classmethod
    def open(cls, selectors: int = 2, *, spares: int = 0, room: float = math.inf) -> Desk:
        listeners = [open_listener("127.0.0.1", 0), open_listener("127.0.0.1", 0)]
        pairs = [handoff_pair() for _ in range(selectors + spares)]
        targets = [
            Target(WorkerBlock(f"selector-{n}", n), pair[0], room, n >= selectors) for n, pair in enumerate(pairs)
        ]
        now = [100.0]
        block = WorkerBlock("acceptor", 9)
        acceptor = Acceptor([(one, n) for n, one in enumerate(listeners)], targets, block, clock=lambda: now[0])
        return cls(listeners, pairs, targets, acceptor, now)

    def close(self) -> None:
        for held in (*self.listeners, *self.clients, *(end for pair in self.pairs for end in pair)):
            held.close()
        for block in (self.acceptor.block, *(target.block for target in self.targets)):
            os.close(block.doorbell)
        if self.acceptor._spare >= 0:
            os.close(self.acceptor._spare)

    def connect(self, count: int = 1, listener: int = 0) -> None:
        self.clients += [socket.create_connection(self.listeners[listener].getsockname()) for _ in range(count)]

    def taken(self, selector: int) -> list[tuple[tuple[str, int], int]]:
        """(peer, listener) of the connections that this selector got."""
        found = []
        while True:
            try:
                listeners, fds, _, _ = socket.recv_fds(self.pairs[selector][1], HANDOFF_MAX, HANDOFF_MAX)
            except BlockingIOError:
                return found
            for listener, fd in zip(listeners, fds, strict=True):
                with socket.socket(fileno=fd) as connection:
                    found.append((connection.getpeername(), listener))
            self.targets[selector].block.add(lib.RP_COUNT_CONNECTIONS_OPENED, len(fds))


@attrs.define(eq=False)
class FailingSocket:
    """The acceptor's end while every sendmsg fails."""

    real: socket.socket
    error: int

    def sendmsg(self, *_: object) -> int:
        raise OSError(self.error, os.strerror(self.error))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk.open()
    yield desk
    desk.close()


def test_connections_are_shared_equally_and_carry_their_listener(desk: Desk) -> None:
    desk.connect(4)
    desk.connect(3, listener=1)
    desk.acceptor.turn(5.0)
    first, second = desk.taken(0), desk.taken(1)
    assert abs(len(first) - len(second)) == 1
    wanted = {(client.getsockname(), int(n >= 4)) for n, client in enumerate(desk.clients)}
    assert set(first + second) == wanted


def test_the_selector_with_fewest_connections_gets_the_next(desk: Desk) -> None:
    desk.targets[0].block.add(lib.RP_COUNT_CONNECTIONS_OPENED, 10)
    desk.connect(4)
    desk.acceptor.turn(5.0)
    assert (len(desk.taken(0)), len(desk.taken(1))) == (0, 4)
    desk.targets[0].block.add(lib.RP_COUNT_CONNECTIONS_CLOSED, 10)
    desk.connect(4)
    desk.acceptor.turn(5.0)
    assert (len(desk.taken(0)), len(desk.taken(1))) == (4, 0)


def test_connections_that_a_selector_has_not_taken_yet_count(desk: Desk) -> None:
    for _ in range(6):
        desk.connect()
        desk.acceptor.turn(5.0)
    assert (len(desk.taken(0)), len(desk.taken(1))) == (3, 3)


def test_a_selector_that_does_not_take_is_passed_over_and_none_is_lost(desk: Desk) -> None:
    filler = os.dup(0)
    while hand_over(desk.pairs[0][0], [Accepted(filler, 0)]):
        pass
    os.close(filler)
    desk.connect(5)
    desk.acceptor.turn(5.0)
    assert len(desk.taken(1)) == 5


def test_when_nobody_takes_connections_wait_and_go_later(desk: Desk) -> None:
    filler = os.dup(0)
    for acceptor_end, _ in desk.pairs:
        while hand_over(acceptor_end, [Accepted(filler, 0)]):
            pass
    os.close(filler)
    desk.connect(3)
    desk.acceptor.turn(5.0)
    assert len(desk.acceptor._pending) == 3
    for _, selector_end in desk.pairs:
        while True:
            try:
                _, fds, _, _ = socket.recv_fds(selector_end, HANDOFF_MAX, HANDOFF_MAX)
            except BlockingIOError:
                break
            for fd in fds:
                os.close(fd)
    desk.acceptor.turn(0.0)
    assert len(desk.taken(0)) + len(desk.taken(1)) == 3


@pytest.fixture
def desk_of(request: pytest.FixtureRequest) -> Callable[..., Desk]:
    def open_desk(selectors: int, spares: int, room: float) -> Desk:
        desk = Desk.open(selectors, spares=spares, room=room)
        request.addfinalizer(desk.close)
        return desk

    return open_desk


def counts(desk: Desk) -> list[int]:
    return [len(desk.taken(n)) for n in range(len(desk.targets))]


def test_a_spare_selector_is_used_when_all_others_are_full(desk_of: Callable[..., Desk]) -> None:
    desk = desk_of(2, 2, room=3)
    desk.connect(6)
    desk.acceptor.turn(5.0)
    assert counts(desk) == [3, 3, 0, 0]
    desk.connect()
    desk.acceptor.turn(5.0)
    assert counts(desk) == [0, 0, 1, 0]
    desk.targets[0].block.add(lib.RP_COUNT_CONNECTIONS_CLOSED, 3)
    desk.connect(5)
    desk.acceptor.turn(5.0)
    assert counts(desk) == [3, 0, 2, 0], "a spare one that has started is one of them"


def test_when_no_selector_is_left_one_gets_connections_and_refuses_them(desk_of: Callable[..., Desk]) -> None:
    desk = desk_of(1, 1, room=2)
    desk.connect(7)
    desk.acceptor.turn(5.0)
    first, second = counts(desk)
    assert first + second == 7 and min(first, second) >= 2


def test_a_selector_that_does_not_take_starts_no_spare_one(desk_of: Callable[..., Desk]) -> None:
    desk = desk_of(1, 1, room=1_000_000)
    filler = os.dup(0)
    while hand_over(desk.pairs[0][0], [Accepted(filler, 0)]):
        pass
    os.close(filler)
    desk.connect(2)
    desk.acceptor.turn(5.0)
    assert len(desk.taken(1)) == 0 and len(desk.acceptor._pending) == 2


def test_a_restarted_acceptor_finds_the_selectors_that_have_started(desk_of: Callable[..., Desk]) -> None:
    desk = desk_of(1, 1, room=2)
    desk.targets[1].block.begin(0)
    desk.targets[1].block.mark_ready()
    desk.connect(2)
    desk.acceptor.turn(5.0)
    assert counts(desk) == [1, 1]


def test_a_spare_selector_that_cannot_start_gets_no_connection_that_another_has_room_for(
    desk_of: Callable[..., Desk],
) -> None:
    """Fault: A spare selector that could not start had the fewest connections, and so got all new ones."""
    desk = desk_of(1, 1, room=4)
    desk.connect(5)
    desk.acceptor.turn(5.0)
    assert counts(desk) == [4, 1]
    desk.targets[0].block.add(lib.RP_COUNT_CONNECTIONS_CLOSED, 3)
    desk.connect(3)
    desk.acceptor.turn(5.0)
    assert counts(desk) == [3, 0]
    desk.targets[1].block.mark_ready()
    desk.connect(2)
    desk.acceptor.turn(5.0)
    assert counts(desk) == [0, 2]


def test_more_parked_connections_than_one_selector_holds_and_than_may_wait(desk_of: Callable[..., Desk]) -> None:
    """Fault: A new process tree took all parked connections at once, which could be more than it may have files."""
    desk = desk_of(1, 1, room=200)
    into, out = handoff_pair()
    with into, out:
        filler = os.dup(0)
        for _ in range(10):
            assert hand_over(into, [Accepted(filler, 1)] * HANDOFF_MAX) == HANDOFF_MAX
        os.close(filler)
        desk.acceptor.parked = out
        desk.acceptor.turn(0.0)
        assert desk.acceptor.parked is out, "some wait"
        desk.acceptor.turn(0.0)
        assert desk.acceptor.parked is None and desk.acceptor._pending == []
        handed = [target.load for target in desk.targets]
        assert sum(handed) == 10 * HANDOFF_MAX and handed[0] == 200


def test_without_descriptors_one_client_at_a_time_is_turned_away(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.acceptor._keep_spare()
    desk.connect(3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        for refused in (1, 2, 3):
            desk.acceptor.turn(5.0)
            assert desk.acceptor.block.counters()[lib.RP_COUNT_CONNECTIONS_REFUSED] == refused
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caplog.text.count("connections: the limit of open files is reached") == 1, "not a line for each"
    for client in desk.clients:
        client.settimeout(10)
        assert client.recv(1) == b""
    desk.connect()
    desk.acceptor.turn(5.0)
    assert len(desk.taken(0)) + len(desk.taken(1)) == 1


def test_without_even_a_spare_descriptor_it_looks_again_later_and_does_not_spin(desk: Desk) -> None:
    desk.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        desk.acceptor.turn(5.0)
        desk.acceptor.turn(0.0)  # the listener is readable, but is not looked at
        assert desk.acceptor.block.counters()[lib.RP_COUNT_CONNECTIONS_REFUSED] == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    desk.now[0] += 1.0
    desk.acceptor.turn(5.0)
    assert len(desk.taken(0)) + len(desk.taken(1)) == 1


def test_the_order_to_stop_ends_the_loop(desk: Desk) -> None:
    ready: list[bool] = []
    block = desk.acceptor.block
    block.order(STOP_LEAVE)
    desk.acceptor.run(WorkerContext("acceptor", block, lambda: ready.append(True)))
    assert ready == [True]


def test_a_port_in_use_is_named_with_the_remedy() -> None:
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of 127.0.0.1 is in use; .*choose another listenPort"):
            open_listener("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(TransportError, match=r"cannot listen on 192\.0\.2\.1:0: .*bindAddress"):
        open_listener("192.0.2.1", 0)


def test_a_batch_is_at_most_one_message() -> None:
    sender, receiver = handoff_pair()
    fds = [os.dup(0) for _ in range(HANDOFF_MAX + 3)]
    assert hand_over(sender, [Accepted(fd, n % 2) for n, fd in enumerate(fds)]) == HANDOFF_MAX
    listeners, got, _, _ = socket.recv_fds(receiver, 100, 100)
    assert listeners == bytes(n % 2 for n in range(HANDOFF_MAX))
    assert len(got) == HANDOFF_MAX
    for fd in (*fds, *got):
        os.close(fd)
    sender.close()
    receiver.close()


@pytest.mark.parametrize("error", NOT_NOW, ids=errno.errorcode.get)
def test_when_the_kernel_cannot_pass_descriptors_connections_wait_and_go_later(desk: Desk, error: int) -> None:
    """Fault: The acceptor died when the kernel lacked memory to pass on a connection."""
    for target in desk.targets:
        target.handoff = FailingSocket(target.handoff, error)  # type: ignore[assignment]
    desk.connect(3)
    desk.acceptor.turn(5.0)
    assert len(desk.acceptor._pending) == 3
    for target in desk.targets:
        target.handoff = target.handoff.real  # type: ignore[attr-defined]
    desk.acceptor.turn(0.0)
    assert len(desk.taken(0)) + len(desk.taken(1)) == 3


def test_another_error_of_the_pair_is_raised(desk: Desk) -> None:
    desk.targets[0].handoff = FailingSocket(desk.targets[0].handoff, errno.EBADF)  # type: ignore[assignment]
    with pytest.raises(OSError, match="Bad file descriptor"):
        desk.targets[0].hand_over([Accepted(0, 0)])
