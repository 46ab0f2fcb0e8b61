"""SQL92 subscriptions, with the whole broker: what they select, with and without filter bits, whatever dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.filter.bloom import BloomFilter
from rocketpy.remoting.bodies.client import CheckClientRequestBody, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.store.inspection.dump import StoreDump
from tests.support.broker import RunningBroker, running_broker
from tests.support.filtered_pulls import FilteredGroup, put
from tests.support.wire import Wire, pull_request, records_of, send_request, until

TOPIC = "Filtered"
PLAIN = {"enablePropertyFilter": "true"}
WITH_BITS = PLAIN | {"enableCalcFilterBitMap": "true", "enableConsumeQueueExt": "true"}
SEVENS = "mod = 7"


@pytest.fixture(params=[PLAIN, WITH_BITS], ids=["plain", "with bits"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(request.param, store=tmp_path / "store") as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.text(), broker.text()


def sevens(begin: int, end: int) -> list[int]:
    return [n for n in range(begin, end) if n % 10 == 7]


@pytest.mark.parametrize("own", [False, True])
def test_only_matching_messages_leave_the_broker(broker: RunningBroker, own: bool) -> None:
    """Holds: filter, SQL92 over properties."""
    with Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, 50)
        group = FilteredGroup(wire, TOPIC, SEVENS)
        if not own:
            group.join()
        put(wire, TOPIC, 50, 50)
        assert group.get(100, own=own) == sevens(0, 100)
        if not own:
            fewer = FilteredGroup(wire, TOPIC, "mod = 7 AND n > 50", version=2)
            fewer.join()
            put(wire, TOPIC, 100, 20)
            assert fewer.get(120) == sevens(50, 120)


def test_a_message_that_does_not_match_wakes_nobody(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire, Wire.open(broker.port) as other:
        put(other, TOPIC, 0, 1)
        group = FilteredGroup(wire, TOPIC, SEVENS)
        group.join()
        (waiting,) = wire.tell(group.request(1, hold_ms=60_000))
        put(other, TOPIC, 1, 6)
        assert other.ask(pull_request(TOPIC, 6, group="Other")).code == ResponseCode.SUCCESS
        put(other, TOPIC, 7, 1)
        answer = wire.answers([waiting])[waiting]
        while answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:  # told after some seconds how far it has come
            answer = wire.ask(group.request(int((answer.ext_fields or {})["nextBeginOffset"]), hold_ms=60_000))
        assert [int(record.body) for record in records_of(answer)] == [7], answer


@pytest.mark.parametrize("dies", ["store", "pull", "manager", "send"])
def test_whatever_worker_dies_no_matching_message_is_passed_over(broker: RunningBroker, dies: str) -> None:
    """Holds: filter, bit maps that spare evaluating SQL."""
    with Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, 10)
        group = FilteredGroup(wire, TOPIC, SEVENS)
        group.join()
        put(wire, TOPIC, 10, 20)
        broker.kill_worker(dies)
        put(wire, TOPIC, 30, 20)
        assert group.get(50) == sevens(0, 50)
        group.join()
        put(wire, TOPIC, 50, 20)
        assert group.get(70) == sevens(0, 70)


def test_filters_outlive_the_broker(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, 10)
        FilteredGroup(wire, TOPIC, SEVENS).join()
        put(wire, TOPIC, 10, 10)
    broker.stop()
    document = json.loads((broker.store / "config" / "consumerFilter.json").read_text())
    data = document["filterDataByTopic"][TOPIC]["groupFilterData"]["CG"]
    assert data["expression"] == SEVENS and data["clientVersion"] == 1 and data["topic"] == TOPIC
    assert data["bloomFilterData"] == {"bitNum": 112, "bitPos": list(BloomFilter.of(20, 32).positions("CG", TOPIC))}
    broker.start()
    with Wire.open(broker.port) as wire:
        put(wire, TOPIC, 20, 10)  # while the group is away
        group = FilteredGroup(wire, TOPIC, SEVENS)
        group.join()
        assert group.get(30) == sevens(0, 30)


def test_a_bad_expression_is_refused_at_each_door(broker: RunningBroker) -> None:
    """Holds: trap, a bad SQL text in a pull turns the filter off."""
    with Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, 1)
        bad = FilteredGroup(wire, TOPIC, "a LIKE 'x'")
        data = SubscriptionData(topic=TOPIC, sub_string=bad.expression, expression_type="SQL92")
        body = CheckClientRequestBody(client_id="a", group="CG", subscription_data=data).encode()
        answer = wire.ask(RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, None, body))
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (answer.remark or "").startswith("character 3: 'LIKE' does not fit")
        bad.join()
        assert wire.ask(bad.request(0)).code == ResponseCode.FILTER_DATA_NOT_EXIST
        answer = wire.ask(bad.request(0, own=True))
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "character 3: 'LIKE' does not fit" in (answer.remark or "")
        assert "group CG cannot filter topic Filtered by SQL92: character 3" in broker.text()


def test_without_the_property_filters_are_refused(tmp_path: Path) -> None:
    """Holds: trap, enablePropertyFilter is off by default."""
    with running_broker(store=tmp_path / "store") as broker, Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, 1)
        group = FilteredGroup(wire, TOPIC, SEVENS)
        group.join()
        for own in (False, True):
            answer = wire.ask(group.request(0, own=own))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "The broker does not support consumer to filter message by SQL92"


def test_filter_bits_are_those_of_the_groups_that_match(tmp_path: Path) -> None:
    """What the extension holds: nothing before a filter is known, then the bits of each group that matches.
    Holds: filter, bit maps that spare evaluating SQL."""
    with running_broker(WITH_BITS, store=tmp_path / "store") as broker:
        with Wire.open(broker.port) as wire:
            put(wire, TOPIC, 0, 3)
            for group, expression in (("G7", SEVENS), ("All", "n IS NOT NULL")):
                FilteredGroup(wire, TOPIC, expression, group=group).join()
            put(wire, TOPIC, 3, 17)
        broker.stop()
        dump, bloom = StoreDump(broker.store), BloomFilter.of(20, 32)
        seen = []
        for queue in dump.queues(TOPIC):
            for _, unit in dump.units(queue):
                ext = dump.ext_unit(queue, unit)
                assert ext is not None
                seen.append(ext.bitmap)
    assert seen[:3] == [b""] * 3
    for n, bitmap in enumerate(seen[3:], 3):
        expected = {*bloom.positions("All", TOPIC), *(bloom.positions("G7", TOPIC) if n % 10 == 7 else ())}
        assert {bit for bit in range(112) if bitmap[bit // 8] >> bit % 8 & 1} == expected, n


def test_retries_are_filtered_by_the_subscription_to_their_own_topic(tmp_path: Path) -> None:
    retry = "%RETRY%CG"
    settings = PLAIN | {"filterSupportRetry": "true"}
    with running_broker(settings, store=tmp_path / "store") as broker, Wire.open(broker.port) as wire:
        put(wire, TOPIC, 0, 1)
        group = FilteredGroup(wire, TOPIC, SEVENS)
        group.join()
        for mod, topic in (("7", TOPIC), ("6", TOPIC), ("6", "Unfiltered")):
            properties = f"mod\x01{mod}\x02RETRY_TOPIC\x01{topic}\x02"
            assert wire.ask(send_request(retry, topic.encode() + mod.encode(), properties=properties)).code == 0
        bodies: list[bytes] = []

        def pull() -> bool:
            answer = wire.ask(pull_request(retry, 0, group="CG"))
            bodies[:] = [record.body for record in records_of(answer)]
            return len(bodies) == 2

        until(pull, "the retries")
        assert bodies == [b"Filtered7", b"Unfiltered6"]
