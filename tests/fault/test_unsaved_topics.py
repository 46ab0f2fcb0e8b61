"""Invariant: a timer or a half message that was acknowledged is delivered or committed, also if all that knew its topic
die before topics.json has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, Reader, commit_of, send_request
from tests.support.kills import wait_for

TOPIC, QUEUE = "unsaved", 2
TIMED = "TIMER_DELAY_MS\x016000\x02"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01half\x02"


def message(topic: str, properties: str, *, is_half: bool = False) -> RemotingCommand:
    request = send_request(topic, QUEUE, [properties[:4].encode()], 1)
    assert request.ext_fields is not None
    request.ext_fields |= {"i": properties, "f": "4" if is_half else "0"}
    return request


def ask(broker: RunningBroker, request: RemotingCommand, timeout_s: float = 30.0) -> RemotingCommand:
    with contextlib.closing(Connection(broker.port, timeout_s=timeout_s)) as connection:
        return connection.ask(request)


@contextlib.contextmanager
def no_save(broker: RunningBroker) -> Iterator[None]:
    """Saves of topics.json do not end: a pipe stands in the place of the new file, which nobody reads."""
    pipe = Path(broker.store) / "config" / "topics.json.tmp"
    os.mkfifo(pipe)
    try:
        yield
    finally:
        pipe.unlink()


def is_stored(broker: RunningBroker, request: RemotingCommand) -> bool:
    """False: the send worker does not know the topic yet; a send that the manager got waits for the save."""
    try:
        return ask(broker, request, 0.5).code == 0
    except TimeoutError:
        return False


def bodies(broker: RunningBroker) -> set[bytes]:
    with contextlib.closing(Reader(broker.port)) as reader:
        return {record.body for record in reader.records(TOPIC, QUEUE)}


@pytest.mark.parametrize("victims", ["all", "manager, all"])
def test_messages_for_a_topic_whose_save_is_under_way(victims: str) -> None:
    """Fault: A timer for a topic still being saved became a dead letter when the broker died."""
    with running_broker() as broker:
        for request in (message("other", TIMED), message("other", HALF, is_half=True)):  # makes the topics of these
            assert ask(broker, request).code == 0
        with contextlib.closing(Connection(broker.port)) as first:
            with no_save(broker):
                first.send(send_request(TOPIC, QUEUE, [b"first"], 1))
                wait_for(lambda: is_stored(broker, message(TOPIC, TIMED)), broker)
                half = ask(broker, message(TOPIC, HALF, is_half=True))
                assert half.code == 0
            assert TOPIC not in (broker.store / "config" / "topics.json").read_text()
            if "manager" in victims:
                manager = broker.kill_worker("manager")
                wait_for(lambda: broker.workers().get("manager", manager) != manager, broker)
                assert ask(broker, message("other", TIMED)).code == 0
                ask(broker, RemotingCommand.request(28))  # the new one serves
            broker.kill_all()
            broker.start()
        assert ask(broker, commit_of(half)).code == 0
        wait_for(lambda: bodies(broker) >= {TIMED[:4].encode(), HALF[:4].encode()}, broker)
