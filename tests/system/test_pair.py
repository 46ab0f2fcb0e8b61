"""A master with a slave, both rocketpy: the slave's log is the master's byte for byte and its tables are the master's,
whatever is killed; and its directory goes on as a master's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.group import SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.bodies.topic import TopicConfigSerializeWrapper
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import loads
from tests.support.broker import RunningBroker
from tests.support.pair import Pair, log_hashes, running_pair
from tests.support.wire import Wire, max_offset, read_all, send_request, until
from tests.system.test_stop_and_restart import TOPIC, assert_kept, loaded

QUEUES = 4
FILES = {
    "maxMessageSize": "65528",
    "mappedFileSizeCommitLog": "131072",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "flushDelayOffsetInterval": "500",
    "autoCreateTopicEnable": "false",
}
_B = TypeVar("_B", bound=Body)
ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
STORED = {ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
TABLES: dict[RequestCode, type[Body]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper,
    RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetSerializeWrapper,
    RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetSerializeWrapper,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper,
}
TOPIC_FIELDS = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": str(QUEUES),
    "writeQueueNums": str(QUEUES),
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


@pytest.fixture(params=ROLES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with running_pair(tmp_path, request.param, FILES) as running:
        with Wire.open(running.master.port) as wire:
            ask(wire, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC_FIELDS)
        yield running


def ask(wire: Wire, code: RequestCode, fields: dict[str, str] | None = None, body: bytes | None = None) -> bytes:
    """The body of a successful answer."""
    answer = wire.ask(RemotingCommand.request(code, ext_fields=fields or {}, body=body))
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer.body or b""


def send(broker: RunningBroker, count: int = 160, properties: str | None = None) -> set[int]:
    """Messages of 1000 bytes in turn to each queue; the codes of their answers. All are stored."""
    with Wire.open(broker.port) as wire:
        opaques = wire.tell(
            *(
                send_request(TOPIC, b"%d" % n + b"." * 1000, queue_id=n % QUEUES, properties=properties)
                for n in range(count)
            )
        )
        codes = {answer.code for answer in wire.answers(opaques).values()}
    assert codes <= STORED, codes
    return codes


def wait_equal(pair: Pair) -> None:
    """Until logs, ends of queues and tables are equal."""
    until(lambda: log_hashes(pair.master.store) == log_hashes(pair.slave.store), "equal logs")
    until(lambda: ends(pair.master) == ends(pair.slave), "equal queues")
    for code, kind in TABLES.items():
        until(lambda: table(pair.master, code, kind) == table(pair.slave, code, kind), f"equal: {code.name}")  # noqa: B023


def ends(broker: RunningBroker) -> list[int]:
    with Wire.open(broker.port) as wire:
        return [max_offset(wire, TOPIC, queue_id) for queue_id in range(QUEUES)]


def table(broker: RunningBroker, code: RequestCode, kind: type[_B]) -> _B:
    with Wire.open(broker.port) as wire:
        return kind.decode(ask(wire, code))


def wait_acknowledged(pair: Pair) -> int:
    """Until a synchronous master has its slave back; how many messages that took."""
    codes: list[set[int]] = []

    def is_acknowledged() -> bool:
        codes.append(send(pair.master, 1))
        return codes[-1] == {ResponseCode.SUCCESS}

    until(is_acknowledged, "the slave to acknowledge")
    return len(codes)


def test_a_slave_has_the_whole_log_and_the_tables(pair: Pair) -> None:
    """Holds: replication, writes at the master only; replication, metadata on slaves."""
    send(pair.master, 400)
    pair.slave.start()
    wait_equal(pair)
    assert len(log_hashes(pair.slave.store)) > 2
    count = 400 + wait_acknowledged(pair) + 160
    assert send(pair.master, 160) == {ResponseCode.SUCCESS}
    until(lambda: sum(ends(pair.master)) == count, "dispatch")
    send(pair.master, 3, "DELAY\x011\x02")
    with Wire.open(pair.master.port) as wire:
        ask(wire, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"readers","retryQueueNums":2}')
        ask(
            wire,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "readers", "topic": TOPIC, "queueId": "1", "commitOffset": "17"},
        )
    until(lambda: sum(ends(pair.master)) == count + 3, "the delayed messages")
    wait_equal(pair)
    offsets = table(pair.slave, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper)
    assert offsets.offset_table[f"{TOPIC}@readers"] == {1: 17}
    with Wire.open(pair.slave.port) as wire, Wire.open(pair.master.port) as other:
        refused = wire.ask(send_request(TOPIC, b"not here"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        for queue_id, end in enumerate(ends(pair.master)):
            assert read_all(wire, TOPIC, end, queue_id) == read_all(other, TOPIC, end, queue_id)


def names_in(broker: RunningBroker, file: str, member: str) -> set[str]:
    """What is in a table on the disk of a broker."""
    path = broker.store / "config" / file
    found = loads(path.read_bytes()) if path.exists() else {member: {}}
    assert isinstance(found, dict) and isinstance(found[member], dict)
    return set(found[member])


def test_a_change_that_a_synchronous_master_has_acknowledged_is_on_its_slave(tmp_path: Path) -> None:
    """Topics and groups, created and deleted; whatever happens to the master now.
    Fault: A topic or group acknowledged by a synchronous master could be lost with a failover for 10 s."""
    with running_pair(tmp_path, "SYNC_MASTER", FILES) as pair, Wire.open(pair.master.port) as wire:
        ask(wire, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC_FIELDS)
        pair.slave.start()
        wait_acknowledged(pair)
        until(lambda: TOPIC in names_in(pair.slave, "topics.json", "topicConfigTable"), "the first topic")
        for number in range(2):
            topic, group = f"T{number}", f"G{number}"
            ask(wire, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC_FIELDS | {"topic": topic})
            assert topic in names_in(pair.slave, "topics.json", "topicConfigTable")
            ask(wire, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"%s"}' % group.encode())
            assert group in names_in(pair.slave, "subscriptionGroup.json", "subscriptionGroupTable")
            ask(wire, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert topic not in names_in(pair.slave, "topics.json", "topicConfigTable")
            ask(wire, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group})
            assert group not in names_in(pair.slave, "subscriptionGroup.json", "subscriptionGroupTable")


def restart(broker: RunningBroker, end: Callable[[], object]) -> None:
    end()
    broker.start()


def test_the_slave_catches_up_after_kills_and_stops_of_either(pair: Pair) -> None:
    """Holds: replication, synchronous and asynchronous; trap, tables of a slave drift."""
    pair.slave.start()
    send(pair.master)
    wait_equal(pair)
    pair.slave.kill_all()
    send(pair.master)
    pair.slave.start()
    wait_equal(pair)
    for worker in ("send", "replicator", "store", "manager", "pull"):
        pair.slave.kill_worker(worker)
        send(pair.master)
        wait_equal(pair)
    for worker in ("send", "replicator", "store", "manager"):
        pair.master.kill_worker(worker)
        send(pair.master)
        wait_equal(pair)
    assert pair.slave.stop() == 0
    send(pair.master)
    pair.slave.start()
    wait_equal(pair)
    for end in (pair.master.kill_all, pair.master.stop):
        restart(pair.master, end)
        send(pair.master)
        wait_equal(pair)
    wait_acknowledged(pair)


def test_the_directory_of_the_slave_goes_on_as_that_of_a_master(pair: Pair) -> None:
    """And the former master follows it, when both had the same log.
    Holds: replication, a slave takes over."""
    pair.slave.start()
    send(pair.master, 300)
    wait_equal(pair)
    before = ends(pair.master)
    pair.master.kill_all()
    pair.slave.kill_all()
    swapped = pair.swap()
    swapped.master.start()
    until(lambda: ends(swapped.master) == before, "the queues of the former slave")
    send(swapped.master)
    until(lambda: ends(swapped.master) == [end + 160 // QUEUES for end in before], "the queues of new messages")
    swapped.slave.start()
    wait_equal(swapped)
    wait_acknowledged(swapped)


def test_what_a_synchronous_master_acknowledged_is_on_the_slave(tmp_path: Path) -> None:
    """The master dies under load, and its disk with it."""
    with running_pair(tmp_path, "SYNC_MASTER", FILES | {"autoCreateTopicEnable": "true"}) as pair:
        pair.slave.start()
        with Wire.open(pair.master.port) as wire:
            first = send_request(TOPIC, b"first")
            until(lambda: wire.ask(first).code == ResponseCode.SUCCESS, "the slave to acknowledge")
        load = loaded(pair.master)
        pair.master.kill_all()
        load.join()
        assert load.count > 2_000
        pair.slave.kill_all()
        promoted = pair.swap().master
        promoted.settings["brokerRole"] = "ASYNC_MASTER"
        promoted.start()
        assert_kept(promoted, load)
