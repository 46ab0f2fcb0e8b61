"""Host fields of records."""

import pytest

from rocketpy.errors import MessageInvalid, NumberInvalid
from rocketpy.message.host import format_host, pack_host, parse_host, unpack_host
from tests.support.cases import cases


@pytest.mark.parametrize(
    ("host", "packed", "text"),
    [
        (("127.0.0.1", 31911), "7f00000100007ca7", "127.0.0.1:31911"),
        (("::1", 1), "0" * 31 + "100000001", "[::1]:1"),
    ],
)
def test_both_families(host: tuple[str, int], packed: str, text: str) -> None:
    assert pack_host(host).hex() == packed
    assert unpack_host(bytes.fromhex(packed)) == host
    assert format_host(host) == text
    assert parse_host(text) == host


def test_mapped_address_is_ipv4() -> None:
    assert pack_host(("::ffff:10.0.0.1", 5)) == pack_host(("10.0.0.1", 5))


@pytest.mark.parametrize("host", [("localhost", 1), ("::zz", 1), ("10.0.0.1", 1 << 31)])
def test_what_is_no_numeric_host_is_refused(host: tuple[str, int]) -> None:
    with pytest.raises(MessageInvalid):
        pack_host(host)


@cases("text", ["", "h", "h:", "h:x", "h:65536", "h:-1", "h:\u0663", "h:" + "9" * 5000])
def test_an_address_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(NumberInvalid):
        parse_host(text)


@cases("text", ["broker-a", "10911", ""])
def test_a_text_without_a_colon_is_named_as_that(text: str) -> None:
    """Fault: `mqadmin producer -b broker-a` said `not a decimal integer`, and not that an address has a port."""
    with pytest.raises(NumberInvalid, match="not host:port"):
        parse_host(text)
