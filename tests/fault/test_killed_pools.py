"""Invariant: with three pull and three query workers, each of which is killed again and again, those who follow a queue
with long polls get every message once, in order and without a hole; queries go on being answered, and rightly; sends do
not notice."""

from __future__ import annotations

import os
import random
import threading
import time

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import running_broker
from tests.support.history import PULL_FOUND, PULL_NOT_FOUND, PULL_RETRY, Connection, Reader, pull_request
from tests.support.kills import wait_until_gone
from tests.support.wire import Wire, send_request

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, QUEUES = "followed", 6
ROUNDS = 4  # kills of each worker
HOLD_MS = 1_000
ANSWER_S = 3.0  # an answer that takes longer went with a worker: clients ask again
QUERY_NOT_FOUND = 22
VIEW, QUERY, SEARCH, MAX_OFFSET = 33, 12, 29, 30


@attrs.define(eq=False)
class Follower:
    """Reads one queue with long polls, from its first message on."""

    port: int
    queue_id: int
    records: list[StoredRecord] = attrs.field(factory=list)
    fault: str = ""
    stop: threading.Event = attrs.field(factory=threading.Event)

    def run(self) -> None:
        connection: Connection | None = None
        while not self.stop.is_set():
            try:
                connection = connection or Connection(self.port, timeout_s=ANSWER_S)
                self._take(connection.ask(pull_request(TOPIC, self.queue_id, len(self.records), hold_ms=HOLD_MS)))
            except OSError:
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _take(self, reply: RemotingCommand) -> None:
        if reply.code == PULL_FOUND:
            for record in decode_records(reply.body or b"", check_crc=True):
                if record.queue_offset != len(self.records):
                    self.fault = f"queue {self.queue_id}: {record.queue_offset} after {len(self.records)} messages"
                self.records.append(record)
        elif reply.code not in (PULL_NOT_FOUND, PULL_RETRY):
            self.fault = f"queue {self.queue_id}: {reply}"


@attrs.define(eq=False)
class Asker:
    """Asks about messages that followers have got."""

    port: int
    followers: list[Follower]
    choose: random.Random
    answers: int = 0
    fault: str = ""
    stop: threading.Event = attrs.field(factory=threading.Event)

    def run(self) -> None:
        reader = Reader(self.port)
        try:
            while not self.stop.is_set():
                records = self.choose.choice(self.followers).records
                if records:
                    self._ask_about(reader, self.choose.choice(records))
        except AssertionError as exc:
            self.fault = str(exc)
        finally:
            reader.close()

    def _ask_about(self, reader: Reader, record: StoredRecord) -> None:
        place = {"topic": TOPIC, "queueId": str(record.queue_id)}
        assert bodies(ask(reader, VIEW, {"offset": str(record.phy_offset)})) == [record.body], "view by offset"
        found = int(ask(reader, SEARCH, place | {"timestamp": str(record.store_timestamp_ms)}).ext_fields["offset"])
        known = self.followers[record.queue_id].records
        assert found >= len(known) or known[found].store_timestamp_ms == record.store_timestamp_ms, "offset by time"
        assert int(ask(reader, MAX_OFFSET, place).ext_fields["offset"]) > record.queue_offset, "largest offset"
        by_key = {"topic": TOPIC, "key": record.body.decode(), "maxNum": "8", "beginTimestamp": "0"}
        by_key["endTimestamp"] = str(record.store_timestamp_ms + 1)
        reply = reader.ask(RemotingCommand.request(QUERY, ext_fields=by_key))
        deadline = time.monotonic() + 20  # a key is entered a moment after its message can be pulled
        while reply.code == QUERY_NOT_FOUND and time.monotonic() < deadline:
            reply = reader.ask(RemotingCommand.request(QUERY, ext_fields=by_key))
        assert record.body in bodies(reply), f"by key: {reply}"
        self.answers += 4


def ask(reader: Reader, code: int, fields: dict[str, str]) -> RemotingCommand:
    reply = reader.ask(RemotingCommand.request(code, ext_fields=fields))
    assert reply.code == 0, f"{code} {fields}: {reply}"
    return reply


def bodies(reply: RemotingCommand) -> list[bytes]:
    return [record.body for record in decode_records(reply.body or b"", check_crc=True)]


class Sender(threading.Thread):
    """Sends one message after the other, each with a key of its own; all must be acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.acknowledged = 0
        self.fault = ""
        self.stop = threading.Event()

    def run(self) -> None:
        with Wire.open(self._port) as wire:
            while not self.stop.is_set():
                body = b"m%d" % self.acknowledged
                request = send_request(
                    TOPIC, body, queue_id=self.acknowledged % QUEUES, properties=f"KEYS\x01{body.decode()}\x02"
                )
                answer = wire.ask(request)
                if answer.code:
                    self.fault = str(answer)
                    return
                self.acknowledged += 1


def test_followers_and_queries_outlive_every_pull_and_query_worker() -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(SEED)
    with running_broker({"pullWorkers": "3", "queryWorkers": "3", "defaultTopicQueueNums": str(QUEUES)}) as broker:
        with Wire.open(broker.port) as wire:
            create = {"topic": TOPIC, "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES), "perm": "6"}
            create |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
            assert wire.ask(RemotingCommand.request(17, ext_fields=create)).code == 0
        sender = Sender(broker.port)
        followers = [Follower(broker.port, queue_id) for queue_id in range(QUEUES)]
        askers = [Asker(broker.port, followers, random.Random(f"{SEED}/{n}")) for n in range(2)]
        threads = [threading.Thread(target=one.run) for one in (*followers, *askers)]
        for thread in (sender, *threads):
            thread.start()
        victims = [name for name in broker.workers() if name.startswith(("pull", "query"))] * ROUNDS
        assert len(victims) == 6 * ROUNDS
        choose.shuffle(victims)
        for victim in victims:
            before = sum(asker.answers for asker in askers)
            wait_until_gone(broker, victim, broker.kill_worker(victim))
            deadline = time.monotonic() + 60
            while sum(asker.answers for asker in askers) < before + 20 and not any(one.fault for one in askers):
                assert time.monotonic() < deadline, f"no answers after the death of {victim}"
                time.sleep(0.01)
        sender.stop.set()
        sender.join()
        deadline = time.monotonic() + 60
        while sum(len(one.records) for one in followers) < sender.acknowledged and time.monotonic() < deadline:
            time.sleep(0.02)
        for one in (*followers, *askers):
            one.stop.set()
        for thread in threads:
            thread.join()
        faults = [one.fault for one in (sender, *followers, *askers) if one.fault]
        got = [record.body for one in followers for record in one.records]
        print(f"{len(victims)} kills, {sender.acknowledged} messages, {sum(one.answers for one in askers)} queries")
        assert not faults, faults
        assert sorted(got) == sorted(b"m%d" % n for n in range(sender.acknowledged))
        assert broker.stop() == 0, broker.text()[-4000:]
