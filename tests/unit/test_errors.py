"""The error tree: what each error answers, and that its text carries the facts."""

import inspect

import pytest

from rocketpy import errors
from rocketpy.codes import ResponseCode
from rocketpy.errors import (
    BrokerError,
    ConfigError,
    DiskFull,
    RecordCorrupt,
    RequestRefused,
    RequestTimeout,
    RocketError,
    TooManyRequests,
)


def test_everything_is_one_tree() -> None:
    found = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)]
    assert len(found) > 15 and all(issubclass(cls, RocketError) for cls in found)


def test_config_error_names_the_place() -> None:
    error = ConfigError("not a number", file="broker.conf", line=7, key="listenPort")
    assert str(error) == "broker.conf:7: listenPort: not a number"
    assert str(ConfigError("empty")) == "empty"


def test_record_corrupt_names_the_offset() -> None:
    error = RecordCorrupt(4096, "magic is 0")
    assert (error.phy_offset, error.reason, str(error)) == (4096, "magic is 0", "record at 4096: magic is 0")


@pytest.mark.parametrize(("code", "retriable"), [(1, True), (17, True), (2, False), (13, False), (999, False)])
def test_broker_error_knows_whether_to_try_again(code: int, retriable: bool) -> None:
    error = BrokerError(code, None, address="10.0.0.1:10911")
    assert (error.code, error.response_code, error.retriable, error.remark) == (code, code, retriable, "")
    assert f"CODE: {code}" in str(error) and "10.0.0.1:10911" in str(error)


def test_what_a_server_answers() -> None:
    assert (RequestRefused(16, "no").response_code, str(RequestRefused(16, "no"))) == (16, "no")
    assert RequestTimeout.retriable and TooManyRequests("x").response_code == ResponseCode.SYSTEM_BUSY
    assert DiskFull.response_code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert RocketError.response_code == ResponseCode.SYSTEM_ERROR and not RocketError.retriable
