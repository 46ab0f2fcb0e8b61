"""A broker with enableConsumeQueueExt: tags choose, delayed messages wait, whatever dies and however it is set."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from rocketpy.store.inspection.dump import StoreDump
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, max_offset, pull_request, records_of, send_request, until

TOPIC, TAGS = "Tagged", ("A", "B", "C")
ON, OFF = {"enableConsumeQueueExt": "true"}, {"enableConsumeQueueExt": "false"}


def send(broker: RunningBroker, first: int, count: int) -> None:
    """Message n has tag n mod 3; all are in their queue after this."""
    with Wire.open(broker.port) as wire:
        for n in range(first, first + count):
            request = send_request(TOPIC, b"%d" % n, properties=f"TAGS\x01{TAGS[n % 3]}\x02")
            assert wire.ask(request).code == ResponseCode.SUCCESS
        until(lambda: max_offset(wire, TOPIC) == first + count, "dispatch")


def choose(broker: RunningBroker, expression: str, end: int) -> list[int]:
    """Offsets that a subscription gets below `end`."""
    offsets: list[int] = []
    at = 0
    with Wire.open(broker.port) as wire:
        while at < end:
            answer = wire.ask(pull_request(TOPIC, at, expression=expression))
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
            offsets += [record.queue_offset for record in records_of(answer)]
            at = int((answer.ext_fields or {})["nextBeginOffset"])
    return offsets


def assert_chosen(broker: RunningBroker, end: int) -> None:
    assert choose(broker, "A || C", end) == [n for n in range(end) if n % 3 != 1]
    assert choose(broker, "X", end) == []


def test_tags_choose_across_kills_and_settings(tmp_path: Path) -> None:
    with running_broker(ON, store=tmp_path / "store") as broker:
        send(broker, 0, 40)
        assert_chosen(broker, 40)
        broker.kill_worker("store")  # the restarted worker finds where the extension files end
        send(broker, 40, 40)
        assert_chosen(broker, 80)
        broker.kill_all()
        broker.start()
        send(broker, 80, 10)
        broker.stop()
        assert StoreDump(broker.store).verify().problems == []
        broker.settings |= OFF
        broker.start()
        send(broker, 90, 10)
        assert_chosen(broker, 100)
        broker.settings |= ON
        broker.stop()
        broker.start()
        send(broker, 100, 10)
        assert_chosen(broker, 110)
        delete = RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": TOPIC})
        with Wire.open(broker.port) as wire:
            assert wire.ask(delete).code == ResponseCode.SUCCESS
        until(lambda: not (broker.store / "consumequeue_ext" / TOPIC).exists(), "the extensions of a deleted topic go")


def test_delayed_messages_wait(tmp_path: Path) -> None:
    with running_broker(ON, store=tmp_path / "store") as broker, Wire.open(broker.port) as wire:
        assert wire.ask(send_request(TOPIC, b"later", properties="DELAY\x011\x02")).code == ResponseCode.SUCCESS
        until(lambda: max_offset(wire, TOPIC) == 1, "delivery")
        (record,) = records_of(wire.ask(pull_request(TOPIC, 0)))
        assert record.body == b"later"
        (queue,) = StoreDump(broker.store).queues("SCHEDULE_TOPIC_XXXX")
        ((_, unit),) = StoreDump(broker.store).units(queue)
        ext = StoreDump(broker.store).ext_unit(queue, unit)
        assert ext is not None and ext.tags_code == ext.store_timestamp_ms + 1_000
        assert record.store_timestamp_ms >= ext.tags_code, "delivered before its time"
