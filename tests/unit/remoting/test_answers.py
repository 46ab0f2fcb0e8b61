"""From request to response: every outcome of a processor, and answers to what cannot be served."""

import pytest
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.faults import Faults
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.answers import RequestTable, error_response, not_supported, place_of
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType


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


def test_an_error_of_ours_says_its_code_and_is_no_fault() -> None:
    faults = Faults()
    request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET)
    response = error_response(request, RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no topic T"), faults)
    assert (response.code, response.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no topic T")
    assert faults.counts == {}


def test_any_other_error_is_answered_and_counted() -> None:
    faults = Faults()
    response = error_response(RemotingCommand.request(RequestCode.GET_MAX_OFFSET), ValueError("x"), faults)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: x")
    assert faults.counts == {"GET_MAX_OFFSET": 1}


def test_codes_of_strangers_share_one_place() -> None:
    assert place_of(RemotingCommand.request(31_999)) == place_of(RemotingCommand.request(32_000))
    response = not_supported(31_999)
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert response.remark == " request type 31999 not supported"
