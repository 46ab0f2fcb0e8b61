"""Invariant: the memory of the process tree grows neither with the messages nor with the connections that it has had.

Counted is what the processes hold beside the mapped files of the store, which the kernel takes back when it needs to
(PSS: shared pages are counted once)."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import MAX_OFFSET, Connection, Reader, pull_request, send_request
from tests.support.hostile_run import memory

GROWTH_MAX_KIB = 3 * 1024
BURST = 2_000
SUCCESS = b'"code":0'
WARM_MESSAGES, MESSAGES = 200_000, 1_000_000
WARM_LIVES, LIVES = 300, 1_000


def send_many(port: int, messages: int) -> None:
    connection = Connection(port, timeout_s=30)
    frame = send_request("many", 1, [b"x" * 64], 1).encode()
    for _ in range(messages // BURST):
        connection.send_bytes(frame * BURST)
        for _ in range(BURST):
            assert SUCCESS in connection.receive_frame()
    connection.close()


def live_and_go(port: int, lives: int) -> None:
    """What a client does in a short life: ask, send, have a pull held, leave without a word."""
    for _ in range(lives):
        connection = Connection(port, timeout_s=30)
        assert connection.ask(send_request("few", 0, [b"x" * 64], 1)).code == 0
        ask = RemotingCommand.request(MAX_OFFSET, ext_fields={"topic": "few", "queueId": "0"})
        assert connection.ask(ask).code == 0
        connection.send(pull_request("few", 3, 0, hold_ms=60_000))
        connection.close()


def settled_memory_kib(broker: RunningBroker) -> int:
    """When the queues have caught up and every suspended pull of a closed connection has been dropped."""
    time.sleep(2)
    return memory(broker) // 1024


def test_memory_follows_neither_messages_nor_past_connections() -> None:
    with running_broker(is_new=True) as broker:
        send_many(broker.port, WARM_MESSAGES)
        live_and_go(broker.port, WARM_LIVES)
        before = settled_memory_kib(broker)
        send_many(broker.port, MESSAGES)
        between = settled_memory_kib(broker)
        live_and_go(broker.port, LIVES)
        after = settled_memory_kib(broker)
        print(f"PSS without store files: {before} KiB, {between} after messages, {after} after connections")
        reader = Reader(broker.port)
        stored = reader.offset(MAX_OFFSET, "many", 1)
        reader.close()
        assert stored == WARM_MESSAGES + MESSAGES
        assert between - before < GROWTH_MAX_KIB and after - between < GROWTH_MAX_KIB
        assert broker.stop() == 0, broker.text()[-4000:]


def test_memory_follows_no_offsets_that_are_not_kept() -> None:
    """No client commits offsets of CID_RMQ_SYS_TRANS, and asking for it takes no memory.
    Fault: Offsets committed for CID_RMQ_SYS_TRANS cost 300 bytes of the manager per new topic name."""

    def commit(connection: Connection, first: int, count: int) -> None:
        for number in range(first, first + count):
            fields = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": f"Topic{number}", "queueId": "0"}
            connection.send(RemotingCommand.request(15, ext_fields=fields | {"commitOffset": "1"}, oneway=True))
            if number % BURST == BURST - 1:  # the pool is bounded
                query = fields | {"consumerGroup": "G"}
                assert connection.ask(RemotingCommand.request(14, ext_fields=query)).code == 0

    with running_broker(is_new=True) as broker:
        connection = Connection(broker.port, timeout_s=30)
        commit(connection, 0, 5 * BURST)
        before = memory(broker) // 1024
        commit(connection, 5 * BURST, 15 * BURST)
        after = memory(broker) // 1024
        connection.close()
        print(f"PSS without store files: {before} KiB, {after} after offsets that are not kept")
        assert after - before < GROWTH_MAX_KIB
        assert broker.stop() == 0, broker.text()[-4000:]
