from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from rocketpy.console.login import (
    FAILURES_MAX,
    FAILURES_S,
    IDLE_S,
    NETWORKS_MAX,
    SESSION_S,
    SESSIONS_MAX,
    AccountFile,
    Sessions,
    client_address,
    digest,
)
from rocketpy.errors import ConfigError
from tests.support.cases import cases

ACCOUNTS = """accounts:
- accessKey: operator
  secretKey: operator-secret
  admin: true
- accessKey: shop-orders
  secretKey: shop-orders-secret
"""
DIGESTS = {"operator": digest("operator-secret")}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


def test_only_administrators_of_the_file_count(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    AccountFile(path).check()
    assert AccountFile(path).digests() == DIGESTS
    path.write_text(ACCOUNTS.replace("admin: true", "admin: false"))
    with pytest.raises(ConfigError, match="no account with `admin: true`"):
        AccountFile(path).check()
    with pytest.raises(ConfigError, match="correct --accounts"):
        AccountFile(tmp_path / "none.yml").check()


def test_a_session_begins_with_the_right_secret_alone(sessions: Sessions) -> None:
    assert sessions.log_in("a", "operator", "wrong", DIGESTS) is None
    assert sessions.log_in("a", "nobody", "operator-secret", DIGESTS) is None
    assert sessions.log_in("a", "", "", DIGESTS) is None
    token = sessions.log_in("a", "operator", "operator-secret", DIGESTS)
    session = sessions.find(token, is_use=True)
    assert session is not None
    assert "operator-secret" not in repr(session)
    assert [sessions.find(other, is_use=True) for other in (None, "", "x")] == [None] * 3
    sessions.end(token)
    assert sessions.find(token, is_use=True) is None


def test_sessions_end_when_idle_and_after_a_day_of_work(sessions: Sessions, clock: Clock) -> None:
    token = sessions.log_in("a", "operator", "operator-secret", DIGESTS)
    while clock.now_s < SESSION_S:
        assert sessions.find(token, is_use=True) is not None
        clock.now_s += IDLE_S
    clock.now_s += 1
    assert sessions.find(token, is_use=True) is None


def test_a_page_that_refreshes_itself_does_not_keep_a_session(sessions: Sessions, clock: Clock) -> None:
    token = sessions.log_in("a", "operator", "operator-secret", DIGESTS)
    for _ in range(10):
        clock.now_s += IDLE_S / 10
        assert sessions.find(token, is_use=False) is not None
    clock.now_s += 1
    assert sessions.find(token, is_use=False) is None


def test_sessions_are_bounded(sessions: Sessions, clock: Clock) -> None:
    tokens = []
    for _ in range(SESSIONS_MAX + 1):
        clock.now_s += 1
        tokens.append(sessions.log_in("a", "operator", "operator-secret", DIGESTS))
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(tokens[0], is_use=True) is None
    assert sessions.find(tokens[-1], is_use=True) is not None


def test_an_address_that_fails_often_waits_and_others_do_not(sessions: Sessions, clock: Clock) -> None:
    for _ in range(FAILURES_MAX):
        assert sessions.may_try("a")
        sessions.log_in("a", "operator", "guess", DIGESTS)
    assert (sessions.may_try("a"), sessions.may_try("b")) == (False, True)
    clock.now_s += FAILURES_S
    assert sessions.may_try("a")
    for n in range(2 * NETWORKS_MAX):
        sessions.log_in(f"address {n}", "operator", "guess", DIGESTS)
    assert len(sessions._failures) == NETWORKS_MAX


@cases(
    "guessing, other, is_one",
    [
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("192.0.2.7", "::ffff:192.0.2.7", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),  # not one /64
        ("", "::", False),
    ],
)
def test_an_ipv6_client_guesses_as_often_as_an_ipv4_client(
    sessions: Sessions, guessing: str, other: str, is_one: bool
) -> None:
    """Fault: An IPv6 client could guess 10 passwords with each of the 2^64 addresses of its network."""
    for _ in range(FAILURES_MAX):
        sessions.log_in(guessing, "operator", "guess", DIGESTS)
    assert not sessions.may_try(guessing)
    assert sessions.may_try(other) is not is_one


def test_the_refusal_of_an_address_is_one_line(sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(FAILURES_MAX):
        sessions.log_in("192.0.2.7", "operator", "guess", DIGESTS)
    assert not sessions.may_try("192.0.2.7")
    assert [record.getMessage() for record in caplog.records] == [
        "refusing logins from 192.0.2.7 for up to a minute after 10 failures"
    ]


PROXIES = (ip_network("10.0.0.1"), ip_network("fd00::/64"))


@cases(
    "peer, forwarded, address",
    [
        ("192.0.2.7", "", "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),  # a stranger's claim
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.9, 198.51.100.1", "198.51.100.1"),  # a claim, and what the proxy saw
        ("10.0.0.1", "198.51.100.9,198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.9, 198.51.100.1, fd00::2", "198.51.100.1"),  # through two proxies
        ("fd00::2", "[2001:db8::1]:4711", "2001:db8::1"),
        ("fd00::2", "2001:DB8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "fd00::3,fd00::2", "fd00::3"),  # a proxy itself
        ("", "198.51.100.1", ""),
    ],
)
def test_the_address_behind_a_proxy(peer: str, forwarded: str, address: str) -> None:
    assert client_address(peer, forwarded, PROXIES) == address
    assert client_address(peer, forwarded, ()) == peer


def test_a_changed_or_removed_account_loses_its_sessions(sessions: Sessions) -> None:
    token = sessions.log_in("a", "operator", "operator-secret", DIGESTS)
    sessions.review(DIGESTS)
    assert sessions.find(token, is_use=True) is not None
    sessions.review({"operator": digest("another")})
    assert sessions.find(token, is_use=True) is None
