"""Invariant: a manager that stands still, and a client that sends nothing but what is for it, hold up nobody else: the
sends and pulls of others are answered one after the other, and when it moves again it serves."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import PULL_NOT_FOUND, Connection, pull_request, send_request

SHAPES = {"one codec": {"codecWorkers": "1"}, "inline codec": {"codecWorkers": "0"}}
BURSTS, BURST = 40, 50
ANSWER_S = 30.0  # the manager has thousands of requests to serve before the last one
BODY = bytes(3000)  # 6 MB in all: more than the ring and the share of a connection


def connected(broker: RunningBroker) -> contextlib.closing[Connection]:
    return contextlib.closing(Connection(broker.port, timeout_s=ANSWER_S))


def slow_send(kind: str, opaque: int) -> RemotingCommand:
    command = send_request("made by nobody" if kind == "unknown topic" else "alpha", 0, [BODY], opaque)
    fields = dict(command.ext_fields or {})
    if kind == "delayed":
        fields["i"] = "DELAY\x013\x02"
    elif kind == "retry":
        fields["b"] = "%RETRY%history"
    command.ext_fields = fields
    return command


def command(opaque: int) -> RemotingCommand:
    request = RemotingCommand.request(34, body=BODY)
    request.opaque = opaque
    return request


def slow_request(kind: str, opaque: int) -> RemotingCommand:
    return command(opaque) if kind == "command" else slow_send(kind, opaque)


def stored(connection: Connection, opaque: int) -> int:
    """The code of a send; the first ones make the topic."""
    return connection.ask(send_request("alpha", 0, [b"ordinary"], opaque)).code


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["unknown topic", "delayed", "retry", "command"])
def test_others_are_served_while_one_floods_a_manager_that_stands_still(shape: str, kind: str) -> None:
    """Fault: One client's delayed sends filled the ring to the manager, and all other requests waited."""
    with running_broker(SHAPES[shape]) as broker, connected(broker) as ordinary, connected(broker) as flooder:
        while stored(ordinary, 1) != 0:
            pass
        ordinary.ask(pull_request("alpha", 0, 0))  # its group is there now
        manager = broker.workers()["manager"]
        os.kill(manager, signal.SIGSTOP)
        try:
            for burst in range(BURSTS):
                flooder.send(*(slow_request(kind, burst * BURST + number) for number in range(BURST)))
                assert stored(ordinary, burst) == 0
                assert ordinary.ask(pull_request("alpha", 0, 0)).code in (0, PULL_NOT_FOUND)  # not dispatched yet
        finally:
            os.kill(manager, signal.SIGCONT)
        with connected(broker) as other:  # served as well, once the others have been
            while other.ask(slow_send("delayed", 1)).code != 0:
                pass
            assert stored(other, 2) == 0
