"""The whole tree with toy processors: every stage, several shapes, restarts and a clean stop."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

import trio

from rocketpy.config import BrokerSettings
from rocketpy.native.core import lib
from rocketpy.reactor.acceptor import Acceptor, Target, open_listener
from rocketpy.reactor.channel import Gateway
from rocketpy.reactor.codec import CodecMain
from rocketpy.reactor.handlers import Handlers
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.request_server import RequestServer
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.selector import SelectorMain, SelectorSettings
from rocketpy.reactor.supervisor import Supervisor
from rocketpy.reactor.topology import ACCEPTOR, MANAGER, REPLICATOR, SEND, STORE, ReactorSizes, Topology
from rocketpy.reactor.worker_spec import StopPhase, WorkerContext, WorkerSpec
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support.waiting import is_readable

HEART_BEAT, UNREGISTER, PID = 34, 35, 28


class Echo:
    """Answers with the body it got."""

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        return RemotingCommand.response(0, f"{channel.peer} {channel.is_vip}", body=request.body)


class TellPid:
    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        return RemotingCommand.response(0, str(os.getpid()))


def wait_for_the_end(context: WorkerContext) -> None:
    """A worker whose inputs nobody uses."""
    context.report_ready()
    while not context.block.stop:
        context.block.beat(time.monotonic_ns())
        lib.rp_worker_sleep(context.block.pointer, 1_000_000_000)


@attrs.frozen
class ManagerMain:
    topology: Topology

    def __call__(self, context: WorkerContext) -> None:
        server = RequestServer(
            block=context.block,
            inputs=[RingReader(ring) for ring in self.topology.inputs(context.name)],
            gateway=Gateway([Outbox(RingWriter(ring)) for ring in self.topology.replies_from(context.name)]),
            pools=broker_pools(BrokerSettings()),
            handlers=Handlers(processors={HEART_BEAT: Echo(), UNREGISTER: Echo(), PID: TellPid()}),
        )
        context.report_ready()
        trio.run(server.run)


class Tree:
    """A supervisor in a child process, and what is known of its workers."""

    def __init__(self, sizes: ReactorSizes) -> None:
        self.listeners = [(open_listener("127.0.0.1", 0), 0), (open_listener("127.0.0.1", 0), 1)]
        self.topology = topology = Topology.create(sizes)
        self.ready, ready_told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                supervisor = Supervisor(self._specs(), on_ready=lambda: os.write(ready_told, b"r") and None)
                status = supervisor.run()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(ready_told)
        for _, pair in topology.handoffs.items():
            pair[0].close()
            pair[1].close()
        assert os.read(self.ready, 1) == b"r"
        self.addresses = [listener.getsockname() for listener, _ in self.listeners]
        for listener, _ in self.listeners:
            listener.close()

    def _specs(self) -> list[WorkerSpec]:
        topology = self.topology
        sizes, blocks, table = topology.sizes, topology.blocks, broker_pools(BrokerSettings())
        targets = [Target(blocks[name], topology.handoffs[name][0]) for name in sizes.selectors]
        acceptor = Acceptor(self.listeners, targets, blocks[ACCEPTOR])
        keep = [listener.fileno() for listener, _ in self.listeners] + [t.handoff.fileno() for t in targets]

        def spec(name: str, main: Callable[[WorkerContext], None], phase: int, **more: object) -> WorkerSpec:
            role = name.partition("-")[0]
            return WorkerSpec(name=name, role=role, block=blocks[name], main=main, stop_phase=phase, **more)

        made = [spec(ACCEPTOR, acceptor.run, StopPhase.INTAKE, keep_fds=tuple(keep))]
        for name in sizes.selectors:
            main = SelectorMain(topology, name, table, SelectorSettings())
            fds = (topology.handoffs[name][1].fileno(),)
            made.append(spec(name, main, StopPhase.SELECTORS, keep_fds=fds, quiet_phase=StopPhase.INTAKE))
        made += [spec(name, CodecMain(topology, name, table, {}), StopPhase.CODECS) for name in sizes.codecs]
        made += [spec(name, wait_for_the_end, StopPhase.FAST_PATH) for name in (SEND, *sizes.pulls)]
        made.append(spec(MANAGER, ManagerMain(topology), StopPhase.MANAGERS))
        return [*made, spec(STORE, wait_for_the_end, StopPhase.STORE)]

    def connect(self, listener: int = 0) -> Client:
        return Client(socket.create_connection(self.addresses[listener], timeout=20))

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@attrs.frozen
class Client:
    socket: socket.socket

    def send(self, *commands: RemotingCommand) -> None:
        self.socket.sendall(b"".join(command.encode() for command in commands))

    def receive(self) -> RemotingCommand:
        head = self._exactly(4)
        return RemotingCommand.decode(head + self._exactly(int.from_bytes(head, "big")))

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            assert piece, "closed"
            found += piece
        return bytes(found)


SHAPES = [
    pytest.param(ReactorSizes(), id="1+1"),
    pytest.param(ReactorSizes(selector_workers=3, codec_workers=2), id="3+2"),
    pytest.param(ReactorSizes(selector_workers=2, codec_workers=0), id="2 inline"),
]


@pytest.fixture
def make_tree() -> Iterator[Callable[[ReactorSizes], Tree]]:
    trees: list[Tree] = []

    def make(sizes: ReactorSizes) -> Tree:
        trees.append(Tree(sizes))
        return trees[-1]

    yield make
    for tree in trees:
        os.close(tree.ready)
        if tree.pid:
            os.kill(tree.pid, signal.SIGKILL)
            os.waitpid(tree.pid, 0)
        for block in tree.topology.blocks.values():
            os.close(block.doorbell)


def wait_until(done: Callable[[], bool]) -> None:
    """Other processes act; the bound only makes a failure one."""
    for _ in range(4000):
        if done():
            return
        select.select([], [], [], 0.005)
    raise AssertionError("it did not happen")


def heartbeat(opaque: int, body: bytes = b"") -> RemotingCommand:
    return attrs.evolve(RemotingCommand.request(HEART_BEAT, body=body), opaque=opaque)


@pytest.mark.parametrize("sizes", SHAPES)
def test_requests_are_answered_in_order_over_many_connections(
    make_tree: Callable[..., Tree], sizes: ReactorSizes
) -> None:
    tree = make_tree(sizes)
    clients = [tree.connect(n % 2) for n in range(12)]
    for n, client in enumerate(clients):
        client.send(*(heartbeat(opaque, b"%d %d" % (n, opaque)) for opaque in range(50)))
    for n, client in enumerate(clients):
        for opaque in range(50):
            answer = client.receive()
            assert (answer.opaque, answer.code, answer.body) == (opaque, 0, b"%d %d" % (n, opaque))
            host, port = client.socket.getsockname()
            assert answer.remark == f"{host}:{port} {n % 2 == 1}"
        client.socket.close()
    opened = [tree.topology.blocks[name].counters()[lib.RP_COUNT_CONNECTIONS_OPENED] for name in sizes.selectors]
    assert sum(opened) == 12
    assert max(opened) - min(opened) <= 1  # fewest connections first
    assert tree.stop() == 0


def test_large_bodies_cross_every_stage(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree(ReactorSizes(ring_bytes=65536))
    client = tree.connect()
    body = os.urandom(3 * 1024 * 1024)
    for opaque, part in enumerate((body, b"small", body[:100_000])):
        client.send(heartbeat(opaque, part))
        assert client.receive().body == part
    client.socket.close()


def test_an_unknown_code_is_refused_and_a_oneway_is_not(make_tree: Callable[..., Tree]) -> None:
    client = make_tree(ReactorSizes()).connect()
    client.send(RemotingCommand.oneway(9999), attrs.evolve(RemotingCommand.request(9999), opaque=7))
    answer = client.receive()
    assert (answer.opaque, answer.code, answer.remark) == (7, 3, " request type 9999 not supported")
    client.socket.close()


@pytest.mark.parametrize("victim", ["codec-0", "manager", "acceptor", "send"])
def test_a_killed_worker_is_replaced_and_the_connection_served_on(make_tree: Callable[..., Tree], victim: str) -> None:
    tree = make_tree(ReactorSizes())
    client = tree.connect()
    client.send(heartbeat(1, b"before"))
    assert client.receive().body == b"before"
    os.kill(pid_of(tree, victim), signal.SIGKILL)
    newcomer = tree.connect()
    for one in (client, newcomer):
        one.send(heartbeat(2, b"after"))
        assert one.receive().body == b"after"
        one.socket.close()
    wait_until(lambda: tree.topology.blocks[victim].epoch == 2 and tree.topology.blocks[victim].is_ready)
    assert tree.stop() == 0


def test_a_killed_selector_drops_its_connections_and_serves_new_ones(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree(ReactorSizes())
    client = tree.connect()
    client.send(heartbeat(1))
    client.receive()
    os.kill(pid_of(tree, "selector-0"), signal.SIGKILL)
    with client.socket, pytest.raises(ConnectionResetError):
        client.socket.recv(1)
    again = tree.connect()
    again.send(heartbeat(2, b"x"))
    assert again.receive().body == b"x"
    again.socket.close()


def test_no_worker_outlives_a_killed_supervisor(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree(ReactorSizes())
    workers = [name for name in tree.topology.blocks if name != REPLICATOR]  # a master's tree, which has none
    watched = [os.pidfd_open(pid_of(tree, name)) for name in workers]
    os.kill(tree.pid, signal.SIGKILL)
    os.waitpid(tree.pid, 0)
    tree.pid = 0
    for pidfd in watched:
        assert is_readable(pidfd, 20)
        os.close(pidfd)


def test_workers_are_named_and_keep_only_what_they_need(make_tree: Callable[..., Tree]) -> None:
    """Holds: trap, names of threads."""
    tree = make_tree(ReactorSizes(selector_workers=2))
    pid = pid_of(tree, "selector-1")
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        assert file.read().rstrip(b"\0") == b"rocketpy: selector 1"
    open_fds = [fd for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2]
    kinds = [os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0] for fd in open_fds]
    assert kinds.count("socket") == 1  # its handoff
    assert set(kinds) == {"socket", "anon_inode"}
    assert "pipe" not in kinds


def pid_of(tree: Tree, name: str) -> int:
    """By title: children of the supervisor."""
    wanted = f"rocketpy: {name.replace('-', ' ')}".encode()
    with open(f"/proc/{tree.pid}/task/{tree.pid}/children") as file:
        for child in map(int, file.read().split()):
            with open(f"/proc/{child}/cmdline", "rb") as title:
                if title.read().rstrip(b"\0") == wanted:
                    return child
    raise AssertionError(f"no {name}")
