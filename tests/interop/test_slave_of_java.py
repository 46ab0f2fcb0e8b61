"""A rocketpy slave of the Java broker 4.9.7: the same log byte for byte, whatever is stopped or killed; then either of
them goes on with the slave's directory as a master.

Log, consume queue and index files are small, so that all of them roll.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.control import Control
from tests.interop.brokers import AnyBroker, asking, create_topic, decode, max_offsets, running_target, wait_until
from tests.interop.java_broker import JavaBroker
from tests.interop.own_brokers import running_slave, wait_equal_logs
from tests.interop.store_filling import DELAYED, HALF, OP, QUEUES, SCHEDULE, SMALL_FILES, TOPIC, Expected, ends, fill
from tests.support.pair import LoneBroker, log_hashes

TOPICS = (TOPIC, HALF, OP, SCHEDULE)
GROUP = "slave_group"
UPDATE_CONSUMER_OFFSET = 15
MAGIC, BORN_TIMESTAMP_BEHIND_MAGIC = b"\xda\xa3\x20\xa7", 43


class Pair:
    """A Java master with messages of every kind, and what fills it."""

    def __init__(self, master: JavaBroker, classes: Path, directory: Path) -> None:
        self.master, self.classes, self.directory = master, classes, directory
        self.expected = Expected()
        create_topic(master, TOPIC, QUEUES)

    def fill(self, prefix: str) -> None:
        with asking(self.master.namesrv_port) as namesrv:
            wait_until(lambda: namesrv.has_route(TOPIC), "the route, after a start")
        fill(self.classes, self.master, self.expected, prefix)

    @contextlib.contextmanager
    def slave(self) -> Iterator[LoneBroker]:
        with running_slave(self.master, self.directory / "slave") as slave:
            yield slave

    def check_equal(self, slave: LoneBroker) -> None:
        """Logs and queues."""
        wait_equal_logs(self.master.store, slave.store)
        wait_until(lambda: all_ends(slave) == all_ends(self.master), "equal queues")


def all_ends(broker: AnyBroker) -> dict[str, list[int]]:
    queues = {TOPIC: QUEUES, SCHEDULE: 2}
    return {topic: max_offsets(broker, topic, queues.get(topic, 1)) for topic in TOPICS}


@pytest.fixture
def pair(tmp_path: Path, filler: Path) -> Iterator[Pair]:
    with running_target("java", settings=SMALL_FILES, store=tmp_path / "master") as master:
        assert isinstance(master, JavaBroker)
        yield Pair(master, filler, tmp_path)


def commit(broker: AnyBroker, offset: int) -> None:
    with Control("127.0.0.1", broker.port) as control:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
        control.check(UPDATE_CONSUMER_OFFSET, fields)


def copied_offset(slave: LoneBroker) -> object:
    with contextlib.suppress(OSError, ValueError):
        table = decode((slave.store / "config" / "consumerOffset.json").read_text())["offsetTable"]
        return table.get(f"{TOPIC}@{GROUP}")
    return None


def test_an_empty_slave_gets_all_and_follows(pair: Pair) -> None:
    """Stopped and killed in between, each goes on where it was.
    Holds: replication, synchronous and asynchronous."""
    pair.fill("a")
    pair.fill("b")
    with pair.slave() as slave:
        pair.check_equal(slave)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", slave.port + 1))
        assert len(log_hashes(slave.store)) > 1  # files have rolled: not the last one alone
        pair.fill("c")
        commit(pair.master, 11)
        pair.check_equal(slave)
        wait_until(lambda: copied_offset(slave) == {"0": 11}, "the committed offset")
        assert slave.stop() == 0
        pair.fill("d")
        slave.start()
        pair.check_equal(slave)
        slave.kill_all()
        pair.fill("e")
        slave.start()
        pair.check_equal(slave)
        for worker in ("send", "replicator", "store", "manager"):
            slave.kill_worker(worker)
            pair.fill(f"f-{worker}")
            pair.check_equal(slave)


def test_the_master_is_stopped_and_killed(pair: Pair) -> None:
    pair.fill("a")
    with pair.slave() as slave:
        pair.check_equal(slave)
        pair.master.stop()
        assert ends(slave, TOPIC, QUEUES) == pair.expected.messages  # it serves
        pair.master.start()
        pair.fill("b")
        pair.check_equal(slave)
        pair.master.kill_all()
        pair.master.start()
        pair.fill("c")
        pair.check_equal(slave)


@pytest.mark.parametrize("opener", ["java", "rocketpy"])
def test_the_directory_of_the_slave_becomes_that_of_a_master(pair: Pair, opener: str) -> None:
    """What was delayed and delivered, or committed, is not delivered again.
    Holds: replication, disaster recovery."""
    pair.fill("a")
    with pair.slave() as slave:
        pair.check_equal(slave)
        delays = {"1": DELAYED}
        path = slave.store / "config" / "delayOffset.json"
        wait_until(lambda: path.exists() and decode(path.read_text())["offsetTable"] == delays, "the delay progress")
        assert slave.stop() == 0
        before = all_ends(pair.master)
        pair.master.kill_all()
        with running_target(opener, settings=SMALL_FILES, store=slave.store) as master:
            assert {topic: max_offsets(master, topic, len(found)) for topic, found in before.items()} == before
            fill(pair.classes, master, pair.expected, "b")
            assert ends(master, TOPIC, QUEUES) == pair.expected.messages


def test_another_end_is_not_appended_to(pair: Pair) -> None:
    """The master has lost its disk, and has grown past the slave's end since."""
    pair.fill("a")
    with pair.slave() as slave:
        pair.check_equal(slave)
        slave.stop()
        before = log_hashes(slave.store)
        pair.master.kill_all()
        for path in sorted((pair.master.store / "commitlog").iterdir()):
            image = bytearray(path.read_bytes())
            at = image.rfind(MAGIC)
            if at >= 0:
                image[at + BORN_TIMESTAMP_BEHIND_MAGIC] ^= 1  # no checksum covers it
                path.write_bytes(bytes(image))
        pair.master.start()
        slave.start()
        wait_until(lambda: "differs from its master's" in slave.text(), "the slave to stop")
        assert log_hashes(slave.store) == before
