"""The same traffic on every shape of the process tree gives the same results: plain sockets against a whole broker."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.batch import BatchEntry, encode_batch
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, max_offset, offset_request, pull_request, read_all, records_of, send_request, until

SHAPES = {
    "one of each": {"selectorWorkers": "1", "codecWorkers": "1"},
    "three of each": {"selectorWorkers": "3", "codecWorkers": "3"},
    "no codec": {"codecWorkers": "0"},
    "three of each pool": {"codecWorkers": "1", "pullWorkers": "3", "queryWorkers": "3"},
}
# A busy machine stops workers for a second now and then; that sends are then refused is asked elsewhere.
PATIENT = dict.fromkeys(("osPageCacheBusyTimeOutMills", "waitTimeMillsInSendQueue", "slowSendAgeMaxMillis"), "60000")
PIPELINED = 2_000
UNKNOWN_CODE = 9_999


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES.keys())
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with running_broker(PATIENT | request.param) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.text()


@pytest.fixture(params=SerializeType, ids=lambda kind: kind.name)
def wire(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[Wire]:
    with Wire.open(broker.port, request.param) as opened:
        yield opened


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of this test alone."""
    return f"T{zlib.crc32(request.node.nodeid.encode())}"


def stored(answer: RemotingCommand) -> dict[str, str]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer.ext_fields or {}


def test_the_tree_has_the_shape_that_was_asked_for(broker: RunningBroker) -> None:
    """Holds: network, processes of the reactor."""
    names = sorted(broker.workers())
    wanted = int(broker.settings.get("selectorWorkers", "1"))
    assert sum("selector" in name for name in names) == wanted
    assert sum("codec" in name for name in names) == int(broker.settings["codecWorkers"])
    assert sum("pull" in name for name in names) == int(broker.settings.get("pullWorkers", "1"))
    assert sum("query" in name for name in names) == int(broker.settings.get("queryWorkers", "0"))


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_a_send_creates_its_topic_and_is_pulled(wire: Wire, topic: str, code: int) -> None:
    """Holds: cluster, four roles."""
    first = wire.ask(send_request(topic, b"first", code=code, properties="TAGS\x01a\x02KEYS\x01k\x02"))
    second = wire.ask(send_request(topic, b"second", code=code))
    assert first.serialize_type is second.serialize_type is wire.serialize_type
    assert [stored(answer)["queueOffset"] for answer in (first, second)] == ["0", "1"]
    assert stored(first)["queueId"] == "0" and len(stored(first)["msgId"]) == 32
    found = read_all(wire, topic, 2)
    assert [(record.topic, record.body, record.queue_offset) for record in found] == [
        (topic, b"first", 0),
        (topic, b"second", 1),
    ]
    assert b"KEYS\x01k\x02" in found[0].properties
    assert int(stored(second)["msgId"][16:], 16) == found[1].phy_offset


def test_offsets(wire: Wire, topic: str) -> None:
    for n in range(3):
        stored(wire.ask(send_request(topic, b"%d" % n)))
    until(lambda: max_offset(wire, topic) == 3, "dispatch")
    assert stored(wire.ask(offset_request(RequestCode.GET_MIN_OFFSET, topic)))["offset"] == "0"
    search = offset_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic, timestamp="0")
    assert stored(wire.ask(search))["offset"] == "0"
    group = {"consumerGroup": f"G{topic}"}
    missing = wire.ask(offset_request(RequestCode.QUERY_CONSUMER_OFFSET, topic, 1, **group))
    assert missing.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.SUCCESS)
    stored(wire.ask(offset_request(RequestCode.UPDATE_CONSUMER_OFFSET, topic, commitOffset="2", **group)))
    assert stored(wire.ask(offset_request(RequestCode.QUERY_CONSUMER_OFFSET, topic, **group)))["offset"] == "2"


def test_a_pull_that_finds_nothing_is_held_until_a_message_comes(wire: Wire, broker: RunningBroker, topic: str) -> None:
    """Holds: broker, long polling."""
    stored(wire.ask(send_request(topic, b"first")))
    read_all(wire, topic, 1)
    at_once = wire.ask(pull_request(topic, 1))
    assert at_once.code == ResponseCode.PULL_NOT_FOUND and stored_offsets(at_once) == (1, 0, 1)
    (opaque,) = wire.tell(pull_request(topic, 1, hold_ms=15_000))
    with Wire.open(broker.port) as other:
        stored(other.ask(send_request(topic, b"awaited")))
    answer = wire.answers([opaque])[opaque]
    assert [record.body for record in records_of(answer)] == [b"awaited"]
    assert stored_offsets(answer) == (2, 0, 2)


