"""Half messages that rocketpy has stored are the Java broker's transactions: it asks their producer, and delivers."""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rocketpy.message.properties import decode_properties
from rocketpy.store.inspection.dump import StoreDump
from tests.interop.brokers import AnyBroker, create_topic, running_target, wait_until
from tests.interop.store_filling import QUEUES, SMALL_FILES, TOPIC, TRANSACTIONS, Expected, ends, fill, filler_command
from tests.interop.store_reading import differences, read_store

ASKING = {"transactionTimeOut": "1000", "transactionCheckInterval": "3000"}


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


def test_java_settles_what_rocketpy_has_stored(filler: Path, tmp_path: Path) -> None:
    store, expected = tmp_path / "store", Expected()
    with running_target("rocketpy", settings=SMALL_FILES, store=store) as broker:
        create_topic(broker, TOPIC, QUEUES)
        sent = fill(filler, "rocketpy", broker, expected, "pending")
        broker.kill_all()
    with running_target("java", settings=SMALL_FILES | ASKING, store=store) as broker, settling(filler, broker):
        wanted = expected.messages + TRANSACTIONS
        wait_until(lambda: ends(broker, TOPIC, QUEUES) >= wanted, f"{TRANSACTIONS} transactions committed")
        reading = read_store(broker, topics=(TOPIC,), groups=())
        broker.stop()
    with running_target("rocketpy", settings=SMALL_FILES, store=store) as broker:
        after = read_store(broker, topics=(TOPIC,), groups=())
        broker.stop()
    assert differences(after, reading) == []
    delivered = Counter(decode_properties(record.properties.decode()).get("KEYS") for record in after.records(TOPIC))
    assert {message.key: delivered[message.key] for message in sent if message.kind == "transaction"} == {
        f"pending-transaction-{number}": 1 for number in range(TRANSACTIONS)
    }
    assert StoreDump(store).verify().problems == []
