"""Invariant: every transaction that commits is delivered exactly once and none that rolls back ever is, whichever
workers are killed, and when all of them are, while half messages, ends and checks are under way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.codes import RequestCode
from rocketpy.message import names
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketpy.store.inspection.dump import StoreDump
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, send_request
from tests.support.kills import stored

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, QUEUES, GROUP = "transactions", 4, "P"
PRODUCERS, PIPELINED = 4, 8
VICTIMS = ("send", "manager", "store", "send", "pull", "manager", "selector 0", "send")
BETWEEN_S = (0.3, 0.8)
SETTINGS = {
    "transactionTimeOut": "300",
    "transactionCheckInterval": "300",
    "transactionCheckMax": "1000",
    "mappedFileSizeCommitLog": str(8 << 20),
}


def commits(number: int) -> bool:
    """What the local transaction of a message decides: its producer and the one that is asked know it by the number."""
    return number % 3 != 0


def end_of(queue_offset: int, phy_offset: int, number: int, *, from_check: bool = False) -> RemotingCommand:
    header = EndTransactionRequestHeader(
        producer_group=GROUP,
        tran_state_table_offset=queue_offset,
        commit_log_offset=phy_offset,
        commit_or_rollback=8 if commits(number) else 12,
        from_transaction_check=from_check,
    )
    command = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
    command.opaque = number
    return command


def half_of(number: int) -> RemotingCommand:
    command = send_request(TOPIC, number % QUEUES, [b"%d" % number], number)
    assert command.ext_fields is not None
    command.ext_fields |= {"f": "4", "i": f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01u{number}"}
    return command


class Load:
    """Producers that begin transactions, and one that is asked about what they left open, until `stop`."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._numbers = iter(range(1, 1 << 30))
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._is_over = threading.Event()
        self.acknowledged: set[int] = set()
        self.answered = 0  # checks
        self._producers = [threading.Thread(target=self._live, args=(self._produce,)) for _ in range(PRODUCERS)]
        self._asked = threading.Thread(target=self._live, args=(self._answer_checks,))
        for thread in (*self._producers, self._asked):
            thread.start()

    def stop_producing(self) -> None:
        self._stopping.set()
        for thread in self._producers:
            thread.join()

    def close(self) -> None:
        self._stopping.set()
        self._is_over.set()
        for thread in (*self._producers, self._asked):
            thread.join()

    def _live(self, work: Callable[[Connection], None]) -> None:
        """Begin a new life after each cut. Nothing is sent twice, but for ends, which may be."""
        until = self._is_over if work == self._answer_checks else self._stopping
        while not until.is_set():
            with contextlib.suppress(OSError):
                connection = Connection(self._broker.port)
                try:
                    work(connection)
                finally:
                    connection.close()
            time.sleep(0.01)

    def _produce(self, connection: Connection) -> None:
        while not self._stopping.is_set():
            with self._lock:
                numbers = [next(self._numbers) for _ in range(PIPELINED)]
            connection.send(*(half_of(number) for number in numbers))
            replies = [connection.receive() for _ in numbers]
            ends = []
            for reply in replies:
                if reply.code != 0 or reply.ext_fields is None:
                    continue
                number, fields = reply.opaque, reply.ext_fields
                self.acknowledged.add(number)
                phy_offset = decode_offset_message_id(fields["msgId"]).phy_offset
                if number % 5:  # the others are left open
                    ends += [end_of(int(fields["queueOffset"]), phy_offset, number)] * (1 + (number % 7 == 0))
            connection.send(*ends)
            for _ in ends:
                connection.receive()

    def _answer_checks(self, connection: Connection) -> None:
        body = {"clientID": "c", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
        connection.send(heartbeat)
        while not self._is_over.is_set():
            try:
                command = connection.receive()
            except TimeoutError:
                connection.send(heartbeat)
                continue
            if command.code == RequestCode.CHECK_TRANSACTION_STATE and not command.is_response:
                header, record = CheckTransactionStateRequestHeader.of(command), decode_record(command.body or b"")
                assert record is not None
                number = int(record.body)
                connection.send(
                    end_of(header.tran_state_table_offset, header.commit_log_offset, number, from_check=True)
                )
                self.answered += 1


def open_offsets(records: list[StoredRecord]) -> set[int]:
    ended = {int(record.body) for record in records if record.topic == names.TRANS_OP_HALF_TOPIC}
    return {record.queue_offset for record in records if record.topic == names.TRANS_HALF_TOPIC} - ended


def wait_for(condition: Callable[[], bool], broker: RunningBroker, what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"{what}\n{broker.text()[-4000:]}"
        time.sleep(0.1)


def check_history(broker: RunningBroker, load: Load) -> None:
    records = stored(broker)
    halves = Counter(int(record.body) for record in records if record.topic == names.TRANS_HALF_TOPIC)
    delivered = Counter(int(record.body) for record in records if record.topic == TOPIC)
    ops = Counter(int(record.body) for record in records if record.topic == names.TRANS_OP_HALF_TOPIC)
    print(f"{len(halves)} half messages, {len(delivered)} delivered, {load.answered} checks answered")
    assert load.acknowledged <= set(halves), "an acknowledged half message is lost"
    assert [number for number, count in halves.items() if count > 1] == []
    assert [number for number in halves if commits(number) and not delivered[number]] == [], "lost"
    assert [number for number in delivered if not commits(number)] == [], "rolled back, but delivered"
    assert [number for number, count in delivered.items() if count > 1] == [], "delivered twice"
    assert [offset for offset, count in ops.items() if count > 1] == [], "ended twice"
    assert StoreDump(broker.store).verify().problems == []


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_no_death_repeats_or_loses_a_transaction(flush: str) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{flush}")
    with running_broker(SETTINGS | {"flushDiskType": flush}) as broker:
        load = Load(broker)
        try:
            wait_for(lambda: len(load.acknowledged) > 100, broker, "the first transactions")
            for victim in VICTIMS:
                wait_for(lambda: victim in broker.workers(), broker, f"{victim} to be there again")  # noqa: B023
                before = len(load.acknowledged)
                broker.kill_worker(victim)
                time.sleep(choose.uniform(*BETWEEN_S))
                wait_for(lambda: len(load.acknowledged) > before, broker, "transactions go on")  # noqa: B023
            broker.kill_all()
            broker.start()
            before = len(load.acknowledged)
            wait_for(lambda: len(load.acknowledged) > before + 100, broker, "transactions go on")
            load.stop_producing()
            wait_for(lambda: not open_offsets(stored(broker)), broker, "every transaction ends")
        finally:
            load.close()
        assert load.answered > 0, "nothing was left to ask about"
        assert broker.stop() == 0, broker.text()[-4000:]
        check_history(broker, load)
