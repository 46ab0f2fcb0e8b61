"""What a task of a manager writes after it has waited leaves at once, however long the pump's turn is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path.ring_fast_path import RingFastPath, WorkerLinks
from rocketpy.codes import RequestCode
from rocketpy.config import BrokerSettings
from rocketpy.reactor.channel import Gateway
from rocketpy.reactor.handlers import Handlers
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.request_server import RequestServer
from rocketpy.reactor.ring import STOP_LEAVE, Ring, RingReader, RingWriter, WorkerBlock
from rocketpy.reactor.worker_messages import WorkerMessage
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import MessageToPut
from tests.support import ring_messages

HOUR_S = 3600.0


class NoQueues:
    def add_queues(self, topic: bytes, count: int) -> None: ...

    def delete_queues(self, topic: str) -> None: ...

    def delete_units(self, topic: str, below: int) -> None: ...


@attrs.define(eq=False)
class Rig:
    """A manager whose pump sleeps for an hour, between a selector and a send worker played by the test."""

    blocks: dict[str, WorkerBlock]
    requests: RingWriter
    replies: RingReader
    to_send: RingReader
    server: RequestServer
    fast_path: RingFastPath
    may_go_on: trio.Event = attrs.field(factory=trio.Event)

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await self.may_go_on.wait()
        return RemotingCommand.response()

    async def is_woken(self, name: str) -> None:
        """Wait, as `name` does, for its doorbell."""
        await trio.lowlevel.wait_readable(self.blocks[name].doorbell)


@pytest.fixture
def rig() -> Iterator[Rig]:
    blocks = {name: WorkerBlock(name, n) for n, name in enumerate(("manager", "selector", "send", "pull"))}
    requests = Ring(65536, blocks["selector"], blocks["manager"])
    replies = Ring(65536, blocks["manager"], blocks["selector"])
    to_send, to_pull = (Ring(65536, blocks["manager"], blocks[name]) for name in ("send", "pull"))
    fast_path = RingFastPath(
        WorkerLinks(
            send=(blocks["send"], Outbox(RingWriter(to_send))),
            pulls=[(blocks["pull"], Outbox(RingWriter(to_pull)))],
            store=None,
        ),
        queues=NoQueues(),
        store_host=("10.0.0.1", 10911),
    )
    processors: dict[int, Rig] = {}
    server = RequestServer(
        block=blocks["manager"],
        inputs=[RingReader(requests)],
        gateway=Gateway([Outbox(RingWriter(replies))]),
        pools=broker_pools(BrokerSettings()),
        handlers=Handlers(processors=processors, fast_path=fast_path),
    )
    made = Rig(blocks, RingWriter(requests), RingReader(replies), RingReader(to_send), server, fast_path)
    processors[RequestCode.DELETE_TOPIC_IN_BROKER] = made
    yield made
    for block in blocks.values():
        os.close(block.doorbell)


async def asleep(rig: Rig) -> None:
    """The pump has nothing to do and sleeps; so does everybody else."""
    for name in ("selector", "send", "pull"):
        rig.blocks[name].prepare_sleep()
    await trio.testing.wait_all_tasks_blocked()
    assert rig.blocks["manager"].pointer.asleep


def stop(rig: Rig) -> None:
    rig.blocks["manager"].order(STOP_LEAVE)


def test_a_reply_after_an_await_wakes_its_selector(rig: Rig) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.server.run, HOUR_S)
            origin = ring_messages.origin_record(ring_messages.origin(5))
            request = RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER)
            assert rig.requests.write(WorkerMessage.COMMAND, origin + request.encode()[4:])
            rig.requests.finish_batch()
            await asleep(rig)
            assert rig.replies.is_empty()
            rig.may_go_on.set()
            await rig.is_woken("selector")
            found = rig.replies.read()
            assert found is not None and found[0] == WorkerMessage.REPLY
            stop(rig)

    trio.run(main)


def test_what_a_background_task_tells_the_fast_path_wakes_it(rig: Rig) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.server.run, HOUR_S)
            await asleep(rig)
            rig.fast_path.topic_changed("T", perm=6, read_queue_nums=1, write_queue_nums=1, multi_tag=False)
            await rig.is_woken("send")
            await rig.is_woken("pull")
            found = rig.to_send.read()
            assert found is not None and found[0] == WorkerMessage.TOPIC
            rig.blocks["send"].awake()
            await asleep(rig)
            nursery.start_soon(rig.fast_path.put, MessageToPut("T", 0, b"body", b""))
            await rig.is_woken("send")
            found = rig.to_send.read()
            assert found is not None and found[0] == WorkerMessage.SEND
            (put,) = rig.fast_path._puts._under_way
            rig.fast_path.put_finished(ring_messages.put_result(put))
            stop(rig)

    trio.run(main)


def test_what_found_no_room_leaves_when_there_is_room(rig: Rig) -> None:
    """The pump sleeps while a background task fills the ring: the consumer's progress must wake the pump."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.server.run, HOUR_S)
            await asleep(rig)
            count = 2 * 65536 // 1000
            for n in range(count):
                rig.fast_path._send.outbox.put(WorkerMessage.COMPLETED, n.to_bytes(4, "big") + bytes(996), always=True)
            seen = []
            while len(seen) < count:
                found = rig.to_send.read()
                if found is None:
                    await rig.is_woken("send")
                    rig.blocks["send"].awake()
                    rig.blocks["send"].prepare_sleep()
                    continue
                seen.append(int.from_bytes(found[1][:4], "big"))
            assert seen == list(range(count))
            stop(rig)

    trio.run(main)
