"""Patterns of white lists: which peers need no signature.

    (empty)                        nobody
    *   *.*.*.*   *:*:*:*:*:*:*:*  everybody
    10.0.0.1                       this address
    10.0.0.1,10.0.0.2              these, without blanks
    10.0.0.{1,2,3}                 the same last part; also of IPv6
    10.0.*.*   10.0.1-5.*          the first * or range from the second part on is looked at: what stands before it must
                                   be equal, what stands behind it is not looked at
    2001:db8:0:0:0:0:0:1-ff        of IPv6, only the last part, or the last but one before a final *

As in the reference IPv6 is compared as text of eight groups of four digits, and what stands before a * or range is
filled up only if it has a `::` of its own: `2001::*` is 2001:0000:*, which is more than it seems to be.

Source: RocketMQ 4.9 `RemoteAddressStrategyFactory`, `AclUtils`. Different: a pattern by which the reference would fail
at each request (`*.1.1.1`, `10.0.0.0-0`) is refused, and so are forms of IPv6 that name no peer there (`::1/128`).
"""

from __future__ import annotations

import ipaddress
import re
from typing import NoReturn

import attrs

from rocketpy.errors import RocketError

ANYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
BLANKS = "".join(map(chr, range(0x21)))  # what Java's trim takes away
GROUPS = 8  # of an IPv6 address
_MAPPED = "::ffff:"  # an IPv4 address at a socket for both


class AddressInvalid(RocketError):
    """A pattern that names no addresses, in the words of the reference."""


@attrs.frozen
class _Range:
    """Numbers of one part of an address, behind parts that must be equal."""

    head: tuple[str, ...]
    low: int
    high: int
    is_ipv6: bool

    def has(self, parts: list[str], is_ipv6: bool) -> bool:
        at = len(self.head)
        if is_ipv6 != self.is_ipv6 or tuple(parts[:at]) != self.head:
            return False
        return self.low <= int(parts[at], 16 if is_ipv6 else 10) <= self.high


@attrs.frozen
class AddressPattern:
    """A compiled pattern."""

    text: str
    _everybody: bool = attrs.field(default=False, repr=False)
    _addresses: frozenset[str] = attrs.field(default=frozenset(), repr=False)
    _range: _Range | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, text: str) -> AddressPattern:
        """Compile a pattern.

        Raises:
            AddressInvalid: it names no addresses.
        """
        if not text.strip():
            return NOBODY
        if text in ANYBODY:
            return cls(text, everybody=True)
        if text.endswith("}"):
            return cls(text, addresses=_known(_braces(text)))
        if "," in text:
            return cls(text, addresses=_known(_split(text, ",")))
        if "*" in text or "-" in text:
            return cls(text, range=_ipv6_range(text) if ":" in text else _ipv4_range(text))
        return cls(text, addresses=_known([text]))

    @property
    def is_empty(self) -> bool:
        return not (self._everybody or self._addresses or self._range)

    def has(self, host: str) -> bool:
        """Return True if the pattern names a peer of this numeric address."""
        if self._everybody:
            return True
        if self.is_empty:
            return False
        is_ipv6 = ":" in host
        if is_ipv6 and host.lower().startswith(_MAPPED) and "." in host:
            host, is_ipv6 = host[len(_MAPPED) :], False
        if is_ipv6:
            host = expanded(host.partition("%")[0], GROUPS)
        if self._range is not None:
            return self._range.has(host.split(":" if is_ipv6 else "."), is_ipv6)
        return host in self._addresses


NOBODY = AddressPattern("")


def expanded(text: str, groups: int) -> str:
    """Fill up `text` to so many groups of four upper-case digits. What has no `::` keeps the groups that it has."""
    text = text.upper()
    missing = groups - text.count(":")
    if missing > 0:
        text = text.replace("::", ":" * (missing + 1))
    return ":".join(group.rjust(4, "0") for group in text.split(":"))


def _split(text: str, separator: str) -> list[str]:
    """The pieces that are not empty, as commons-lang splits."""
    return list(filter(None, text.split(separator)))


def _known(addresses: list[str]) -> frozenset[str]:
    """Whole addresses, as they are compared."""
    for address in addresses:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            _refuse(f"Netaddress examine Exception netaddress is {address}")
        if parsed.version == 6 and ("." in address or "%" in address):
            _refuse(f"Netaddress examine Exception netaddress is {address}")
    return frozenset(expanded(address, GROUPS) if ":" in address else address for address in addresses)


def _braces(text: str) -> list[str]:
    parts = _split(text, ":" if ":" in text else ".")
    if ":" not in text and len(parts) < 4:
        _refuse("MultipleRemoteAddressStrategy has got a/some wrong format IP(s) ")
    if not parts[-1].startswith("{"):
        _refuse("MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress")
    return [text[: text.index("{")] + end for end in _split(parts[-1][1:-1], ",")]


def _ipv4_range(text: str) -> _Range:
    parts = [part.strip(BLANKS) for part in _split(text, ".")]
    for at in range(1, len(parts)):
        bounds = _bounds(parts[at], 255, 10)
        if bounds is None:
            continue
        if len(parts) != 4 or any(not 0 <= _number(part, 10, text) <= 255 for part in parts[: at - 1]):
            _refuse_scope(text)
        return _Range(tuple(parts[:at]), *bounds, is_ipv6=False)
    _refuse_scope(text)


def _ipv6_range(text: str) -> _Range:
    star, minus = text.find("*"), text.find("-")
    if star not in (-1, len(text) - 1):
        _refuse_scope(text)
    last = text.rfind(":")
    if minus != -1 and minus <= (last if star == -1 else text.rfind(":", 0, last)):
        _refuse_scope(text)
    for at, part in enumerate(_split(text, ":")[1:], 1):
        bounds = _bounds(part.strip(BLANKS), 0xFFFF, 16)
        if bounds is None:
            continue
        for group in expanded(text, GROUPS).split(":")[: at - 1]:
            if not 0 <= _number(group, 16, text) <= 0xFFFF:
                _refuse_scope(text)
        ends = 2 if star != -1 and minus != -1 else 1
        head = text.rsplit(":", ends)[0]
        groups = expanded(head, GROUPS - ends).split(":")
        if not head or text.count(":") < ends or len(groups) >= GROUPS:
            _refuse_scope(text)
        return _Range(tuple(groups), *bounds, is_ipv6=True)
    _refuse_scope(text)


def _bounds(part: str, largest: int, base: int) -> tuple[int, int] | None:
    """The numbers that a part names, None if it is a plain one."""
    if part == "*":
        return 0, largest
    if "-" not in part:
        return None
    if part.startswith("-"):
        _refuse(f"RangeRemoteAddressStrategy netaddress examine scope Exception value {part} ")
    ends = _split(part, "-")
    if len(ends) < 2:
        _refuse_scope(part)
    low, high = (_number(end, base, part) for end in ends[:2])
    if not 0 <= low <= high <= largest:
        _refuse(f"RangeRemoteAddressStrategy netaddress examine scope Exception start is {low} , end is {high}")
    return (low, high) if high > 0 else None


def _number(text: str, base: int, pattern: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9a-fA-F]{1,8}" if base == 16 else r"[+-]?[0-9]{1,9}", text):
        _refuse_scope(pattern)
    return int(text, base)


def _refuse_scope(text: str) -> NoReturn:
    _refuse(f"Netaddress examine scope Exception netaddress is {text}")


def _refuse(reason: str) -> NoReturn:
    raise AddressInvalid(reason)
