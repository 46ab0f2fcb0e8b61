"""Invariant: a backup of a broker under load boots in a real broker, with every message that was acknowledged before it
began, and no committed offset beyond its queue; a killed backup is continued; expired files are left out."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import loads
from rocketpy.store.files import file_name
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import MAX_OFFSET, Ack, Connection, Load, Reader, commit_of, send_request
from tests.support.kills import WAIT_S, stored, wait_for
from tests.support.live_log import records_in

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, QUEUES, GROUP = "backup", 4, "G"
DELAY_S = 30
PAUSE_S = 0.002  # of a connection of the load after each answer
SETTINGS = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "flushDiskType": "ASYNC_FLUSH",
    "messageDelayLevel": f"1s {DELAY_S}s",
    "flushConsumerOffsetInterval": "200",
    "flushDelayOffsetInterval": "200",
    "transactionTimeOut": "600000",
}
EXPIRING = {"fileReservedTime": "0", "cleanResourceInterval": "200", "deleteCommitLogFilesInterval": "10"}
PREPARED = 4  # sysFlag of a half message
Command = list[str]


def command(broker: RunningBroker, target: Path) -> Command:
    return [sys.executable, "-m", "rocketpy", "store", "backup", str(broker.store), str(target)]


def back_up(broker: RunningBroker, target: Path) -> Path:
    done = subprocess.run(command(broker, target), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^backup (\S+): \d+ messages up to log offset \d+", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return Path(found[1])


@contextmanager
def consumer(broker: RunningBroker) -> Iterator[None]:
    """Commits the ends of the queues all the time, so that a copied table is as far ahead as it can be."""
    stopping = threading.Event()

    def run() -> None:
        reader, connection = Reader(broker.port), Connection(broker.port, timeout_s=30.0)
        while not stopping.wait(0.02):
            for queue_id in range(QUEUES):
                fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
                end = reader.offset(MAX_OFFSET, TOPIC, queue_id)
                connection.ask(RemotingCommand.request(15, ext_fields=fields | {"commitOffset": str(end)}))
        reader.close()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def expect(port: int, acks: list[Ack]) -> None:
    reader = Reader(port)
    found = {
        (queue_id, record.queue_offset): bytes(record.body).split(b" ", 3)[1:3]
        for queue_id in range(QUEUES)
        for record in reader.records(TOPIC, queue_id)
    }
    lost = [
        ack for ack in acks if found.get((ack.queue_id, ack.queue_offset)) != [ack.life.encode(), b"%d" % ack.number]
    ]
    assert not lost, f"seed {SEED}: {len(lost)} of {len(acks)} are not in the copy, the first is {lost[0]}"
    for queue_id in range(QUEUES):
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
        answer = reader.ask(RemotingCommand.request(14, ext_fields=fields))
        if answer.code == 0:
            committed, end = int((answer.ext_fields or {})["offset"]), reader.offset(MAX_OFFSET, TOPIC, queue_id)
            assert committed <= end, f"queue {queue_id}: the group is at {committed}, the queue ends at {end}"
    reader.close()


def send_one(port: int, topic: str, body: bytes, properties: str, sys_flag: int = 0) -> RemotingCommand:
    request = send_request(topic, 0, [body], 1)
    assert request.ext_fields is not None
    request.ext_fields |= {"f": str(sys_flag), "i": properties}
    connection = Connection(port, timeout_s=30.0)
    answer = connection.ask(request)
    connection.close()
    assert answer.code == 0, answer
    return answer


def test_a_copy_under_load_boots_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """Sends, a delayed message, an open transaction and commits of offsets go on meanwhile."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    with running_broker(SETTINGS) as broker:
        transaction = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01half\x02"
        half = send_one(broker.port, "halves", b"half", transaction, PREPARED)
        send_one(broker.port, "late", b"delayed", "DELAY\x012\x02UNIQ_KEY\x01delayed\x02")
        with Load(broker.port, SEED, [(TOPIC, QUEUES)], body_bytes=1_000, pause_s=PAUSE_S) as load:
            load.wait_for_answers(500, timeout_s=WAIT_S)
            with consumer(broker):
                copies = []
                for _ in range(3):
                    before = list(load.acks)
                    copies.append((back_up(broker, tmp_path), before))
                    load.wait_for_answers(200, timeout_s=WAIT_S)
    for copy, acks in copies:
        assert loads((copy / "config" / "consumerOffset.json").read_bytes()), "offsets were committed"
        with running_broker(SETTINGS, store=copy) as again:
            expect(again.port, acks)
            connection = Connection(again.port, timeout_s=30.0)
            assert connection.ask(commit_of(half)).code == 0, "the transaction can still be committed"
            connection.close()
            wait_for(
                lambda: (
                    {b"half", b"delayed"}
                    <= {bytes(record.body) for record in stored(again) if record.topic in ("halves", "late")}
                ),
                again,
            )


def test_a_killed_copy_is_continued(tmp_path: Path) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(SEED)
    with (
        running_broker(SETTINGS) as broker,
        Load(broker.port, SEED, [(TOPIC, QUEUES)], body_bytes=4_000, pause_s=PAUSE_S) as load,
    ):
        load.wait_for_answers(800, timeout_s=WAIT_S)
        for _ in range(4):
            process = subprocess.Popen(command(broker, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.3 + choose.random())
            process.kill()
            process.wait()
            load.wait_for_answers(200, timeout_s=WAIT_S)
        before = list(load.acks)
        copy = back_up(broker, tmp_path)
        assert not list(tmp_path.glob("*.part")), "it was continued"
    with running_broker(SETTINGS, store=copy) as again:
        expect(again.port, before)


def test_files_that_expire_meanwhile_are_left_out(tmp_path: Path) -> None:
    """The broker deletes its old files all the time; the pending timer in them is stored again, and in the copy."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    with running_broker(SETTINGS | EXPIRING) as broker:
        send_one(broker.port, "late", b"timer", "TIMER_DELAY_SEC\x013600\x02UNIQ_KEY\x01timer\x02")
        stopping = threading.Event()

        def expire() -> None:
            connection = Connection(broker.port, timeout_s=30.0)
            while not stopping.wait(0.05):
                connection.ask(RemotingCommand.request(329))
            connection.close()

        with Load(broker.port, SEED, [(TOPIC, QUEUES)], body_bytes=4_000, pause_s=PAUSE_S) as load:
            load.wait_for_answers(800, timeout_s=WAIT_S)
            thread = threading.Thread(target=expire)
            thread.start()
            try:
                wait_for(lambda: min(os.listdir(broker.store / "commitlog")) > file_name(0), broker)
                copies = [back_up(broker, tmp_path) for _ in range(3)]
            finally:
                stopping.set()
                thread.join()
    for copy in copies:
        records = [record for path in sorted((copy / "commitlog").iterdir()) for record in records_in(path)]
        assert records[0].phy_offset > 0, "files have expired"
        assert b"timer" in [bytes(record.body) for record in records], f"{copy} lacks the pending timer"
        with running_broker(SETTINGS, store=copy) as again:
            assert "boot success" in again.text()
