"""Consumers of every client read from a slave: when the master suggests it, and when the master is gone. What they have
committed is not lost when it returns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import (
    AnyBroker,
    asking,
    committed_offsets,
    create_topic,
    decode,
    max_offsets,
    offset_table,
    wait_committed,
    wait_until,
)
from tests.interop.conftest import Launch
from tests.interop.own_brokers import wait_equal_logs
from tests.interop.programs import LANGUAGES, Launcher, Program
from tests.support.pair import Pair, running_pair

TOPIC, QUEUES, COUNT = "shared", 4, 40
NEEDS_MASTER = {"go"}  # to start: it asks a master alone for its offsets ("broker-a address not found")
GET_BROKER_RUNTIME_INFO = 28
SMALL = {"mappedFileSizeCommitLog": str(64 << 20), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}
ALWAYS_SLAVE = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}  # nothing counts as in memory


@pytest.fixture(autouse=True)
def _only_rocketpy(target: str) -> None:
    if target != "rocketpy":
        pytest.skip("master and slave are rocketpy here")


@contextlib.contextmanager
def started_pair(directory: Path, settings: dict[str, str]) -> Iterator[Pair]:
    with running_pair(directory, "ASYNC_MASTER", SMALL | settings) as pair:
        create_topic(pair.master, TOPIC, QUEUES)
        pair.slave.start()
        yield pair


def group_of(language: str) -> str:
    return f"readers_{language.replace('.', '_')}"


def start_members(launcher: Launcher) -> dict[str, Program]:
    return {name: launcher.start(name, "push", topic=TOPIC, group=group_of(name)) for name in LANGUAGES}


def send(launcher: Launcher, prefix: str) -> set[str]:
    """The keys of what was sent."""
    program = launcher.run("python", "send", topic=TOPIC, group="writers", prefix=prefix, count=COUNT)
    return {str(event["key"]) for event in program.of_kind("sent")}


def wait_keys(members: dict[str, Program], keys: set[str]) -> None:
    for member in members.values():
        member.wait_until(lambda m=member: keys <= {event["key"] for event in m.messages}, f"{len(keys)} messages")


def check_keys(members: dict[str, Program], keys: set[str]) -> None:
    """These and no others: nothing is lost, and nothing that was committed comes again."""
    for name, member in members.items():
        assert {event["key"] for event in member.messages} == keys, name


def wait_all_committed(broker: AnyBroker, languages: Iterable[str] = LANGUAGES) -> None:
    for name in languages:
        wait_committed(broker, group_of(name), TOPIC, QUEUES)


def leave(members: dict[str, Program]) -> None:
    for member in members.values():
        member.leave()


def messages_got(broker: AnyBroker) -> int:
    """What its consumers have got since its start."""
    with asking(broker.port) as control:
        table = decode(control.check(GET_BROKER_RUNTIME_INFO, {}).body.decode())["table"]
    return int(table["msgGetTotalTodayNow"])


def wait_copied(pair: Pair) -> None:
    """Until the slave has log, queues and offsets of the master."""
    wait_equal_logs(pair.master.store, pair.slave.store)
    wait_until(
        lambda: max_offsets(pair.slave, TOPIC, QUEUES) == max_offsets(pair.master, TOPIC, QUEUES), "equal queues"
    )
    wait_until(lambda: all_committed(pair.slave) == all_committed(pair.master), "equal offsets")


def wait_persisted(pair: Pair) -> None:
    """Until the master has the offsets on its disk: kill -9 takes what is newer than flushConsumerOffsetInterval."""
    path = pair.master.store / "config" / "consumerOffset.json"

    def persisted() -> list[list[int | None]]:
        table = offset_table(path) if path.exists() else {}
        groups = [table.get(f"{TOPIC}@{group_of(name)}", {}) for name in LANGUAGES]
        return [[offsets.get(str(queue)) for queue in range(QUEUES)] for offsets in groups]

    wait_until(lambda: persisted() == all_committed(pair.master), "the offsets on the master's disk")


def all_committed(broker: AnyBroker) -> list[list[int]]:
    return [committed_offsets(broker, group_of(name), TOPIC, QUEUES) for name in LANGUAGES]


def test_consumers_go_on_with_the_slave_and_come_back(tmp_path: Path, launch_at: Launch) -> None:
    """Holds: client, consumers of master and slave."""
    with started_pair(tmp_path, {}) as pair:
        launcher = launch_at(pair.master)
        members = start_members(launcher)
        wait_keys(members, send(launcher, "first"))
        wait_all_committed(pair.master)
        leave(members)
        second = send(launcher, "second")
        wait_copied(pair)
        wait_persisted(pair)
        pair.master.kill_all()
        members = start_members(launcher)
        readers = {name: member for name, member in members.items() if name not in NEEDS_MASTER}
        wait_keys(readers, second)
        wait_all_committed(pair.slave, readers)

        pair.master.start()
        with asking(pair.namesrv.namesrv_port) as namesrv:
            wait_until(lambda: namesrv.has_route(TOPIC), "the route")
        third = send(launcher, "third")
        wait_keys(members, second | third)
        wait_all_committed(pair.master)
        check_keys(members, second | third)
        leave(members)
        wait_copied(pair)

        members = start_members(launcher)
        fourth = send(launcher, "fourth")
        wait_keys(members, fourth)
        check_keys(members, fourth)
        leave(members)


def test_consumers_follow_the_suggestion_of_the_master(tmp_path: Path, launch_at: Launch) -> None:
    """Offsets go to the master.
    Holds: replication, reading from a slave."""
    with started_pair(tmp_path, ALWAYS_SLAVE) as pair:
        launcher = launch_at(pair.master)
        members = start_members(launcher)
        first = send(launcher, "first")
        wait_keys(members, first)
        wait_copied(pair)
        before = messages_got(pair.slave)
        second = send(launcher, "second")
        wait_keys(members, second)
        wait_all_committed(pair.master)
        assert messages_got(pair.slave) - before > 0
        check_keys(members, first | second)
        leave(members)