def stored_offsets(answer: RemotingCommand) -> tuple[int, int, int]:
    fields = answer.ext_fields or {}
    return int(fields["nextBeginOffset"]), int(fields["minOffset"]), int(fields["maxOffset"])


def test_lite_pulls_are_pulls(wire: Wire, topic: str) -> None:
    stored(wire.ask(send_request(topic, b"body")))
    read_all(wire, topic, 1)
    answer = wire.ask(pull_request(topic, 0, code=RequestCode.LITE_PULL_MESSAGE))
    assert [record.body for record in records_of(answer)] == [b"body"]


def test_a_heartbeat_makes_its_client_known(wire: Wire, topic: str) -> None:
    group = f"G{topic}"
    subscription = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
    body = HeartbeatData(
        client_id=f"me@{topic}",
        consumer_data_set=[ConsumerData(group_name=group, subscription_data_set=[subscription])],
        producer_data_set=[ProducerData(group_name="PG")],
    ).encode()
    stored(wire.ask(RemotingCommand.request(RequestCode.HEART_BEAT, body=body)))
    ask = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": group})
    answer = wire.ask(ask)
    assert answer.code == ResponseCode.SUCCESS and f"me@{topic}".encode() in (answer.body or b"")


def test_a_connection_finds_its_pipelined_messages_in_the_order_sent(wire: Wire, topic: str) -> None:
    """Among them sends to topics that do not exist yet, to this one too: those go by way of the manager.
    Holds: client, order of everything and of a key."""
    mine = [send_request(topic, b"%d" % n) for n in range(PIPELINED)]
    requests = []
    for n, request in enumerate(mine):
        requests.append(request)
        if n % 50 == 25:
            requests.append(send_request(f"{topic}-{n}", b"elsewhere"))
    answers = wire.answers(wire.tell(*requests))
    assert len(answers) == len(requests)
    assert {answer.code for answer in answers.values()} == {ResponseCode.SUCCESS}
    assert [stored(answers[request.opaque])["queueOffset"] for request in mine] == [str(n) for n in range(PIPELINED)]
    found = read_all(wire, topic, PIPELINED)
    assert [record.body for record in found] == [b"%d" % n for n in range(PIPELINED)]
    assert [record.queue_offset for record in found] == list(range(PIPELINED))


def test_a_batch_is_stored_whole(wire: Wire, topic: str) -> None:
    entries = [BatchEntry(b"entry %d" % n, b"TAGS\x01t%d\x02" % n) for n in range(10)]
    request = send_request(topic, encode_batch(entries), code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    answer = wire.ask(request)
    assert stored(answer)["queueOffset"] == "0"
    assert len(stored(answer)["msgId"].split(",")) == 10
    assert [record.body for record in read_all(wire, topic, 10)] == [entry.body for entry in entries]


def test_one_way_sends_are_stored_and_not_answered(wire: Wire, topic: str) -> None:
    """Holds: network, synchronous, asynchronous and oneway requests."""
    silent = wire.tell(*(send_request(topic, b"%d" % n, oneway=True) for n in range(20)))
    (last,) = wire.tell(send_request(topic, b"last"))
    answer = wire.read()
    assert answer.opaque == last and last not in silent
    assert stored(answer)["queueOffset"] == "20"
    assert [record.body for record in read_all(wire, topic, 21)] == [*(b"%d" % n for n in range(20)), b"last"]


def test_an_unknown_code_is_answered(wire: Wire) -> None:
    answer = wire.ask(RemotingCommand.request(UNKNOWN_CODE))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == f" request type {UNKNOWN_CODE} not supported"
    assert answer.serialize_type is wire.serialize_type


def test_the_vip_port_serves_all_but_pulls(broker: RunningBroker, topic: str) -> None:
    """Holds: trap, no pulls at the VIP port."""
    with Wire.open(broker.port - 2) as vip, Wire.open(broker.port) as main:
        stored(vip.ask(send_request(topic, b"by the side door")))
        until(lambda: max_offset(vip, topic) == 1, "dispatch")
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            answer = vip.ask(pull_request(topic, 0, code=code))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f" request type {int(code)} not supported"
        assert [record.body for record in read_all(main, topic, 1)] == [b"by the side door"]


def test_large_and_small_share_a_connection_in_order(wire: Wire, topic: str) -> None:
    sizes = [4 << 20, 10, 1 << 20, 0x7FFF, 1, 2 << 20]
    answers = wire.answers(wire.tell(*(send_request(topic, bytes([n]) * size) for n, size in enumerate(sizes))))
    assert [stored(answer)["queueOffset"] for _, answer in sorted(answers.items())] == ["0", "1", "2", "3", "4", "5"]
    assert [len(record.body) for record in read_all(wire, topic, len(sizes))] == sizes
