"""Invariant: a delayed message that was acknowledged is delivered once, not early, whichever workers are killed while
it waits or is on its way; and every dead letter is copied once."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.message.properties import decode_properties
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, send_request
from tests.support.kills import kill_while_delivering, stored

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, QUEUES = "delayed", 4
DELAYS_MS = tuple(range(1_000, 15_000, 1_000))  # so that some become due at any moment of the test
BATCHES, BATCH = 90, 100
VICTIMS = ("manager", "send", "manager", "store", "send", "pull", "manager")


def delayed(number: int, level: int) -> RemotingCommand:
    command = send_request(TOPIC, number % QUEUES, [b"%d" % number], number)
    assert command.ext_fields is not None
    command.ext_fields["i"] = f"DELAY\x01{level}\x02"
    return command


def send_delayed(port: int) -> dict[int, int]:
    """Send BATCHES x BATCH messages over the levels; number to level of those that were acknowledged."""
    connection = Connection(port, timeout_s=30.0)
    acknowledged: dict[int, int] = {}
    for batch in range(BATCHES):
        numbers = range(batch * BATCH, (batch + 1) * BATCH)
        levels = {number: number % len(DELAYS_MS) + 1 for number in numbers}
        connection.send(*(delayed(number, level) for number, level in levels.items()))
        for _ in numbers:
            reply = connection.receive()
            if reply.code == 0:
                acknowledged[reply.opaque] = levels[reply.opaque]
    connection.close()
    return acknowledged


def count_delivered(broker: RunningBroker) -> int:
    return len(
        {bytes(record.body) for record in stored(broker) if record.topic == TOPIC and bytes(record.body) != b"-1"}
    )


def check_deliveries(broker: RunningBroker, acknowledged: dict[int, int]) -> None:
    records = stored(broker)
    waited = {int(record.body): record for record in records if record.topic == "SCHEDULE_TOPIC_XXXX"}
    delivered = [record for record in records if record.topic == TOPIC and int(record.body) >= 0]
    times = Counter(int(record.body) for record in delivered)
    assert [number for number, count in times.items() if count > 1] == [], "delivered twice"
    assert [number for number in acknowledged if number not in times] == [], "lost"
    for record in delivered:
        before = waited[int(record.body)]
        level = int(decode_properties(record.properties.decode())["DELAY"])
        early_ms = before.store_timestamp_ms + DELAYS_MS[level - 1] - record.store_timestamp_ms
        assert early_ms <= 0, f"message {int(record.body)} is {early_ms} ms early"
    for level in range(1, len(DELAYS_MS) + 1):
        order = [int(record.body) for record in delivered if int(record.body) % len(DELAYS_MS) + 1 == level]
        assert order == sorted(order), f"level {level} was not delivered in order"


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_no_death_of_a_worker_repeats_or_loses_a_delayed_message(flush: str) -> None:
    """Fault: A delayed message that became due during a pass was stored a millisecond early.
    Fault: A killed manager or send worker had delayed messages delivered again."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{flush}")
    levels = " ".join(f"{delay_ms // 1000}s" for delay_ms in DELAYS_MS)
    settings = {"messageDelayLevel": levels, "mappedFileSizeCommitLog": str(64 << 20), "flushDiskType": flush}
    with running_broker(settings) as broker:
        connection = Connection(broker.port, timeout_s=30.0)
        connection.ask(send_request(TOPIC, 0, [b"-1"], 1))
        connection.close()
        acknowledged = send_delayed(broker.port)
        assert len(acknowledged) == BATCHES * BATCH
        counts = kill_while_delivering(broker, VICTIMS, len(acknowledged), lambda: count_delivered(broker), choose)
        assert len(counts) >= 2, "too few kills while messages were on their way"
        assert broker.stop() == 0, broker.text()[-4000:]
        check_deliveries(broker, acknowledged)
