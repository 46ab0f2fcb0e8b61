"""Invariant: while log files are deleted under pending timers, which are stored again, each acknowledged one is
delivered once and not early, whichever workers are killed, or all at once."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.codes import RequestCode
from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.message.record import StoredRecord
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, send_request
from tests.support.kills import kill_while_delivering, stored, wait_for

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, FILL_TOPIC, TIMER_TOPIC = "timed", "filler", "rmq_sys_wheel_timer"
TIMERS, DELAY_MIN_MS, DELAY_MAX_MS = 2_000, 2_000, 20_000
FILE_SIZE, FILL, PAUSE_S = 1 << 20, b"f" * 30_000, 0.05
VICTIMS = ("send", "store", "all", "send", "store", "manager", "all")
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "maxMessageSize": "65536",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "200",
    "deleteCommitLogFilesInterval": "1",
    "flushConsumeQueueThoroughInterval": "100",
    "selectorWorkers": "1",
    "codecWorkers": "1",
}


@contextlib.contextmanager
def files_kept(broker: RunningBroker) -> Iterator[Path]:
    """A directory with links to all files that the log ever had."""
    with tempfile.TemporaryDirectory(dir=broker.store.parent) as name, thread(keep_files, broker, Path(name)):
        yield Path(name)


def keep_files(broker: RunningBroker, kept: Path, ended: threading.Event) -> None:
    while not ended.wait(0.05):
        for path in (broker.store / "commitlog").iterdir():
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(path, kept / path.name)


@contextlib.contextmanager
def thread(target: object, *arguments: object) -> Iterator[None]:
    ended = threading.Event()
    running = threading.Thread(target=target, args=(*arguments, ended))  # type: ignore[arg-type]
    running.start()
    try:
        yield
    finally:
        ended.set()
        running.join()


def keep_filling(broker: RunningBroker, ended: threading.Event) -> None:
    """Send other messages, so that log files end, and ask for the deletion of old files; from a new connection if the
    old one was cut."""
    connection: Connection | None = None
    while not ended.wait(PAUSE_S):
        try:
            connection = connection or Connection(broker.port, timeout_s=5.0)
            connection.ask(send_request(FILL_TOPIC, 0, [FILL], 1))
            connection.ask(RemotingCommand.request(RequestCode.DELETE_EXPIRED_COMMITLOG))
        except OSError:
            if connection is not None:
                connection.close()
            connection = None
    if connection is not None:
        connection.close()


def timer(number: int, delay_ms: int) -> RemotingCommand:
    command = send_request(TOPIC, number % 4, [b"%d" % number], number)
    assert command.ext_fields is not None
    command.ext_fields["i"] = f"TIMER_DELAY_MS\x01{delay_ms}\x02"
    return command


def send_timers(broker: RunningBroker, choose: random.Random) -> set[int]:
    connection = Connection(broker.port, timeout_s=30.0)
    connection.send(*(timer(number, choose.randint(DELAY_MIN_MS, DELAY_MAX_MS)) for number in range(TIMERS)))
    replies = [connection.receive() for _ in range(TIMERS)]
    connection.close()
    return {reply.opaque for reply in replies if reply.code == 0}


def of_topic(records: list[StoredRecord], topic: str) -> list[StoredRecord]:
    return [record for record in records if record.topic == topic]


def test_no_death_repeats_or_loses_a_timer_whose_file_is_deleted() -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(SEED)
    with running_broker(SETTINGS) as broker, files_kept(broker) as kept:
        acknowledged = send_timers(broker, choose)
        assert len(acknowledged) == TIMERS
        with thread(keep_filling, broker):
            kill_while_delivering(
                broker,
                VICTIMS,
                TIMERS,
                lambda: len({bytes(record.body) for record in of_topic(stored(broker, kept), TOPIC)}),
                choose,
            )
            begin = lambda: min(int(path.name) for path in (broker.store / "commitlog").iterdir())  # noqa: E731
            wait_for(lambda: begin() > 0, broker)
        assert broker.stop() == 0, broker.text()[-4000:]
        records = stored(broker, kept)
    delivered = of_topic(records, TOPIC)
    times = Counter(int(record.body) for record in delivered)
    assert [number for number, count in times.items() if count > 1] == [], "delivered twice"
    assert acknowledged - times.keys() == set(), "lost"
    for record in delivered:
        due_ms = int(decode_properties(record.properties.decode())[TIMER_OUT_MS])
        assert record.store_timestamp_ms >= due_ms, f"timer {int(record.body)} is early"
    renewed = [record for record in of_topic(records, TIMER_TOPIC) if record.prepared_transaction_offset]
    print(f"{len(renewed)} renewals")
    assert renewed, "no timer was stored again"
