"""csrc/ipc/limits.c with a clock that the test moves: buckets, connections of several selectors, refused identities."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import ffi, lib

S = 1_000_000_000
A, B = "192.0.2.1", "192.0.2.2"


def host(text: str) -> Any:
    address = ipaddress.ip_address(text)
    return ffi.new("rp_host *", {"family": address.version, "address": address.packed.ljust(16, b"\0")})


@attrs.define(eq=False)
class Rig:
    limits: Any
    now_ns: int = 1000 * S

    @classmethod
    def of(cls, selectors: int = 2, seed: int = 7, **config: int) -> Rig:
        limits = lib.rp_limits_create([config], selectors, seed)
        assert limits != ffi.NULL
        return cls(limits)

    def join(self, address: str, selector: int = 0) -> int | None:
        """The row; None: the connection is refused."""
        row = ffi.new("uint32_t *")
        status = lib.rp_limits_join(self.limits, selector, host(address), self.now_ns, row)
        return int(row[0]) if status == lib.RP_OK else None

    def leave(self, row: int | None, selector: int = 0) -> None:
        lib.rp_limits_leave(self.limits, selector, row)

    def wait_s(self, row: int | None) -> float:
        until_ns = lib.rp_limits_wait(self.limits, row, self.now_ns)
        return (until_ns - self.now_ns) / S if until_ns else 0.0

    def spend(self, row: int | None, requests: int, size: int = 0) -> None:
        lib.rp_limits_spend(self.limits, row, requests, size, self.now_ns)

    def failed(self, address: str) -> int:
        return int(lib.rp_limits_failed(self.limits, host(address), self.now_ns))

    def take(self, account: bytes, size: int = 0) -> str:
        row = ffi.new("uint32_t *")
        text = lib.rp_limits_busy(self.limits, account, len(account), self.now_ns, row)
        if text != ffi.NULL:
            return str(ffi.string(text).decode())
        lib.rp_limits_take(self.limits, row[0], size, self.now_ns)
        return ""

    def counter(self, number: int) -> int:
        return int(lib.rp_limits_counter(self.limits, number))


# -- buckets


def test_an_address_may_send_what_its_rate_allows_in_one_second_then_waits_until_the_bucket_is_full() -> None:
    rig = Rig.of(address_requests=10)
    row, other = rig.join(A), rig.join(B)
    rig.spend(row, 10)
    assert rig.wait_s(row) == 0.0
    rig.spend(row, 5)
    assert rig.wait_s(row) == 1.5
    assert rig.wait_s(other) == 0.0
    rig.now_ns += 3 * S // 2
    assert rig.wait_s(row) == 0.0
    rig.spend(row, 10)
    assert rig.wait_s(row) == 0.0, "it has been filled, and not more than filled"
    rig.spend(row, 1)
    assert rig.wait_s(row) > 1.0


def test_bytes_have_a_bucket_of_their_own() -> None:
    rig = Rig.of(address_requests=1_000, address_bytes=1_000)
    row = rig.join(A)
    rig.spend(row, 1, 3_000)
    assert rig.wait_s(row) == 3.0
    rig.spend(row, 5_000)
    assert rig.wait_s(row) == pytest.approx(5.001)


def test_all_connections_of_an_address_in_all_selectors_have_one_bucket() -> None:
    rig = Rig.of(address_requests=10)
    rig.spend(rig.join(A, selector=0), 11)
    assert rig.wait_s(rig.join(A, selector=1)) > 1.0


def test_a_client_that_connects_again_finds_its_bucket_as_it_left_it() -> None:
    rig = Rig.of(address_requests=10)
    row = rig.join(A)
    rig.spend(row, 20)
    rig.leave(row)
    assert rig.wait_s(rig.join(A)) == 2.0


@pytest.mark.parametrize(
    ("address", "other", "is_one"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::1", "127.0.0.1", False),
        ("::1", "::2", True),
        ("0:0:0:1::", "::", True),
    ],
)
def test_ipv6_addresses_are_counted_by_their_network(address: str, other: str, is_one: bool) -> None:
    rig = Rig.of(address_connections=1)
    assert rig.join(address)
    assert (rig.join(other) is None) is is_one


def test_a_peer_without_an_address_is_not_limited() -> None:
    rig = Rig.of(address_connections=1)
    assert [rig.join("0.0.0.0") for _ in range(3)] == [0, 0, 0]
    assert rig.counter(lib.RP_LIMITS_UNTRACKED) == 0


# -- accounts


def test_an_account_is_refused_with_the_name_of_its_limit_and_is_let_in_again() -> None:
    rig = Rig.of(account_requests=2, account_bytes=1_000)
    assert [bool(rig.take(b"one")) for _ in range(4)] == [False, False, False, True]  # the third overdraws it
    assert "accountRequestsPerSecond" in rig.take(b"one")
    assert rig.take(b"two", 1_500) == ""
    assert "accountBytesPerSecond" in rig.take(b"two")
    assert rig.counter(lib.RP_LIMITS_BUSY) == 3
    rig.now_ns += S // 2
    assert [bool(rig.take(b"one")), bool(rig.take(b"one"))] == [False, True], "refused requests take nothing"


def test_accounts_without_limits_have_no_rows() -> None:
    rig = Rig.of(address_requests=1)
    assert not any(rig.take(b"one", 1 << 30) for _ in range(100))


# -- connections


def test_connections_of_all_selectors_count_together() -> None:
    rig = Rig.of(address_connections=2)
    first, second = rig.join(A, 0), rig.join(A, 1)
    assert first and second
    assert rig.join(A, 0) is None and rig.join(A, 1) is None
    assert rig.join(B, 0)
    rig.leave(second, 1)
    assert rig.join(A, 0)


def test_a_killed_selector_leaves_no_connections() -> None:
    rig = Rig.of(address_connections=3)
    lib.rp_limits_begin(rig.limits, 0, 1)
    lib.rp_limits_begin(rig.limits, 1, 1)
    assert rig.join(A, 0) and rig.join(A, 0) and rig.join(A, 1)
    assert rig.join(A, 1) is None
    lib.rp_limits_begin(rig.limits, 0, 2)
    assert rig.join(A, 1) and rig.join(A, 0)
    assert rig.join(A, 0) is None


# -- refused identities


def test_an_address_is_blocked_until_the_minute_from_its_first_refusal_is_over() -> None:
    rig = Rig.of(failures=3)
    row = rig.join(A)
    assert [rig.failed(A), rig.failed(A)] == [1, 2]
    assert not lib.rp_limits_is_blocked(rig.limits, row, rig.now_ns)
    rig.now_ns += 59 * S
    assert rig.failed(A) == 3
    assert lib.rp_limits_is_blocked(rig.limits, row, rig.now_ns)
    assert rig.join(A) is None and rig.join(B)
    assert rig.counter(lib.RP_LIMITS_BLOCKED) == 1
    rig.now_ns += S
    assert not lib.rp_limits_is_blocked(rig.limits, row, rig.now_ns)
    assert rig.join(A)
    assert rig.failed(A) == 1


# -- rows


def test_rows_of_idle_addresses_are_used_again_and_an_address_without_a_row_is_let_through() -> None:
    rig = Rig.of(address_connections=1, failures=2)
    rows = {}
    for number in range(4 * lib.RP_LIMITS_ADDRESSES):
        address = str(ipaddress.ip_address(0x0A000000 + number))
        rows[address] = rig.join(address)
    untracked = rig.counter(lib.RP_LIMITS_UNTRACKED)
    assert untracked == sum(row == 0 for row in rows.values())
    assert (
        len({row for row in rows.values() if row}) == lib.RP_LIMITS_ADDRESSES == 4 * lib.RP_LIMITS_ADDRESSES - untracked
    )
    outside = next(address for address, row in rows.items() if not row)
    assert rig.join(outside) == 0 and rig.join(outside) == 0
    kept = next(address for address, row in rows.items() if row)
    rig.failed(kept)
    for row in rows.values():
        if row:
            rig.leave(row)
    assert rig.join(outside) and rig.join(outside) is None
    assert rig.failed(kept) == 2, "its row was kept while its refusal counts"


def test_a_row_is_not_given_away_before_its_bucket_is_full() -> None:
    rig = Rig.of(address_requests=10)
    first = rig.join(A)
    rig.spend(first, 100)
    rig.leave(first)
    neighbours = [rig.join(str(ipaddress.ip_address(0x0A000000 + number))) for number in range(50_000)]
    assert first not in neighbours
    assert rig.wait_s(rig.join(A)) == 10.0


@pytest.mark.parametrize("address", ["64:ff9b::1", "2:1::1", "2001:db8::1", "ff::1"])
def test_an_address_has_a_row_of_its_own(address: str) -> None:
    """NAT64 has its addresses in 0000::/8, as the loopback address."""
    rig = Rig.of(address_connections=1)
    assert rig.join("::1") and rig.join("0.0.0.1") and rig.join(address)
    assert rig.join(address) is None and rig.join("::1") is None


def test_while_a_process_enters_a_key_another_one_takes_no_second_row() -> None:
    rig = Rig.of(address_connections=1)
    rig.leave(rig.join(A))
    words, key = ffi.cast("uint64_t *", rig.limits), 1 << 32 | int(ipaddress.ip_address(A))
    place = next(at for at in range(8 * lib.RP_LIMITS_ADDRESSES) if words[at] == key)
    words[place] = 1 << 48 | rig.now_ns // S  # claimed now
    assert rig.join(A) == 0 and lib.rp_limits_counter(rig.limits, lib.RP_LIMITS_UNTRACKED) == 1
    words[place] = key  # the process found it in use
    assert rig.join(A) and rig.join(A) is None


def test_a_row_that_a_killed_process_was_entering_is_taken_after_two_seconds() -> None:
    rig = Rig.of(address_connections=1)
    row = rig.join(A)
    rig.leave(row)
    words, key = ffi.cast("uint64_t *", rig.limits), 1 << 32 | int(ipaddress.ip_address(A))
    place = next(at for at in range(8 * lib.RP_LIMITS_ADDRESSES) if words[at] == key)
    words[place] = 1 << 48 | rig.now_ns // S  # claimed now
    rig.now_ns += 3 * S
    assert rig.join(A) == row and rig.join(A) is None
