"""Patterns of white lists. tests/interop/test_access_control.py compares many more with the official implementation."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.acl.addresses import AddressInvalid, AddressPattern, expanded
from tests.support.cases import cases

PARTS = st.integers(0, 255)
IPV4 = st.tuples(PARTS, PARTS, PARTS, PARTS)
IPV6 = st.integers(0, (1 << 128) - 1).map(ipaddress.IPv6Address)


@cases(
    "pattern, named, others",
    [
        ("", "", "0.0.0.0 10.0.0.1 ::1"),
        ("  ", "", "10.0.0.1"),
        ("*", "10.0.0.1 ::1", ""),
        ("*.*.*.*", "10.0.0.1 ::1", ""),
        ("*:*:*:*:*:*:*:*", "10.0.0.1 ::1", ""),
        ("10.0.0.1", "10.0.0.1 ::ffff:10.0.0.1", "10.0.0.2 110.0.0.1 10.0.0.11 ::1"),
        ("10.0.0.1,10.0.0.2,,::1", "10.0.0.1 10.0.0.2 ::1", "10.0.0.3"),
        ("192.168.0.{1,2,30}", "192.168.0.1 192.168.0.30", "192.168.0.3 192.168.1.1"),
        ("192.168.0.{}", "", "192.168.0.1"),
        (",", "", "192.168.0.1"),
        ("192.168.0.*", "192.168.0.0 192.168.0.255", "192.168.1.0 192.169.0.1 ::1"),
        ("192.168.1-5.*", "192.168.1.0 192.168.5.255", "192.168.0.1 192.168.6.1 192.167.3.1"),
        ("192.168.*.*", "192.168.0.0 192.168.255.255", "192.169.0.0"),
        ("192.*.1.1", "192.0.0.0 192.255.9.9", "191.0.1.1"),  # what stands behind the first * is not looked at
        ("192.1-2.3.4", "192.1.9.9 192.2.3.4", "192.3.3.4"),
        ("192.168.1-2-9.*", "192.168.2.1", "192.168.9.1"),  # only two numbers are looked at
        ("2001:DB8::1", "2001:db8::1 2001:db8:0:0:0:0:0:1", "2001:db8::2 10.0.0.1"),
        ("2001:db8::{1,a}", "2001:db8::1 2001:DB8::A", "2001:db8::b"),
        ("2001:db8:0:0:0:0:0:1-ff", "2001:db8::1 2001:db8:0::ff", "2001:db8::0 2001:db8::100 2001:db8::1:1"),
        ("2001::db8:1-ff", "2001::db8:1", "2001::db8:100 2001:1::db8:1"),
        ("fe80:0:0:0:0:0:1-2:*", "fe80::1:5 fe80::2:ffff", "fe80::3:5 fe80::5"),
        ("192.168.0-255.*", "192.168.255.255 192.168.0.0", "192.169.0.0"),
        ("255.255.0.1-1", "255.255.0.1", "255.255.0.2"),
        ("ffff:ffff::0-ffff", "ffff:ffff:0:1:: ffff:ffff::ffff", "ffff:fffe::"),
        ("1:2:3:4:5:6:7:*", "1:2:3:4:5:6:7:0 1:2:3:4:5:6:7:ffff", "1:2:3:4:5:6:8:0"),
        ("2001::*", "2001::1 2001:0:ffff::1", "2001:1::1"),  # the head is not filled up: 2001:0000:*
        ("1:*", "1:2::3 1:ffff::", "2::"),
        ("a:0-0:*", "a:0::1 a:ffff::", "b::"),
    ],
)
def test_examples(pattern: str, named: str, others: str) -> None:
    compiled = AddressPattern.of(pattern)
    assert [host for host in named.split() if not compiled.has(host)] == []
    assert [host for host in others.split() if compiled.has(host)] == []
    assert compiled.is_empty == (not named)


@cases(
    "pattern, text",
    [
        ("10.0.0", "Netaddress examine Exception netaddress is 10.0.0"),
        ("10.0.0.256", "Netaddress examine Exception netaddress is 10.0.0.256"),
        ("10.0.0.1, 10.0.0.2", "Netaddress examine Exception netaddress is  10.0.0.2"),
        ("10.0.0.{1,x}", "Netaddress examine Exception netaddress is 10.0.0.x"),
        ("10.0.0.1}", "MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress"),
        ("10.0.{1}", "MultipleRemoteAddressStrategy has got a/some wrong format IP(s) "),
        ("10.0.5-1.*", "RangeRemoteAddressStrategy netaddress examine scope Exception start is 5 , end is 1"),
        ("10.0.1-300.*", "RangeRemoteAddressStrategy netaddress examine scope Exception start is 1 , end is 300"),
        ("10.0.-5.*", "RangeRemoteAddressStrategy netaddress examine scope Exception value -5 "),
        ("10.*", "Netaddress examine scope Exception netaddress is 10.*"),
        ("256.1.1.*", "Netaddress examine scope Exception netaddress is 256.1.1.*"),
        ("10.0.0-256.*", "RangeRemoteAddressStrategy netaddress examine scope Exception start is 0 , end is 256"),
        ("1:0-10000:*", "RangeRemoteAddressStrategy netaddress examine scope Exception start is 0 , end is 65536"),
        ("12345:1:2:3:4:5:6:1-2", "Netaddress examine scope Exception netaddress is 12345:1:2:3:4:5:6:1-2"),
        ("10.0.a-b.*", "Netaddress examine scope Exception netaddress is "),
        ("10.0.1-.*", "Netaddress examine scope Exception netaddress is "),
        ("300.1.1.*", "Netaddress examine scope Exception netaddress is 300.1.1.*"),
        ("2001:*:1", "Netaddress examine scope Exception netaddress is 2001:*:1"),
        ("2001:1-2:1", "Netaddress examine scope Exception netaddress is 2001:1-2:1"),
        ("localhost", "Netaddress examine Exception netaddress is localhost"),
        # the reference loads these, and then finds nobody or fails at each request
        *((text, text) for text in ("*.1.1.1", "10.0.0.0-0", "::*", ":*", ":1-2:*", "1-2:*", "1:2:3:4:5:6:7:8:*")),
        *((text, text) for text in ("::1/128", "::ffff:1.2.3.4", "fe80::1%eth0")),
        *((text, "Netaddress examine scope Exception netaddress is ") for text in ("10.0.0.1_0-20", "10.0.0.1-²")),
    ],
)
def test_patterns_that_are_refused(pattern: str, text: str) -> None:
    with pytest.raises(AddressInvalid) as refused:
        AddressPattern.of(pattern)
    assert text in str(refused.value)


@given(IPV4, IPV4, st.integers(1, 3), PARTS, st.integers(1, 255))
def test_ranges_read_directly(written: tuple[int, ...], peer: tuple[int, ...], at: int, low: int, high: int) -> None:
    low = min(low, high)
    parts = [*map(str, written[:at]), f"{low}-{high}", *map(str, written[at + 1 :])]
    near = (*written[:at], *peer[at:])
    for host in (peer, near):
        expected = host[:at] == written[:at] and low <= host[at] <= high
        assert AddressPattern.of(".".join(parts)).has(".".join(map(str, host))) == expected


@given(st.lists(IPV6, min_size=1, max_size=4), IPV6)
def test_addresses_of_ipv6_in_any_form(named: list[ipaddress.IPv6Address], other: ipaddress.IPv6Address) -> None:
    pattern = AddressPattern.of(",".join(str(address) for address in named))
    for address in (*named, other):
        for form in (str(address), address.exploded, str(address).upper()):
            if "." not in form:
                assert pattern.has(form) == (address in named)
    assert expanded(str(other), 8) == other.exploded.upper()


@given(st.text(st.sampled_from("0123456789abf.:*-{}, %/"), max_size=24), st.sampled_from(["10.0.0.1", "::1", "1:2::3"]))
def test_any_text_is_a_pattern_or_refused(text: str, host: str) -> None:
    try:
        pattern = AddressPattern.of(text)
    except AddressInvalid:
        return
    assert pattern.has(host) in (True, False)
