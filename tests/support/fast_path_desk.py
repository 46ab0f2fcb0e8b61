"""RingFastPath over real rings; the test plays the workers at their other ends."""

from __future__ import annotations

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path.ring_fast_path import RingFastPath, WorkerLinks
from rocketpy.native.core import lib
from rocketpy.reactor import worker_messages
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.ring import Ring, RingReader, RingWriter, WorkerBlock
from rocketpy.reactor.worker_messages import (
    WorkerMessage,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import FastPath, SendRequest
from tests.support import ring_messages


@attrs.define
class ChannelLog:
    """A Channel that keeps what is pushed."""

    pushed: list[RemotingCommand] = attrs.field(factory=list)
    connection: int = 77

    def push(self, command: RemotingCommand) -> None:
        self.pushed.append(command)


@attrs.define
class QueueLog:
    """Entries of the control block, as the manager writes them."""

    log: list[tuple[object, ...]] = attrs.field(factory=list)
    published_phy_offset: int = 0

    def add_queues(self, topic: bytes, count: int) -> None:
        self.log += [(topic, queue_id) for queue_id in range(count)]

    def delete_queues(self, topic: str) -> None:
        self.log.append(("delete", topic))

    def delete_units(self, topic: str, below: int) -> None:
        self.log.append(("below", topic, below))


@attrs.define(eq=False)
class Desk:
    """A fast path with its three processes, and a decoder that writes to the send worker, played by the test."""

    blocks: dict[str, WorkerBlock]
    readers: dict[str, RingReader]
    fast_path: RingFastPath
    queues: QueueLog
    decoder: RingWriter
    requests: RingReader

    @classmethod
    def open(cls) -> Desk:
        blocks = {name: WorkerBlock(name, n) for n, name in enumerate(("manager", "send", "pull", "store", "decoder"))}
        rings = {name: Ring(65536, blocks["manager"], blocks[name]) for name in ("send", "pull", "store")}
        requests = Ring(65536, blocks["decoder"], blocks["send"])
        boxes = {name: Outbox(RingWriter(ring), bytes_max=40_000) for name, ring in rings.items()}
        queues = QueueLog()
        fast_path = RingFastPath(
            WorkerLinks(
                send=(blocks["send"], boxes["send"]),
                pulls=[(blocks["pull"], boxes["pull"])],
                store=(blocks["store"], boxes["store"]),
                requests=[requests],
            ),
            queues=queues,
            store_host=("10.0.0.1", 10911),
            now_ns=lambda: 1000,
        )
        readers = {name: RingReader(ring) for name, ring in rings.items()}
        return cls(blocks, readers, fast_path, queues, RingWriter(requests), RingReader(requests))

    def told(self, name: str) -> list[tuple[int, bytes]]:
        """Records for one process since the last call, of the store those that ask for something; makes room and lets
        the fast_path move on."""
        tables = {WorkerMessage.FILTER, WorkerMessage.TABLES_END} if name == "store" else set()
        return [(kind, record) for kind, record in self.all_told(name) if kind not in tables]

    def all_told(self, name: str) -> list[tuple[int, bytes]]:
        found = []
        while True:
            record = self.readers[name].read()
            if record is None:
                self.fast_path.turn()
                record = self.readers[name].read()
                if record is None:
                    return found
            found.append(record)

    def kinds(self, name: str) -> list[int]:
        return [kind for kind, _ in self.told(name)]


def change_topic(fast_path: FastPath, topic: str, perm: int = 6) -> None:
    fast_path.topic_changed(topic, perm=perm, read_queue_nums=1, write_queue_nums=1, multi_tag=False)


def announce(fast_path: FastPath) -> None:
    """All kinds of table entries."""
    fast_path.topic_changed("T", perm=6, read_queue_nums=2, write_queue_nums=3, multi_tag=False, slow=True)
    fast_path.group_changed(
        "G",
        consume_enable=True,
        consume_broadcast_enable=False,
        broker_id=0,
        which_broker_when_consume_slowly=1,
        is_online=True,
        is_broadcasting=False,
    )
    fast_path.subscription_changed("G", "T", expression_type="TAG", sub_string="TagA || TagB", sub_version=5)
    fast_path.broker_changed(permission=6, max_message_size=1000, reject_transactions=True)
    fast_path.tables_end()


def send_request(channel: ChannelLog, *, oneway: bool = False, body: bytes = b"b") -> SendRequest:
    flags = lib.RP_REQUEST_ONEWAY if oneway else 0
    record = ring_messages.send(ring_messages.origin(77, received_ns=5), body, opaque=9, flags=flags)
    return worker_messages.decode_send(record, channel)
