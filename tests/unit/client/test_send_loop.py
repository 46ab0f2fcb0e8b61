"""One budget for all attempts, and which failures are worth another."""

import pytest

from rocketpy.client.options import SEND_RETRY_CODES
from rocketpy.client.sending.send_loop import SendBudget, is_worth_another_async_attempt, is_worth_another_attempt
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectFailed, RequestTimeout


def test_the_budget_is_shared() -> None:
    budget = SendBudget(timeout_s=3.0, attempts_max=3, started_s=10.0)
    assert budget.begin_attempt(10.0) == 3.0
    assert budget.begin_attempt(12.5) == 0.5
    assert budget.begin_attempt(13.0) is None
    assert budget.is_exhausted_by_time


def test_attempts_are_counted() -> None:
    budget = SendBudget(timeout_s=3.0, attempts_max=2, started_s=0.0)
    assert budget.begin_attempt(0.0) and budget.begin_attempt(0.1)
    assert budget.begin_attempt(0.2) is None
    assert not budget.is_exhausted_by_time


@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205])
def test_these_refusals_are_tried_elsewhere(code: int) -> None:
    assert is_worth_another_attempt(BrokerError(code, ""), SEND_RETRY_CODES)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL])
def test_these_are_not(code: int) -> None:
    """Holds: trap, SYSTEM_BUSY is not retried."""
    assert not is_worth_another_attempt(BrokerError(code, ""), SEND_RETRY_CODES)


def test_transport_failures_are() -> None:
    assert is_worth_another_attempt(ConnectFailed(""), SEND_RETRY_CODES)
    assert is_worth_another_attempt(ClientError(""), SEND_RETRY_CODES)
    assert is_worth_another_async_attempt(RequestTimeout(""))
    assert not is_worth_another_async_attempt(BrokerError(1, ""))
