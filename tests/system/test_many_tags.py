"""Subscriptions to very many tags: each message of one of them is delivered, and an expression beyond the limit is
refused with its reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.tags import EXPRESSION_TAGS_MAX
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, max_offset, pull_request, records_of, send_request, until

TOPIC = "Tagged"
COUNTS = [256, 257, 4096]
FIRST, OTHER = "t0", "other"


def expression_of(count: int) -> str:
    return "||".join(f"t{number}" for number in range(count))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker({}, store=tmp_path_factory.mktemp("tags") / "store") as broker:
        with Wire.open(broker.port) as wire:
            for tag in (FIRST, OTHER, f"t{COUNTS[-1] - 1}"):
                request = send_request(TOPIC, tag.encode(), properties=f"TAGS\x01{tag}\x02")
                assert wire.ask(request).code == ResponseCode.SUCCESS
            until(lambda: max_offset(wire, TOPIC) == 3, "dispatch")
        yield broker


def tags_of(answer: RemotingCommand) -> list[str]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return [bytes(record.body).decode() for record in records_of(answer)]


@pytest.mark.parametrize("count", COUNTS)
def test_a_pull_that_brings_very_many_tags(broker: RunningBroker, count: int) -> None:
    with Wire.open(broker.port) as wire:
        found = tags_of(wire.ask(pull_request(TOPIC, 0, expression=expression_of(count), group=f"Own{count}")))
    assert found == ([FIRST, f"t{count - 1}"] if count == COUNTS[-1] else [FIRST])


@pytest.mark.parametrize("count", COUNTS)
def test_a_group_that_subscribes_to_very_many_tags(broker: RunningBroker, count: int) -> None:
    """Fault: A subscription to more than 256 tags never got a message."""
    group = f"Group{count}"
    data = SubscriptionData(topic=TOPIC, sub_string=expression_of(count), sub_version=1)
    consumer = ConsumerData(group_name=group, subscription_data_set=[data])
    body = HeartbeatData(client_id=f"{group}@1", consumer_data_set=[consumer]).encode()
    header = PullMessageRequestHeader(
        consumer_group=group, topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=32, sub_version=1
    )
    with Wire.open(broker.port) as wire:
        answer = wire.ask(RemotingCommand.request(RequestCode.HEART_BEAT, None, body))
        assert answer.code == ResponseCode.SUCCESS, answer
        found = tags_of(wire.ask(RemotingCommand.request(RequestCode.PULL_MESSAGE, header)))
    assert found == ([FIRST, f"t{count - 1}"] if count == COUNTS[-1] else [FIRST])


def test_a_suspended_pull_with_very_many_tags_gets_the_next_message(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire, Wire.open(broker.port) as producer:
        end = max_offset(wire, TOPIC)
        (opaque,) = wire.tell(pull_request(TOPIC, end, expression=expression_of(4096), hold_ms=30_000))
        request = send_request(TOPIC, b"late", properties="TAGS\x01t4000\x02")
        assert producer.ask(request).code == ResponseCode.SUCCESS
        assert tags_of(wire.answers([opaque])[opaque]) == ["late"]


def test_an_expression_with_too_many_tags_is_refused_with_its_reason(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire:
        assert tags_of(wire.ask(pull_request(TOPIC, 0, expression=expression_of(EXPRESSION_TAGS_MAX))))[0] == FIRST
        answer = wire.ask(pull_request(TOPIC, 0, expression=expression_of(EXPRESSION_TAGS_MAX + 1)))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark == f"parse the consumer's subscription failed: more than {EXPRESSION_TAGS_MAX} tags"
