"""A RequestServer with a decoder before it and a selector behind it, both played by the test."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import attrs
import trio
import trio.testing

from rocketpy.reactor import worker_messages
from rocketpy.reactor.channel import Gateway
from rocketpy.reactor.handlers import Handlers
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.pools import Pool, PoolTable
from rocketpy.reactor.request_server import RequestServer
from rocketpy.reactor.ring import STOP_LEAVE, Ring, RingReader, RingWriter, WorkerBlock
from rocketpy.reactor.worker_messages import WorkerMessage
from rocketpy.remoting.abc import Channel, Response
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, SendRequest, Traffic
from tests.support import ring_messages

CONNECTION = 0 << 56 | 4 << 32 | 1
OTHER = 0 << 56 | 5 << 32 | 1
NOW_NS = 10**12
Handler = Callable[[RemotingCommand, Channel], Awaitable[Response]]


@attrs.define
class Call:
    """A Processor made of a function."""

    handler: Handler

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        return await self.handler(request, channel)


@attrs.define
class SlowPathLog:
    """A SlowPath and ConnectionListener that writes down what it is told."""

    told: list[object] = attrs.field(factory=list)
    fail_with: Exception | None = None
    has_answered: bool = True

    def slow_send(self, request: SendRequest) -> None:
        self.told.append(request)
        if self.fail_with:
            raise self.fail_with

    def slow_pull(self, request: PullRequest) -> None:
        self.told.append(request)
        if self.fail_with:
            raise self.fail_with

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int, received_ms: int) -> None:
        self.told.append((group, topic, queue_id, offset, received_ms))

    def count_traffic(self, traffic: Traffic) -> None:
        self.told.append(traffic)

    def finish(self) -> bool:
        return self.has_answered

    def connection_closing(self, connection: int) -> None:
        self.told.append(f"{connection} is closing")

    def connection_closed(self, connection: int) -> None:
        self.told.append(connection)

    def drop_connections(self, is_gone: Callable[[int], bool]) -> Iterator[None]:
        self.told.append("dropping")
        yield
        self.told.append(f"dropped {is_gone(CONNECTION)}")


@attrs.define(eq=False)
class Bench:
    """The server with a decoder before it and a selector behind it, both played by the test."""

    blocks: list[WorkerBlock]
    decoder: RingWriter
    selector: RingReader
    server: RequestServer
    slow_path: SlowPathLog
    clock: list[int]
    """Its one entry is the time."""

    @classmethod
    def open(
        cls,
        pools: tuple[Pool, ...],
        processors: dict[int, Handler],
        reply_bytes: int = 65536,
        **handlers: Any,
    ) -> Bench:
        blocks = [WorkerBlock(name, index) for index, name in enumerate(("decoder", "manager", "selector"))]
        requests, replies = Ring(1 << 20, blocks[0], blocks[1]), Ring(reply_bytes, blocks[1], blocks[2])
        slow_path = SlowPathLog()
        clock = [NOW_NS - 1_000_000_000]
        server = RequestServer(
            block=blocks[1],
            inputs=[RingReader(requests)],
            gateway=Gateway([Outbox(RingWriter(replies), bytes_max=20_000)]),
            pools=PoolTable(pools, default=pools[0].name),
            handlers=Handlers(
                processors={code: Call(handler) for code, handler in processors.items()},
                slow_path=slow_path,
                **handlers,
            ),
            now_ns=lambda: clock[0],
        )
        return cls(blocks, RingWriter(requests), RingReader(replies), server, slow_path, clock)

    def close(self) -> None:
        for block in self.blocks:
            os.close(block.doorbell)

    @staticmethod
    def origin(*, waited_ms: int = 0, listener: int = 0, connection: int = CONNECTION) -> ring_messages.Fields:
        return ring_messages.origin(connection, received_ns=NOW_NS - waited_ms * 1_000_000, listener=listener)

    def channel(self) -> Channel:
        """The channel of CONNECTION."""
        origin = worker_messages.decode_origin(ring_messages.origin_record(self.origin()))
        return self.server.connections.channel(origin)

    def write(self, kind: WorkerMessage, record: bytes) -> None:
        assert self.decoder.write(kind, record)
        self.decoder.finish_batch()

    def request(self, code: int, opaque: int, *, oneway: bool = False, **origin: int) -> None:
        command = attrs.evolve(RemotingCommand.request(code, oneway=oneway), opaque=opaque)
        self.command(command, **origin)

    def heartbeat(self, opaque: int) -> None:
        record = ring_messages.origin_record(self.origin()) + RemotingCommand(34, opaque).encode()[4:]
        self.write(WorkerMessage.HEARTBEAT, record)

    def command(self, command: RemotingCommand, **origin: int) -> None:
        self.write(WorkerMessage.COMMAND, ring_messages.origin_record(self.origin(**origin)) + command.encode()[4:])

    def closed(self) -> None:
        self.write(WorkerMessage.CLOSED, ring_messages.origin_record(self.origin()))

    def replies(self) -> list[RemotingCommand | str]:
        """Return the answers for clients; "close" where the selector is told to close the connection."""
        found: list[RemotingCommand | str] = []
        while (record := self.selector.read()) is not None:
            kind, data = record
            assert kind == WorkerMessage.REPLY
            connection, flags, frame = ring_messages.reply(data)
            assert connection in (CONNECTION, OTHER)
            found.append(RemotingCommand.decode(frame) if frame else "close")
            assert bool(flags & worker_messages.REPLY_CLOSE_AFTER) == (not frame)
        return found

    def commands(self) -> list[RemotingCommand]:
        """Return the answers for clients, none of which closes a connection."""
        found = []
        for one in self.replies():
            assert isinstance(one, RemotingCommand), one
            found.append(one)
        return found

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        """Play `scene` beside the running server, then have it leave."""

        async def main() -> None:
            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.server.run)
                    await complete()
                    self.clock[0] = NOW_NS
                    await scene()
                    self.blocks[1].order(STOP_LEAVE)

        trio.run(main)


async def complete() -> None:
    """Let everything happen that can: the server then waits for its doorbell."""
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked(0.001)
