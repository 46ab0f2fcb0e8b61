"""Answers to what cannot be served: the code and remark of an error, and what counts as a fault of ours."""

from __future__ import annotations

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.faults import Faults
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.refusals import error_response, not_supported, place_of


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
