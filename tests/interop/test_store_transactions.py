"""Half messages that one broker has stored are the transactions of the other: it asks their producer, and delivers."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rocketpy.message.properties import decode_properties
from rocketpy.store.inspection.dump import StoreDump
from tests.interop.brokers import AnyBroker, create_topic, running_target, wait_until
from tests.interop.store_filling import (
    HALF,
    OP,
    QUEUES,
    SMALL_FILES,
    TOPIC,
    TRANSACTIONS,
    Expected,
    Sent,
    ends,
    fill,
    filler_command,
)
from tests.interop.store_reading import Reading, differences, read_store

ASKING_S = 3
ASKING = {"transactionTimeOut": "1000", "transactionCheckInterval": str(ASKING_S * 1000)}


@contextlib.contextmanager
def settling(filler: Path, broker: AnyBroker) -> Iterator[None]:
    """The producer is there, and commits what it is asked about."""
    command = filler_command(filler, "Settle", broker.namesrv)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def check_delivered(after: Reading, sent: list[Sent]) -> None:
    """Of Fill's transactions, those that it commits and those that it leaves open have come once, the others not."""
    delivered = Counter(decode_properties(record.properties.decode()).get("KEYS") for record in after.records(TOPIC))
    assert {message.key: delivered[message.key] for message in sent if message.kind == "transaction"} == {
        f"pending-transaction-{number}": 0 if number % 3 == 1 else 1 for number in range(TRANSACTIONS)
    }


def test_java_settles_what_rocketpy_has_stored(filler: Path, tmp_path: Path) -> None:
    """Holds: transaction, op messages."""
    store, expected = tmp_path / "store", Expected()
    with running_target("rocketpy", settings=SMALL_FILES, store=store) as broker:
        create_topic(broker, TOPIC, QUEUES)
        sent = fill(filler, broker, expected, "pending")
        broker.kill_all()
    with running_target("java", settings=SMALL_FILES | ASKING, store=store) as broker, settling(filler, broker):
        wait_until(lambda: ends(broker, OP, 1) >= TRANSACTIONS, "every transaction has ended")
        reading = read_store(broker, topics=(TOPIC,), groups=())
        broker.stop()
    with running_target("rocketpy", settings=SMALL_FILES, store=store) as broker:
        after = read_store(broker, topics=(TOPIC,), groups=())
        broker.stop()
    assert differences(after, reading) == []
    check_delivered(after, sent)
    assert StoreDump(store).verify().problems == []


def test_rocketpy_settles_what_java_has_stored_again(filler: Path, tmp_path: Path) -> None:
    """Java has asked in vain, so each open half message is stored several times."""
    store, expected = tmp_path / "store", Expected()
    with running_target("java", settings=SMALL_FILES | ASKING, store=store) as broker:
        create_topic(broker, TOPIC, QUEUES)
        sent = fill(filler, broker, expected, "pending")
        copies = TRANSACTIONS // 3
        wait_until(lambda: ends(broker, HALF, 1) >= TRANSACTIONS + 2 * copies, "two rounds of checks")
        broker.stop()
    with running_target("rocketpy", settings=SMALL_FILES | ASKING, store=store) as broker, settling(filler, broker):
        wait_until(lambda: ends(broker, OP, 1) >= TRANSACTIONS, "every transaction has ended")
        time.sleep(2 * ASKING_S)  # nothing more comes
        after = read_store(broker, topics=(TOPIC,), groups=())
        broker.stop()
    check_delivered(after, sent)
    assert StoreDump(store).verify().problems == []
