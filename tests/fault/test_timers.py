"""Invariant: a timer that was acknowledged is delivered once, not early, whichever workers are killed, or all of them
at once, while it waits or is on its way."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.message.record import StoredRecord
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, send_request
from tests.support.kills import kill_while_delivering, stored, wait_for

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, QUEUES = "timed", 4
BATCHES, BATCH = 90, 100
DELAY_MAX_MS = 12_000
WORKERS = ("send", "store", "manager", "selector 0", "store", "codec 0", "send", "pull", "store")
SETTINGS = {"mappedFileSizeCommitLog": str(64 << 20), "selectorWorkers": "1", "codecWorkers": "1"}


def timer(number: int, delay_ms: int) -> RemotingCommand:
    command = send_request(TOPIC, number % QUEUES, [b"%d" % number], number)
    assert command.ext_fields is not None
    command.ext_fields["i"] = f"TIMER_DELAY_MS\x01{delay_ms}\x02UNIQ_KEY\x01key{number}\x02"
    return command


def send_timers(broker: RunningBroker, choose: random.Random) -> set[int]:
    """Send BATCHES x BATCH timers; the numbers of those that were acknowledged."""
    connection = Connection(broker.port, timeout_s=30.0)
    acknowledged = set()
    for batch in range(BATCHES):
        numbers = range(batch * BATCH, (batch + 1) * BATCH)
        connection.send(*(timer(number, choose.randint(1, DELAY_MAX_MS)) for number in numbers))
        for _ in numbers:
            reply = connection.receive()
            if reply.code == 0:
                acknowledged.add(reply.opaque)
    connection.close()
    return acknowledged


def cancel(connection: Connection, number: int) -> int:
    """The code of the answer."""
    command = send_request(TOPIC, 0, [b""], number)
    assert command.ext_fields is not None
    command.ext_fields["i"] = f"TIMER_DEL_UNIQKEY\x01key{number}\x02"
    connection.send(command)
    return connection.receive().code


def delivered(broker: RunningBroker) -> list[StoredRecord]:
    return [record for record in stored(broker) if record.topic == TOPIC]


def count_delivered(broker: RunningBroker) -> int:
    return len({bytes(record.body) for record in delivered(broker)})


def check(broker: RunningBroker, acknowledged: set[int]) -> None:
    records = delivered(broker)
    times = Counter(int(record.body) for record in records)
    assert [number for number, count in times.items() if count > 1] == [], "delivered twice"
    assert acknowledged - times.keys() == set(), "lost"
    for record in records:
        due_ms = int(decode_properties(record.properties.decode())[TIMER_OUT_MS])
        assert record.store_timestamp_ms >= due_ms, f"timer {int(record.body)} is early"


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_no_death_of_a_worker_repeats_or_loses_a_timer(flush: str) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{flush}")
    with running_broker(SETTINGS | {"flushDiskType": flush}) as broker:
        acknowledged = send_timers(broker, choose)
        assert len(acknowledged) == BATCHES * BATCH
        counts = kill_while_delivering(broker, WORKERS, len(acknowledged), lambda: count_delivered(broker), choose)
        assert len(counts) >= 2, "too few kills while timers were on their way"
        assert broker.stop() == 0, broker.text()[-4000:]
        check(broker, acknowledged)


def test_no_death_of_the_whole_broker_repeats_or_loses_a_timer() -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(SEED)
    with running_broker(SETTINGS) as broker:
        acknowledged = send_timers(broker, choose)
        counts = kill_while_delivering(broker, ["all"] * 5, len(acknowledged), lambda: count_delivered(broker), choose)
        assert len(counts) >= 2, "too few kills while timers were on their way"
        assert broker.stop() == 0, broker.text()[-4000:]
        check(broker, acknowledged)


def test_what_was_cancelled_never_comes_and_the_others_do_whatever_is_killed() -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(SEED)
    cancelled: set[int] = set()
    unknown: set[int] = set()  # no answer: cancelled or not
    with running_broker(SETTINGS) as broker:
        acknowledged = send_timers(broker, choose)
        numbers = choose.sample(sorted(acknowledged), len(acknowledged) // 4)
        for victim in ("send", "store", "selector 0", "manager", "codec 0", "all"):
            connection, ended = Connection(broker.port, timeout_s=2.0), threading.Event()
            killer = threading.Thread(target=kill_within, args=(broker, victim, choose.random() * 0.5, ended))
            killer.start()
            while not ended.is_set() and numbers:
                number = numbers.pop()
                try:
                    code = cancel(connection, number)
                except OSError:  # cut off, or no answer
                    unknown.add(number)
                    break
                (cancelled if code == 0 else unknown).add(number)
            killer.join()
            connection.close()
            if victim == "all":
                broker.start()
        due = acknowledged - cancelled - unknown
        wait_for(lambda: due <= {int(record.body) for record in delivered(broker)}, broker)
        time.sleep(DELAY_MAX_MS / 1000)  # what was cancelled would have come by now
        assert broker.stop() == 0, broker.text()[-4000:]
        came = {int(record.body) for record in delivered(broker)}
        print(f"{len(cancelled)} cancelled, {len(unknown)} without an answer or too late")
        assert len(cancelled) > 20 and came & cancelled == set(), "delivered and cancelled"
        check(broker, acknowledged - cancelled - (unknown - came))


def kill_within(broker: RunningBroker, victim: str, delay_s: float, ended: threading.Event) -> None:
    time.sleep(delay_s)
    broker.kill_all() if victim == "all" else broker.kill_worker(victim)
    time.sleep(0.3)
    ended.set()


def test_timers_without_their_files_are_found_in_the_log_and_delivered_once() -> None:
    """The directory `timer` is lost while the broker is stopped: the log says which timers were delivered."""
    choose = random.Random(SEED)
    with running_broker(SETTINGS) as broker:
        acknowledged = send_timers(broker, choose)
        wait_for(lambda: count_delivered(broker) > len(acknowledged) // 4, broker)
        broker.stop()
        for path in sorted((broker.store / "timer").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        broker.start()
        wait_for(lambda: count_delivered(broker) >= len(acknowledged), broker)
        broker.stop()
        check(broker, acknowledged)
