"""An official broker 4.9.7 as slave of rocketpy: its log is the master's byte for byte, over file ends, kills of either
and a stop; and the codes that the official producer gets from a SYNC_MASTER, with and without it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.control import Control
from tests.interop.brokers import AnyBroker, create_topic, decode, max_offsets, wait_until
from tests.interop.conftest import Launch
from tests.interop.java_slave import JavaSlave, java_slave_of, wait_for_copy
from tests.interop.mqadmin import MqAdmin, rows
from tests.interop.programs import Launcher
from tests.interop.store_filling import QUEUES, SMALL_FILES, TOPIC, Expected, fill
from tests.support.broker import RunningBroker, running_broker
from tests.support.pair import ha_status

GET_BROKER_RUNTIME_INFO = 28
SOON = {"haHousekeepingInterval": "20000", "haSendHeartbeatInterval": "1000"}


@pytest.fixture(autouse=True)
def _only_rocketpy(target: str) -> None:
    if target != "rocketpy":
        pytest.skip("the master is rocketpy here")


@pytest.fixture
def master() -> Iterator[RunningBroker]:
    """Asynchronous: without a slave, the producer of a SYNC_MASTER rolls its transactions back."""
    with running_broker(SMALL_FILES | SOON) as running:
        yield running


@pytest.fixture
def sync_master() -> Iterator[RunningBroker]:
    with running_broker(SMALL_FILES | SOON | {"brokerRole": "SYNC_MASTER"}) as running:
        yield running


@pytest.fixture
def slave(master: RunningBroker) -> Iterator[JavaSlave]:
    with java_slave_of(master) as slave:
        yield slave


def end_of_log(broker: AnyBroker) -> int:
    with Control("127.0.0.1", broker.port) as control:
        return int(decode(control.check(GET_BROKER_RUNTIME_INFO, {}).body.decode())["table"]["commitLogMaxOffset"])


def test_every_byte_of_the_log_through_file_ends_and_kills(
    master: RunningBroker, slave: JavaSlave, filler: Path, mqadmin: MqAdmin
) -> None:
    """Holds: replication, master and slaves of one broker name; replication, synchronous and asynchronous;
    replication, disaster recovery."""
    create_topic(master, TOPIC, QUEUES)
    expected = Expected()
    fill(filler, master, expected, "before")  # the slave begins with a log of several files
    slave.start()
    wait_for_copy(master, slave, end_of_log(master))

    fill(filler, master, expected, "beside")
    slave.kill_all()
    fill(filler, master, expected, "without")
    slave.start()
    wait_for_copy(master, slave, end_of_log(master))

    fill(filler, master, expected, "again")
    master.kill_worker("replicator")
    fill(filler, master, expected, "replicator")
    wait_for_copy(master, slave, end_of_log(master))

    master.kill_all()
    master.start()
    fill(filler, master, expected, "restarted")
    end = end_of_log(master)
    assert end > 4 * int(SMALL_FILES["mappedFileSizeCommitLog"])
    wait_for_copy(master, slave, end)
    wait_until(
        lambda: max_offsets(slave, TOPIC, QUEUES) == max_offsets(master, TOPIC, QUEUES),
        "the slave to have the same queue ends",
    )
    wait_until(  # the name server was restarted with the master; the slave registers every 10 s
        lambda: sorted(row[2] for row in rows(mqadmin(master, "clusterList")) if row[1] == "broker-a") == ["0", "1"],
        "both ids in clusterList",
    )
    wait_until(lambda: [row["lag_bytes"] for row in ha_status(master.namesrv)] == [0, 0, 0], "no lag")
    ours, javas, connection = ha_status(master.namesrv)
    assert (ours["role"], javas["role"], connection["state"]) == ("ASYNC_MASTER", "SLAVE", "replicating")
    assert ours["log_end"] == javas["log_end"] == connection["acknowledged"]


def codes(launcher: Launcher, count: int) -> list[str]:
    prefix = f"codes-{time.monotonic_ns()}"
    program = launcher.run("java-4.9.8", "send", topic="codes", group="codes", prefix=prefix, count=count)
    return [event["status"] for event in program.of_kind("sent")]


def test_what_the_official_producer_is_told(sync_master: RunningBroker, launch_at: Launch) -> None:
    """Holds: replication, synchronous and asynchronous."""
    launcher = launch_at(sync_master)
    create_topic(sync_master, "codes", 1)
    assert codes(launcher, 5) == ["SLAVE_NOT_AVAILABLE"] * 5
    with java_slave_of(sync_master) as slave:
        slave.start()
        wait_until(lambda: codes(launcher, 1) == ["SEND_OK"], "the slave to acknowledge")
        assert codes(launcher, 20) == ["SEND_OK"] * 20
        process = slave.processes["broker"]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            frozen = codes(launcher, 4)
            assert frozen[0] == "FLUSH_SLAVE_TIMEOUT" and frozen[-1] == "SLAVE_NOT_AVAILABLE", frozen
        finally:
            os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: codes(launcher, 1) == ["SEND_OK"], "the slave to acknowledge again")
        slave.kill_all()
        wait_until(lambda: codes(launcher, 1) == ["SLAVE_NOT_AVAILABLE"], "the slave to be gone")


def test_a_clean_stop_leaves_no_lag(master: RunningBroker, slave: JavaSlave, filler: Path) -> None:
    create_topic(master, TOPIC, QUEUES)
    slave.start()
    expected = Expected()
    fill(filler, master, expected, "first")
    wait_for_copy(master, slave, end_of_log(master))
    fill(filler, master, expected, "second")
    end = end_of_log(master)
    assert master.stop() == 0
    wait_for_copy(master, slave, end)
