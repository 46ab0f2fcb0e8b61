"""Request-reply between every pair of clients: each request gets the reply that was made of it, whole."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, create_topic, max_offsets, wait_stored
from tests.interop.expected import body
from tests.interop.own_brokers import running_masters
from tests.interop.programs import LANGUAGES, Launcher, Program
from tests.support.broker import RunningBroker

COUNT = 8
LARGE = 20_000  # compressed by its client
MODES = dict.fromkeys(LANGUAGES, ("sync", "callback")) | {"java-5.3.3": ("callback",)}
"""A synchronous request of 5.3.3 ends when it is sent (apache/rocketmq issue 9319)."""
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"

MASTERS = ("broker-a", "broker-b")
ASKERS_OF_MANY = tuple(name for name in LANGUAGES if name != "go")
"""The Go client makes itself known to a broker with its next heartbeat, up to 30 s after it has learned of the broker;
until then no reply can reach it over that broker."""


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningBroker]]:
    with running_masters(tmp_path_factory.mktemp("masters"), MASTERS) as running:
        yield running


def start_answerer(launch: Launcher, language: str, topic: str, group: str) -> Program:
    """One that has all queues: a Java consumer that found no list of members at its start looks again after 20 s."""
    answerer = launch.start(language, "reply", topic=topic, group=group)
    answerer.wait_until(lambda: len(answerer.queues or []) >= 2, "its queues")
    return answerer


def check_replies(program: Program, answerer: Program, prefix: str, size: int = 0) -> None:
    assert not program.of_kind("failed"), f"{program.describe()}\nwho replies:\n{answerer.describe()}"
    replies = {event["key"]: event for event in program.of_kind("reply")}
    assert sorted(replies) == sorted(f"{prefix}-{number}" for number in range(COUNT))
    for number in range(COUNT):
        event, expected = replies[f"{prefix}-{number}"], b"re: " + body(prefix, number, size)
        assert (event["bodySize"], event["bodyCrc"]) == (len(expected), zlib.crc32(expected))
        assert event["properties"]["MSG_TYPE"] == "reply" and event["properties"]["PUSH_REPLY_TIME"]


def test_every_client_gets_the_replies_of_every_client(
    launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker, language: str
) -> None:
    """`language` replies.
    Holds: answer, replies (324, 325)."""
    topic = make_topic("requests", 2)
    answerer = start_answerer(launch, language, topic, names("answers"))
    for name in LANGUAGES:
        for mode, size in ((mode, size) for mode in MODES[name] for size in (0, LARGE)):
            prefix = f"{name}-{mode}-{size}"
            asker = launch.start(
                name, "request", topic=topic, group=f"{topic}_asks", prefix=prefix, mode=mode, size=size, count=COUNT
            )
            asker.wait_end()
            check_replies(asker, answerer, prefix, size)
    answerer.leave()
    # Official clients hand a reply over before they answer the broker, so the program that asked may be gone by then.
    refused = [event for event in answerer.of_kind("failed") if event["key"].startswith("python-")]
    assert not refused, answerer.describe()
    wait_stored(broker, REPLY_TOPIC, 1, len(LANGUAGES) * COUNT)


def test_a_request_without_a_consumer_ends_with_its_timeout(
    launch: Launcher, make_topic: TopicMaker, language: str
) -> None:
    topic = make_topic("unanswered", 2)
    asker = launch.run(language, "request", topic=topic, group=f"{topic}_asks", prefix="x", timeout=1000)
    assert len(asker.of_kind("failed")) == 1 and not asker.of_kind("reply")


def test_replies_find_who_asked_over_any_master(
    masters: dict[str, RunningBroker], tmp_path: Path, names: NameMaker, language: str
) -> None:
    """`language` replies. Requests go to both masters, and a reply may go to the other one than its request."""
    topic = names("requests_of_two")
    for master in masters.values():
        create_topic(master, topic, 2)
    launch = Launcher(masters[MASTERS[0]].namesrv, tmp_path)
    try:
        answerer = start_answerer(launch, language, topic, names("answers_of_two"))
        for name in ASKERS_OF_MANY:
            asker = launch.start(
                name, "request", topic=topic, group=f"{topic}_asks", prefix=name, mode=MODES[name][-1], count=COUNT
            )
            asker.wait_end()
            check_replies(asker, answerer, name)
        answerer.leave()
    finally:
        launch.close()
    for name, master in masters.items():
        assert sum(max_offsets(master, topic, 2)) > 0, f"no request went to {name}"
