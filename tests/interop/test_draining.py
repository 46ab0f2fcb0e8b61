"""Several masters in one cluster, with official clients: one is drained by wipeWritePerm, one by its brokerPermission.
Traffic moves to the others, what lies on a drained broker is consumed to its end, and nothing is lost. Our drainBroker
drains an official broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.message.message_id import decode_offset_message_id
from tests.interop.brokers import asking, create_topic, max_offsets, running_target, wait_committed, wait_until
from tests.interop.mqadmin import MqAdmin
from tests.interop.own_brokers import running_masters
from tests.interop.programs import Launcher, Program
from tests.support.broker import RunningBroker
from tests.system.test_draining import drain_queues_that_are_only_read

NAMES = ("broker-a", "broker-b", "broker-c")
QUEUES = 2
ENOUGH = 60  # messages after which a broker that is written to has got some
UPDATE_BROKER_CONFIG = 25
PERMISSION_WITHOUT_WRITE, PERMISSION = 4, 6

Masters = dict[str, RunningBroker]


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Masters]:
    with running_masters(tmp_path_factory.mktemp("masters"), NAMES) as running:
        yield running


@pytest.fixture
def clients(masters: Masters, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(masters[NAMES[0]].namesrv, tmp_path)
    yield launcher
    launcher.close()


class Traffic:
    """What a producer has stored, by broker."""

    def __init__(self, masters: Masters, producers: list[Program]) -> None:
        self._by_port = {broker.port: name for name, broker in masters.items()}
        self._producers = producers

    def sent(self) -> list[str]:
        """The broker of each message, in the order of each producer."""
        ids = [str(event["offsetMsgId"]) for producer in self._producers for event in producer.of_kind("sent")]
        return [self._by_port[decode_offset_message_id(text).store_host[1]] for text in ids]

    def keys(self) -> list[str]:
        return [str(event["key"]) for producer in self._producers for event in producer.of_kind("sent")]

    def brokers_of_next(self, count: int) -> set[str]:
        """Where each producer's next messages go."""
        found = set()
        for producer in self._producers:
            before = len(producer.of_kind("sent"))
            producer.wait_until(lambda p=producer, n=before: len(p.of_kind("sent")) >= n + count, f"{count} more sent")
            ids = [str(event["offsetMsgId"]) for event in producer.of_kind("sent")[before : before + count]]
            found |= {self._by_port[decode_offset_message_id(text).store_host[1]] for text in ids}
        return found

    def wait_brokers(self, expected: set[str]) -> None:
        wait_until(lambda: self.brokers_of_next(ENOUGH) == expected, f"messages go to {sorted(expected)}")


def set_permission(broker: RunningBroker, permission: int) -> None:
    with asking(broker.port) as control:
        control.check(UPDATE_BROKER_CONFIG, {}, f"brokerPermission={permission}\n".encode())


def test_traffic_leaves_drained_brokers_and_nothing_is_lost(
    masters: Masters, clients: Launcher, mqadmin: MqAdmin
) -> None:
    """Holds: cluster, taking a broker out of service; client, routes asked for every 30 s; cluster, modes; broker,
    permissions 2, 4 and 6."""
    topic, group = "drained", "drained_group"
    for broker in masters.values():
        create_topic(broker, topic, QUEUES)
    consumers = [clients.start(name, "push", topic=topic, group=group) for name in ("java-4.9.8", "go")]
    for consumer in consumers:
        consumer.wait_until(lambda consumer=consumer: consumer.queues, "queues")
    producers = [
        clients.start(
            name, "send", topic=topic, group=f"{topic}_p", prefix=name, mode="stream", retries=2, poll=500, pause=2
        )
        for name in ("java-4.9.8", "java-5.3.3")
    ]
    traffic = Traffic(masters, producers)
    traffic.wait_brokers(set(NAMES))

    mqadmin(masters["broker-a"], "wipeWritePerm", "-b", "broker-b")
    traffic.wait_brokers({"broker-a", "broker-c"})
    drained = max_offsets(masters["broker-b"], topic, QUEUES)

    set_permission(masters["broker-c"], PERMISSION_WITHOUT_WRITE)
    at_once = max_offsets(masters["broker-c"], topic, QUEUES)
    traffic.wait_brokers({"broker-a"})
    assert max_offsets(masters["broker-c"], topic, QUEUES) == at_once, "refused from the moment of the change on"
    assert max_offsets(masters["broker-b"], topic, QUEUES) == drained

    set_permission(masters["broker-c"], PERMISSION)
    mqadmin(masters["broker-a"], "addWritePerm", "-b", "broker-b")
    traffic.wait_brokers(set(NAMES))
    for producer in producers:
        producer.leave()
        assert not producer.of_kind("failed"), "a refusal is followed by another broker"

    for broker in masters.values():
        wait_committed(broker, group, topic, QUEUES)
    for consumer in consumers:
        consumer.leave()
    consumed = {str(event["key"]) for consumer in consumers for event in consumer.messages}
    assert set(traffic.keys()) <= consumed


def test_an_official_broker_is_drained_with_its_queues_that_are_only_read() -> None:
    """It answers GET_BROKER_CONSUME_STATS without them."""
    with running_target("java") as broker:
        create_topic(broker, "T", 4)
        drain_queues_that_are_only_read(broker)
