"""Invariant: no table outruns the log. After a power failure that keeps the tables and takes the end of the log, each
delayed message that the log has is delivered, and no group passes over a message that gets a lost one's offset."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import loads
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, send_request
from tests.support.kills import stored, wait_for
from tests.support.reopened_store import lose_log_from

COUNT = 20
NEVER_FLUSHED = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "600000",
    "flushCommitLogThoroughInterval": "600000",
    "messageDelayLevel": "1s",
    "flushDelayOffsetInterval": "200",
    "flushConsumerOffsetInterval": "200",
}


def send(broker: RunningBroker, topic: str, numbers: range, properties: str = "") -> None:
    connection = Connection(broker.port, timeout_s=30.0)
    for number in numbers:
        request = send_request(topic, 0, [b"%d" % number], number)
        assert request.ext_fields is not None
        request.ext_fields["i"] = properties + f"UNIQ_KEY\x01key{number}\x02"
        assert connection.ask(request).code == 0
    connection.close()


def end_of_log(broker: RunningBroker) -> int:
    return max(record.phy_offset + record.size for record in stored(broker))


def delivered(broker: RunningBroker, topic: str) -> list[int]:
    return [int(record.body) for record in stored(broker) if record.topic == topic]


def table(broker: RunningBroker, name: str) -> dict[str, object]:
    path: Path = broker.store / "config" / name
    found = loads(path.read_bytes()) if path.exists() else {}
    assert isinstance(found, dict)
    return found


def has_progress(broker: RunningBroker, offset: int) -> bool:
    """Whether some table in the file of delay progress has this offset."""
    saved = table(broker, "delayOffset.json")
    marks = saved.get("marks", [])
    assert isinstance(marks, list)
    return any(mark["offsetTable"] == {"1": offset} for mark in (saved, *marks) if "offsetTable" in mark)


def lose_power(broker: RunningBroker, end: int) -> None:
    broker.kill_all()
    lose_log_from(broker.store, int(broker.settings["mappedFileSizeCommitLog"]), end)
    broker.start()


def test_a_delayed_message_is_delivered_again_if_its_copy_is_lost() -> None:
    """Fault: After a power failure the progress of delay levels was ahead of the log, and messages were never
    delivered."""
    with running_broker(NEVER_FLUSHED) as broker:
        send(broker, "T", range(1))
        send(broker, "T", range(1, COUNT), "DELAY\x011\x02")
        durable = end_of_log(broker)
        wait_for(lambda: len(delivered(broker, "T")) == COUNT, broker)
        wait_for(lambda: has_progress(broker, COUNT - 1), broker)
        lose_power(broker, durable)
        assert delivered(broker, "T") == [0]
        wait_for(lambda: len(delivered(broker, "T")) >= COUNT, broker)
        assert delivered(broker, "T") == list(range(COUNT))


def test_deliveries_are_not_repeated_after_the_death_of_the_whole_broker() -> None:
    """The file has the progress of some seconds ago; the copies since then are in the log."""
    with running_broker(NEVER_FLUSHED) as broker:
        send(broker, "T", range(1))
        send(broker, "T", range(1, 3), "DELAY\x011\x02")
        wait_for(lambda: has_progress(broker, 2), broker)
        path = broker.store / "config" / "delayOffset.json"
        saved = path.read_bytes()
        send(broker, "T", range(3, COUNT), "DELAY\x011\x02")
        wait_for(lambda: len(delivered(broker, "T")) == COUNT, broker)
        broker.kill_all()
        path.write_bytes(saved)
        broker.start()
        send(broker, "T", range(COUNT, COUNT + 2), "DELAY\x011\x02")
        wait_for(lambda: len(delivered(broker, "T")) >= COUNT + 2, broker)
        assert delivered(broker, "T") == list(range(COUNT + 2))


def test_no_group_passes_over_messages_that_get_the_offsets_of_lost_ones() -> None:
    """Fault: After a power failure or failover, committed offsets lay beyond the queues and groups skipped messages."""
    with running_broker(NEVER_FLUSHED) as broker:
        send(broker, "T", range(3))
        durable = end_of_log(broker)
        send(broker, "T", range(3, COUNT))
        connection = Connection(broker.port, timeout_s=30.0)
        queue = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        connection.ask(RemotingCommand.request(15, ext_fields=queue | {"commitOffset": str(COUNT)}))
        connection.close()
        wait_for(lambda: table(broker, "consumerOffset.json").get("offsetTable") == {"T@G": {"0": COUNT}}, broker)
        lose_power(broker, durable)
        send(broker, "T", range(100, 101))
        assert delivered(broker, "T") == [0, 1, 2, 100]
        connection = Connection(broker.port, timeout_s=30.0)
        answer = connection.ask(RemotingCommand.request(14, ext_fields=queue))
        connection.close()
        assert answer.code == 0 and (answer.ext_fields or {})["offset"] == "3", "the group goes on with message 100"
