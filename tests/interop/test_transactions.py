"""Transactions of the official clients and of ours: committed, rolled back, asked about, also of another producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.interop.brokers import AnyBroker, NameMaker, create_topic, max_offsets, wait_until
from tests.interop.programs import LANGUAGES, Event, Launcher, Program

COUNT = 12
SOON = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
QUEUES = 2
HALF, OPS, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
Start = Callable[..., AbstractContextManager[AnyBroker]]


@pytest.fixture(scope="module")
def checking(start_broker: Start) -> Iterator[AnyBroker]:
    """A broker that asks after a second."""
    with start_broker(settings=SOON) as running:
        yield running


@pytest.fixture
def programs(checking: AnyBroker, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(checking.namesrv, tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture
def topic(checking: AnyBroker, names: NameMaker) -> str:
    name = names("transactions")
    create_topic(checking, name, QUEUES)
    return name


def begin(programs: Launcher, language: str, topic: str, **arguments: object) -> Program:
    program = programs.start(language, "transaction", topic=topic, group=f"{topic}_producer", **arguments)
    program.wait_until(lambda: program.of_kind("ended"), "the end of its transactions")
    return program


def read(programs: Launcher, checking: AnyBroker, topic: str, count: int) -> list[Event]:
    """All messages of the topic, which are `count`, by the Java client."""
    wait_until(lambda: sum(max_offsets(checking, topic, QUEUES)) >= count, f"{count} messages in {topic}")
    reader = programs.start("java-4.9.8", "push", topic=topic, group=f"{topic}_reader")
    reader.wait_messages(count)
    reader.leave()
    assert sum(max_offsets(checking, topic, QUEUES)) == count
    return reader.messages


def keys(topic: str, numbers: range) -> list[str]:
    return sorted(f"{topic}-{number}" for number in numbers)


def ended(checking: AnyBroker) -> bool:
    """Every half message has its op message."""
    return max_offsets(checking, HALF, 1)[0] <= max_offsets(checking, OPS, 1)[0]


def test_commit_and_rollback(programs: Launcher, checking: AnyBroker, topic: str, language: str) -> None:
    program = begin(programs, language, topic, prefix=topic, count=COUNT, outcomes="commit,rollback")
    found = read(programs, checking, topic, COUNT // 2)
    wait_until(lambda: ended(checking), "every transaction has ended")
    program.leave()
    assert sorted(event["key"] for event in found) == keys(topic, range(0, COUNT, 2))
    assert program.of_kind("checked") == []
    for event in found:
        assert event["sysFlag"] == 8
        assert (event["properties"]["TRAN_MSG"], event["properties"]["REAL_TOPIC"]) == ("true", topic)


def test_what_is_not_known_is_asked(programs: Launcher, checking: AnyBroker, topic: str, language: str) -> None:
    arguments = {"outcomes": "unknown", "answers": "commit,rollback,unknown"}
    program = begin(programs, language, topic, prefix=topic, count=COUNT, **arguments)
    found = read(programs, checking, topic, COUNT // 3)
    third = {f"{topic}-{number}" for number in range(2, COUNT, 3)}
    program.wait_until(
        lambda: all(sum(event["key"] == key for event in program.of_kind("checked")) >= 2 for key in third),
        "a second check of what is still not known",
    )
    program.leave()
    assert sorted(event["key"] for event in found) == keys(topic, range(0, COUNT, 3))
    ids = {event["key"]: event["msgId"] for event in program.of_kind("sent")}
    asked = program.of_kind("checked")
    assert {event["key"] for event in asked} == set(ids)


def test_another_producer_of_the_group_is_asked(
    programs: Launcher, checking: AnyBroker, topic: str, language: str
) -> None:
    other_language = LANGUAGES[(LANGUAGES.index(language) + 1) % len(LANGUAGES)]
    program = begin(programs, language, topic, prefix=topic, count=COUNT, outcomes="unknown", answers="unknown")
    program.kill()
    other = begin(
        programs, other_language, topic, prefix=f"{topic}_other", count=1, outcomes="commit", answers="commit,rollback"
    )
    found = read(programs, checking, topic, COUNT // 2 + 1)
    assert {event["key"] for event in other.of_kind("checked")} == set(keys(topic, range(COUNT)))
    other.leave()
    assert sorted(event["key"] for event in found) == sorted([*keys(topic, range(0, COUNT, 2)), f"{topic}_other-0"])
