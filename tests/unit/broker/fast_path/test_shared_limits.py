"""SharedLimits: addresses as text, and counts of all processes."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path.shared_limits import SharedLimits

S = 1_000_000_000


def test_only_the_refusal_that_blocks_an_address_says_so() -> None:
    now = [100 * S]
    limits = SharedLimits({"failures": 2}, 1, lambda: now[0])
    assert [limits.failed("192.0.2.1") for _ in range(4)] == [False, True, False, False]
    assert [limits.failed("::ffff:192.0.2.1"), limits.failed("2001:db8::1"), limits.failed("2001:db8::2")] == [
        False,
        False,
        True,
    ]
    assert limits.counts["address_blocked"] == 2
    now[0] += 60 * S
    assert [limits.failed("192.0.2.1") for _ in range(2)] == [False, True]


def test_only_limits_of_accounts_are_asked_about_accounts() -> None:
    of_accounts = [SharedLimits({name: 1}, 1).limits_accounts for name in ("account_requests", "account_bytes")]
    assert of_accounts == [True, True]
    assert not SharedLimits({"failures": 2, "address_requests": 5, "account_bytes": 0}, 1).limits_accounts


def test_processes_share_the_bucket_of_an_account() -> None:
    limits = SharedLimits({"account_requests": 2}, 1)
    pid = os.fork()
    if pid == 0:
        refused = [limits.take("account", 100) is not None for _ in range(100)]
        os._exit(0 if any(refused) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert "accountRequestsPerSecond" in (limits.take("account", 100) or "")
    assert limits.take("other", 100) is None
    assert limits.counts["account_busy"] > 1
