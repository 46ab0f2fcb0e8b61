"""Transactions whose end only the dead master had: the slave that is promoted by hand asks their producer again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from bench.control import Control
from rocketpy.client import LocalTransactionState, Message, ReceivedMessage, TransactionProducer
from rocketpy.client.options import ProducerOptions
from rocketpy.codes import RequestCode
from rocketpy.message.names import TRANS_GROUP, TRANS_HALF_TOPIC
from rocketpy.message.record import decode_records
from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from tests.interop.own_brokers import wait_equal_logs
from tests.support.broker import RunningBroker
from tests.support.pair import log_files, running_pair
from tests.support.waiting import wait_until

TOPIC, COUNT = "Decided", 20
SETTINGS = {
    "transactionTimeOut": "100",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1000",
    "mappedFileSizeCommitLog": "1048576",
    "maxMessageSize": "65536",
    "flushIntervalCommitLog": "100",
    "flushCommitLogThoroughInterval": "100",
}


class Decisions:
    """The local transactions: not decided before they may be, then committed."""

    def __init__(self, *, are_made: bool) -> None:
        self.are_made = are_made
        self.asked: set[bytes] = set()

    async def execute(self, message: Message, argument: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    async def check(self, message: ReceivedMessage) -> LocalTransactionState:
        self.asked.add(message.body)
        return LocalTransactionState.COMMIT if self.are_made else LocalTransactionState.UNKNOWN


def stored(broker: RunningBroker) -> list[bytes]:
    """The bodies of the topic's messages in the log."""
    images = log_files(broker.store).values()
    records = [record for image in images for record in decode_records(image, check_crc=False)]
    return sorted(bytes(record.body) for record in records if record.topic == TOPIC)


def progress(broker: RunningBroker) -> int:
    """The first half message that may be open, as the broker tells it."""
    with Control("127.0.0.1", broker.port) as control:
        body = control.check(RequestCode.GET_ALL_CONSUMER_OFFSET, {}).body
    found = ConsumerOffsetSerializeWrapper.decode(body).offset_table
    return found.get(f"{TRANS_HALF_TOPIC}@{TRANS_GROUP}", {}).get(0, 0)


def create_topic(broker: RunningBroker, topic: str) -> None:
    with Control("127.0.0.1", broker.port) as control:
        control.create_topic(topic, 1)


def has_topic(broker: RunningBroker, topic: str) -> bool:
    path = broker.store / "config" / "topics.json"
    return path.exists() and f'"{topic}"' in path.read_text()


async def until(is_true: Any, what: str) -> None:
    await trio.to_thread.run_sync(wait_until, is_true, what)


@pytest.mark.long
def test_a_slave_without_the_ends_is_promoted(tmp_path: Path) -> None:
    """Its log lacks the commits; the progress of transactions comes over another connection.
    Fault: A promoted slave without the last transaction ends neither delivered nor checked them."""
    bodies = [b"%03d" % number for number in range(COUNT)]
    with running_pair(tmp_path, "ASYNC_MASTER", SETTINGS) as pair:
        pair.slave.start()
        create_topic(pair.master, TOPIC)

        async def end_without_the_slave() -> None:
            decisions = Decisions(are_made=False)
            options = ProducerOptions(name_servers=pair.namesrv.namesrv)
            async with TransactionProducer("P", decisions, options) as producer:
                for body in bodies:
                    await producer.send_in_transaction(Message(TOPIC, body))
                await until(lambda: wait_equal_logs(pair.master.store, pair.slave.store) is None, "the slave's log")
                os.kill(pair.slave.workers()["replicator"], signal.SIGSTOP)
                decisions.are_made = True
                await until(lambda: len(stored(pair.master)) == COUNT, "the commits")
                await until(lambda: progress(pair.master) == COUNT, "the progress of the master")

        trio.run(end_without_the_slave)
        for mark in ("One", "Two"):  # the first round may have begun before
            create_topic(pair.master, mark)
            wait_until(lambda mark=mark: has_topic(pair.slave, mark), "a round of copies")  # type: ignore[misc]
        for broker in (pair.master, pair.slave):
            broker.kill_all()
        after = pair.swap()
        after.master.start()
        assert stored(after.master) == []

        async def ask_again() -> None:
            decisions = Decisions(are_made=True)
            options = ProducerOptions(name_servers=pair.namesrv.namesrv)
            async with TransactionProducer("P", decisions, options) as producer:
                await producer.send(Message(TOPIC, b"after"))
                await until(lambda: set(bodies) <= decisions.asked, "the questions")
                await until(lambda: len(stored(after.master)) == COUNT + 1, "the commits")

        trio.run(ask_again)
        assert stored(after.master) == [*bodies, b"after"]
