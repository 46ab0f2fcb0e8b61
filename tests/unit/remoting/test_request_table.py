"""From request to response: every outcome of a processor."""

import pytest
import trio

from rocketpy.errors import RequestRefused
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.request_table import RequestTable


class FakeChannel:
    connection = 1
    peer = Peer("10.0.0.1", 5)
    is_vip = False
    is_writable = True

    def push(self, command: RemotingCommand) -> None:
        raise AssertionError("nothing is pushed here")

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise AssertionError("nothing is asked here")

    def close(self) -> None: ...


class Outcome:
    def __init__(self, outcome: RemotingCommand | Exception | None) -> None:
        self.outcome = outcome

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def answer(outcome: RemotingCommand | Exception | None, request: RemotingCommand) -> RemotingCommand | None:
    table = RequestTable({10: Outcome(outcome)})
    return trio.run(table.answer, request, FakeChannel())


def request(code: int = 10, *, oneway: bool = False) -> RemotingCommand:
    command = RemotingCommand.request(code, oneway=oneway)
    command.opaque, command.serialize_type = 77, SerializeType.ROCKETMQ
    return command


@pytest.mark.parametrize(
    ("outcome", "code", "remark"),
    [
        (RemotingCommand.response(17, "no topic"), 17, "no topic"),
        (RequestRefused(16, "not writable"), 16, "not writable"),
        (KeyError("x"), 1, "KeyError: 'x'"),
    ],
)
def test_outcomes(outcome: RemotingCommand | Exception, code: int, remark: str) -> None:
    response = answer(outcome, request())
    assert response is not None and response.is_response
    assert (response.code, response.remark, response.opaque) == (code, remark, 77)
    assert response.serialize_type is SerializeType.ROCKETMQ
    assert answer(outcome, request(oneway=True)) is None


def test_unknown_code_is_answered() -> None:
    response = answer(None, request(9999))
    assert response is not None
    assert (response.code, response.remark) == (3, " request type 9999 not supported")
    assert answer(None, request(9999, oneway=True)) is None


def test_nothing_is_nothing() -> None:
    assert answer(None, request()) is None


def test_default_processor_gets_the_rest() -> None:
    table = RequestTable({}, default=Outcome(RemotingCommand.response(0, "default")))
    response = trio.run(table.answer, request(9999), FakeChannel())
    assert response is not None and response.remark == "default"
