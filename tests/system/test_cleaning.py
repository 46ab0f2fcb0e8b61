"""Cleaning of a running broker, as operators ask for it, and what it says when there is no room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from tests.support import preloaded
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, max_offset, offset_request, pull_request, read_all, records_of, send_request, until

FILE = 262_144
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE),
    "maxMessageSize": "65536",
    "fileReservedTime": "72",
    "flushIntervalCommitLog": "20",
    "flushCommitLogLeastPages": "0",
    "flushIntervalConsumeQueue": "20",
    "flushConsumeQueueThoroughInterval": "20",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(SETTINGS, store=tmp_path / "store") as running:
        yield running


def mqadmin(broker: RunningBroker, command: str, *options: str) -> str:
    words = [*preloaded.COMMAND, "admin", command, "-n", broker.namesrv, "-b", broker.address, *options]
    done = preloaded.run(words, timeout=60)
    done.check_returncode()
    return done.stdout


def put(wire: Wire, topic: str, count: int, size: int = 30_000) -> list[int]:
    offsets = []
    for _ in range(count):
        answer = wire.ask(send_request(topic, b"x" * size))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        offsets.append(int((answer.ext_fields or {})["queueOffset"]))
    return offsets


def min_offset(wire: Wire, topic: str) -> int:
    answer = wire.ask(offset_request(RequestCode.GET_MIN_OFFSET, topic))
    return int((answer.ext_fields or {})["offset"])


def log_files(broker: RunningBroker) -> list[int]:
    return sorted(int(path.name) // FILE for path in (broker.store / "commitlog").iterdir())


def test_expired_files_and_queues_go_when_asked_for(broker: RunningBroker) -> None:
    """Holds: store, expired files are deleted."""
    with Wire.open(broker.port) as wire:
        assert put(wire, "Old", 3, size=10) == [0, 1, 2]
        put(wire, "Kept", 40)
        assert len(read_all(wire, "Kept", 40)) == 40
        assert mqadmin(broker, "deleteExpiredCommitLog").strip() == "success"
        for path in (broker.store / "commitlog").iterdir():
            if int(path.name) < 4 * FILE:
                os.utime(path, (0, 0))
        assert log_files(broker)[0] == 0  # they were young when it was asked for
        assert mqadmin(broker, "deleteExpiredCommitLog").strip() == "success"
        until(lambda: log_files(broker)[0] == 4, "four files are deleted")
        until(lambda: min_offset(wire, "Kept") > 0, "the queue's minimum follows")
        low = min_offset(wire, "Kept")
        answer = wire.ask(pull_request("Kept", low))
        assert [record.queue_offset for record in records_of(answer)][:1] == [low]

        assert mqadmin(broker, "cleanExpiredCQ").strip() == "success"
        assert not (broker.store / "consumequeue" / "Old").exists()
        assert (broker.store / "consumequeue" / "Kept").exists()
        assert (min_offset(wire, "Old"), max_offset(wire, "Old")) == (3, 3)
        assert put(wire, "Old", 1, size=10) == [3]
        assert mqadmin(broker, "cleanUnusedTopic").strip() == "success"
        until(lambda: max_offset(wire, "Old") == 4, "the message is dispatched")
        answer = wire.ask(pull_request("Old", 3))
        assert [record.queue_offset for record in records_of(answer)] == [3]
    assert broker.stop() == 0
    broker.start()
    with Wire.open(broker.port) as wire:
        assert (max_offset(wire, "Old"), max_offset(wire, "Kept")) == (4, 40)


def test_how_long_files_are_kept_changes_at_run_time(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire:
        put(wire, "T", 40)
        assert len(read_all(wire, "T", 40)) == 40
        mqadmin(broker, "updateBrokerConfig", "-k", "fileReservedTime", "-v", "0")
        mqadmin(broker, "deleteExpiredCommitLog")
        until(lambda: len(log_files(broker)) <= 2, "all but the active file (and perhaps the next one) are deleted")
        until(lambda: min_offset(wire, "T") > 0, "the queue's minimum follows")


def test_what_is_left_behind_is_found_after_a_kill(broker: RunningBroker) -> None:
    """Queues without files, and a queue whose minimum lies within a file, need no second look at the log."""
    with Wire.open(broker.port) as wire:
        put(wire, "Old", 2, size=10)
        put(wire, "Kept", 40)
        assert len(read_all(wire, "Kept", 40)) == 40
        for path in (broker.store / "commitlog").iterdir():
            if int(path.name) < 2 * FILE:
                os.utime(path, (0, 0))
        mqadmin(broker, "deleteExpiredCommitLog")
        until(lambda: log_files(broker)[0] == 2, "two files are deleted")
        until(lambda: min_offset(wire, "Kept") > 0, "the queue's minimum follows")
        mqadmin(broker, "cleanExpiredCQ")
        low = min_offset(wire, "Kept")
    broker.kill_all()
    broker.start()
    with Wire.open(broker.port) as wire:
        assert (min_offset(wire, "Kept"), max_offset(wire, "Kept")) == (low, 40)
        assert (min_offset(wire, "Old"), max_offset(wire, "Old")) == (2, 2)
        assert put(wire, "Old", 1, size=10) == [2]


def test_a_disk_with_too_little_room_refuses_sends_and_says_why(tmp_path: Path) -> None:
    settings = SETTINGS | {"diskFreeMinBytes": str(1 << 60)}
    with running_broker(settings, store=tmp_path / "store") as broker, Wire.open(broker.port) as wire:
        until(lambda: wire.ask(send_request("T", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE, "the refusal")
        assert "disk is full" in (wire.ask(send_request("TopicTest", b"x")).remark or "")
