"""Limits of accounts in a codec: refused with their name where the account is known, and counted once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.broker.fast_path.shared_access import SharedAccess
from rocketpy.broker.fast_path.shared_limits import SharedLimits
from rocketpy.codes import RequestCode
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import Credentials, sign
from tests.support.fast_path import FastPath
from tests.support.wire import send_request

OWN, OTHER = Credentials("own-account", "secret-1"), Credentials("other-account", "secret-2")
BROKER = Credentials("broker-account", "secret-3")
NOW_NS = 1_000_000_000_000
RATE = 5


@pytest.fixture
def path(tmp_path: Path) -> Iterator[FastPath]:
    """A codec with accounts and RATE requests per second, whose clock stands still."""
    path, access = FastPath(tmp_path), SharedAccess(frozenset([BROKER.access_key]))
    access.publish(Accounts.of([Account(one.access_key, one.secret_key) for one in (OWN, OTHER, BROKER)]))
    limits = SharedLimits({"account_requests": RATE}, 1, lambda: NOW_NS)
    clock = ffi.callback("uint64_t()", lambda: NOW_NS)
    path._keep += [access, limits, clock]
    path.codec_options = {"access": access.pointer, "limits": limits.pointer, "clock_ns": clock}
    lib.rp_codec_close(path.codec)
    path.codec = path.open_codec()
    yield path
    path.close()


def send(credentials: Credentials | None, body: bytes = b"x") -> RemotingCommand:
    request = send_request("T", body)
    if credentials is not None:
        sign(request, credentials)
    return request


def busy(path: FastPath) -> int:
    return int(path.workers["selector"].counters[lib.RP_COUNT_BUSY])


def test_an_account_beyond_its_rate_is_refused_and_others_are_not(path: FastPath) -> None:
    for _ in range(RATE + 1):  # the last one overdraws the bucket
        assert path.frame(send(OWN)) == lib.RP_OK
    assert busy(path) == 0
    assert path.frame(send(OWN)) == lib.RP_OK
    (answer,) = [answer for _, answer in path.answers() if answer.code == 2]
    assert answer.remark == "[LIMIT]system busy, the account has reached accountRequestsPerSecond"
    assert path.frame(send(OTHER)) == lib.RP_OK
    assert busy(path) == 1


def test_an_account_of_brokers_has_no_limit(path: FastPath) -> None:
    """Fault: Sends that a member had counted and passed on took the limit of one account, whoever had sent them."""
    for _ in range(3 * RATE):
        assert path.frame(send(BROKER)) == lib.RP_OK
    assert busy(path) == 0


def test_nobody_spends_what_is_an_accounts(path: FastPath) -> None:
    for _ in range(3 * RATE):
        path.frame(send(None))
        path.frame(send(Credentials(OWN.access_key, "guessed")))
    assert path.frame(send(OWN)) == lib.RP_OK
    assert busy(path) == 0


def test_a_send_that_waits_for_room_is_counted_when_it_has_found_it(path: FastPath) -> None:
    large = send(OTHER, bytes(60_000))
    while path.frame(large) == lib.RP_OK and not busy(path):
        pass
    assert not busy(path), "the ring is full before the bucket is empty"
    for _ in range(10 * RATE):
        assert path.frame(send(OWN, bytes(60_000))) == lib.RP_FULL
    assert busy(path) == 0


def test_the_end_of_a_transaction_is_left_to_python(path: FastPath) -> None:
    request = RemotingCommand.request(RequestCode.END_TRANSACTION, ext_fields={})
    sign(request, OWN)
    for _ in range(3 * RATE):
        assert path.frame(request) == lib.RP_OK
    assert busy(path) == 0
    assert path.frame(send(OWN)) == lib.RP_OK
