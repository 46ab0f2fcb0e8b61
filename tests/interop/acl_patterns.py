"""Patterns of white lists, most of them nearly right, and addresses near to what they name."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator, Sequence

import attrs

NUMBERS = ("0", "1", "2", "3", "10", "192", "255")
ODD_NUMBERS = (
    *("0", "1", "5", "255", "256", "01", "-1", "", "*", "1-5", "0-0", "5-1", "1-", "-", "1-2-3", " 1", "a", "+5"),
    *("*1", "1-*", "3-300", "{1}", "{1,2}", "{}"),
)
GROUPS = ("0", "1", "2", "a", "B", "ff", "db8", "2001", "ABCD", "ffff")
ODD_GROUPS = ("0", "1", "ABCD", "12345", "g", "*", "1-5", "a-ff", "0-0", "5-1", "-1", "1-", "", "1-2-3", "ffff-1ffff")
RANGES = ("*", "1-3", "0-255", "2-2", "0-0", "5-1", "a-ff", "B-1", "0-ffff")
SINGLE = (
    *("*", "*.*.*.*", "*:*:*:*:*:*:*:*", "", " ", ",", "}", "{", "*:*", "localhost", "10.0.0.0/8", "1.2.3.4}"),
    *("10.0.0.1,10.0.0.2", "10.0.0.1, 10.0.0.2", "10.0.0.1,,", "10.0.0.1,x", "::1,10.0.0.1", "::*", "::", "::1", "1::"),
    *("::1/128", "::ffff:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7::", "1:*", "*:1", "::ffff:1.2.3.*", "2001::1-5"),
    *("2001:*:1", "a:b.{1}", "::{1,2}", ":::", ":1-2:*"),
)


@attrs.frozen
class Sample:
    """A pattern and numeric addresses, as Java writes them."""

    pattern: str
    hosts: tuple[str, ...]


def samples(count: int, rng: random.Random) -> Iterator[Sample]:
    for _ in range(count):
        pattern = rng.choice((_ipv4, _ipv4, _ipv6, _ipv6, _single))(rng)
        hosts = [_host4(rng), _host6(rng), *(_near(pattern, rng) for _ in range(8))]
        yield Sample(pattern, tuple(hosts))


def _single(rng: random.Random) -> str:
    return rng.choice(SINGLE)


def _some(words: Sequence[str], count: int, rng: random.Random) -> list[str]:
    return [rng.choice(words) for _ in range(count)]


def _ipv4(rng: random.Random) -> str:
    kind = rng.choice(("address", "range", "range", "braces", "odd"))
    if kind == "odd":
        return ".".join(_some(ODD_NUMBERS, rng.choice((3, 4, 4, 5)), rng))
    parts = _some(NUMBERS, 4, rng)
    if kind == "range":
        for at in rng.sample(range(4), rng.randint(1, 3)):
            parts[at] = rng.choice(RANGES)
    if kind == "braces":
        parts = [*parts[: rng.choice((2, 3, 3, 4))], "{" + ",".join(_some(NUMBERS, rng.randint(0, 3), rng)) + "}"]
    return ".".join(parts)


def _ipv6(rng: random.Random) -> str:
    kind = rng.choice(("address", "range", "range", "both", "braces", "odd"))
    if kind == "odd":
        return ":".join(_some(ODD_GROUPS, rng.randint(2, 9), rng))
    parts = _some(GROUPS, rng.randint(1, 8), rng)
    if rng.random() < 0.5:
        parts[rng.randrange(len(parts))] = ""
    ends = {"address": [], "range": [rng.choice(RANGES)], "both": [rng.choice(RANGES), "*"]}
    ends["braces"] = ["{" + ",".join(_some(GROUPS, rng.randint(0, 3), rng)) + "}"]
    return ":".join([*parts, *ends[kind]])


def _host4(rng: random.Random) -> str:
    return ".".join(_some(NUMBERS, 4, rng))


def _host6(rng: random.Random) -> str:
    return _long(":".join(_some(GROUPS, 8, rng)))


def _long(address: str) -> str:
    return ":".join(f"{int(group, 16):x}" for group in ipaddress.IPv6Address(address).exploded.split(":"))


def _near(pattern: str, rng: random.Random) -> str:
    """An address with the parts of the pattern, as far as they are numbers, and here and there another one."""
    first = pattern.replace("{", "").replace("}", "").split(",")[0]
    if ":" not in first:
        parts = [part if part in NUMBERS else rng.choice(NUMBERS) for part in first.split(".")]
        return ".".join([*parts, *NUMBERS][:4])
    parts = [part if part in ("", *GROUPS) else rng.choice(GROUPS) for part in first.split(":")]
    try:
        host = _long(":".join(parts))
    except ValueError:
        host = _long(":".join([part or "0" for part in [*parts, *GROUPS]][:8]))
    return ":".join(rng.choice(GROUPS).lower() if rng.random() < 0.1 else group for group in host.split(":"))
