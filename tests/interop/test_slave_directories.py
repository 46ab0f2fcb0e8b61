"""The directory of a slave, after kills under load, goes on as that of a master in the other implementation.

Every send that a synchronous master has acknowledged is there, at the queue, the offset and the id that the producer
was told; no queue has a hole; and messages of every kind go on behind it.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import AnyBroker, create_topic, decode, running_target, wait_until
from tests.interop.java_slave import java_slave_of
from tests.interop.own_brokers import running_slave
from tests.interop.store_filling import DELAYED, QUEUES, SMALL_FILES, TOPIC, Expected, ends, fill
from tests.support.history import Load, check

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
LOADED, LOADED_QUEUES = "loaded", 4
KILLS = 2
DEADLINE_S = 120.0  # a JVM starts meanwhile
PAUSE_S = 0.005  # of each connection: files are small, and a start opens each of them
FILES = SMALL_FILES | {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "6000"}
SYNC = {"brokerRole": "SYNC_MASTER"}
OTHER = {"java": "rocketpy", "rocketpy": "java"}


def load_on(broker: AnyBroker, number: int) -> Load:
    """With one send of a connection at a time: the reference stores several in any order."""
    seed = SEED + number
    return Load(broker.port, seed, [(LOADED, LOADED_QUEUES)], connections=8, window=1, pause_s=PAUSE_S)


@contextlib.contextmanager
def slave_of(kind: str, master: AnyBroker, directory: Path) -> Iterator[AnyBroker]:
    """A slave of this kind; started."""
    if kind == "java":
        with java_slave_of(master) as slave:
            slave.start()
            yield slave
    else:
        with running_slave(master, directory / "slave") as ours:
            yield ours


def wait_acknowledged(load: Load, count: int) -> None:
    """Until so many more sends have been acknowledged by master and slave."""
    goal, deadline = len(load.acks) + count, time.monotonic() + DEADLINE_S
    while len(load.acks) < goal:
        if load.failure is not None:
            raise load.failure
        assert time.monotonic() < deadline, f"{len(load.acks)} of {goal} acknowledged; refused: {load.refusals[-3:]}"
        time.sleep(0.02)


def has_tables(slave: AnyBroker) -> bool:
    """Both topics, and the progress of the delayed messages that are delivered."""
    config = slave.store / "config"
    topics, delays = config / "topics.json", config / "delayOffset.json"
    if not topics.exists() or not delays.exists():
        return False
    known = decode(topics.read_text())["topicConfigTable"]
    return {LOADED, TOPIC} <= known.keys() and decode(delays.read_text())["offsetTable"] == {"1": DELAYED}


# A master of rocketpy makes no difference: test_java_slave compares the logs of such pairs byte for byte.
@pytest.mark.parametrize(("master_kind", "slave_kind"), [("java", "java"), ("java", "rocketpy")])
def test_after_kills_under_load(tmp_path: Path, filler: Path, master_kind: str, slave_kind: str) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose, expected = random.Random(f"{SEED}/{master_kind}/{slave_kind}"), Expected()
    with running_target(master_kind, settings=FILES | SYNC, store=tmp_path / "master") as master:
        create_topic(master, TOPIC, QUEUES)
        create_topic(master, LOADED, LOADED_QUEUES)
        with slave_of(slave_kind, master, tmp_path) as slave:
            with load_on(master, 0) as early:
                wait_acknowledged(early, 50)  # the slave counts: else transactions are rolled back
            fill(filler, master, expected, "before")
            wait_until(lambda: has_tables(slave), "the slave to have the tables")
            with load_on(master, 1) as load:
                wait_acknowledged(load, 500)
                for _ in range(KILLS):
                    slave.kill_all()
                    time.sleep(choose.uniform(0.1, 1.0))
                    slave.start()
                    wait_acknowledged(load, 500)
                time.sleep(choose.uniform(0.0, 0.5))
                for one in choose.sample([master, slave], 2):
                    one.kill_all()
            with running_target(OTHER[slave_kind], settings=FILES, store=slave.store) as opened:
                with load_on(opened, 2) as later:
                    wait_acknowledged(later, 500)
                verdict = check(opened.port, [early, load, later])
                print(f"{master_kind} -> {slave_kind} -> {OTHER[slave_kind]}: {verdict}")
                assert ends(opened, TOPIC, QUEUES) == expected.messages
                fill(filler, opened, expected, "after")
                assert ends(opened, TOPIC, QUEUES) == expected.messages
