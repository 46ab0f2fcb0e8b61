"""A SYNC_MASTER as a whole: what its clients are told, with and without a slave, beside strangers, and over the death
of the replicator."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from bench.control import Control, RequestFailed
from tests.support.broker import RunningBroker, running_broker
from tests.support.played_slave import PlayedSlave
from tests.support.waiting import wait_until

TOPIC = "Replicated"
SETTINGS = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"}
OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12


@pytest.fixture
def master() -> Iterator[RunningBroker]:
    with running_broker(SETTINGS) as running:
        with Control("127.0.0.1", running.port) as control:
            control.create_topic(TOPIC, 1)
        yield running


def code(master: RunningBroker) -> int:
    """The answer to one send."""
    with Control("127.0.0.1", master.port, timeout_s=30.0) as control:
        try:
            return int(control.send(TOPIC, 0, b"body").code)
        except RequestFailed as failed:
            return failed.code


def test_the_codes_of_a_sync_master(master: RunningBroker) -> None:
    assert code(master) == SLAVE_NOT_AVAILABLE
    with contextlib.closing(PlayedSlave(master.port + 1)) as slave:
        wait_until(lambda: code(master) == OK, "the slave to acknowledge")
        assert [code(master) for _ in range(10)] == [OK] * 10
        slave.acknowledges.clear()
        assert code(master) == FLUSH_SLAVE_TIMEOUT
        wait_until(lambda: code(master) == SLAVE_NOT_AVAILABLE, "the slave to count as absent")
        slave.acknowledges.set()
        wait_until(lambda: code(master) == OK, "the slave to count again")
        master.kill_worker("replicator")
        wait_until(lambda: code(master) == OK, "the slave to come back")
        log = (master.store / "commitlog" / f"{0:020d}").read_bytes()
        assert master.stop() == 0
        assert bytes(slave.log) == log[: len(slave.log)] and not log[len(slave.log) :].strip(b"\0")


def test_strangers_change_no_answer(master: RunningBroker) -> None:
    """Positions that cannot be true, half a report, nothing at all, a thousand connections."""
    poison = [struct.pack(">q", 10**12), struct.pack(">q", -5), b"\0" * 7, b"", b"GET / HTTP/1.1\r\n\r\n"]
    with contextlib.ExitStack() as held:
        for data in poison * 2:
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", master.port + 1)))
            stranger.sendall(data)
            assert code(master) == SLAVE_NOT_AVAILABLE
    with contextlib.closing(PlayedSlave(master.port + 1)):
        wait_until(lambda: code(master) == OK, "the slave to acknowledge")
        for _ in range(100):
            strangers = [socket.create_connection(("127.0.0.1", master.port + 1)) for _ in range(10)]
            for stranger, data in zip(strangers, poison * 2, strict=True):
                with contextlib.suppress(OSError):
                    stranger.sendall(data)
                stranger.close()
        assert [code(master) for _ in range(5)] == [OK] * 5
