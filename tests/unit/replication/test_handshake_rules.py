"""Decisions of the handshake that need no socket; those that do are in test_own_slaves.py and test_own_strangers.py."""

from __future__ import annotations

import json
import zlib
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.native.core import lib
from rocketpy.replication.errors import CannotFollow, Diverged, MasterUnusable
from rocketpy.replication.handshake_messages import Extent, Group, Hello, Refusal, Welcome
from rocketpy.replication.handshake_rules import encode_challenge, read_answer, read_challenge, start_for, tail_place
from rocketpy.replication.secret import Nonces
from rocketpy.replication.versions import OWN
from tests.support.cases import cases
from tests.support.own_frames import NONCE, hello_fields

GROUP = Group(cluster="DefaultCluster", broker_name="broker-a", file_size=65_536)


def test_what_a_slave_encodes_the_master_reads() -> None:
    said = Hello(2, GROUP.cluster, GROUP.broker_name, 7, GROUP.file_size, Extent(5, 5), None, NONCE)
    hello = Hello.read(said.encode(b"", NONCE)[5:])
    assert hello == said
    assert start_for(hello, GROUP, NONCE, Extent(0, 10), lambda *_: None) == 5


def test_a_log_that_cannot_be_read_now_is_compared_later() -> None:
    hello = Hello.read(json.dumps(hello_fields(b"abc")).encode())
    refusal = start_for(hello, GROUP, NONCE, Extent(0, 10), lambda *_: None)
    assert isinstance(refusal, Refusal) and refusal.code == "later"


@pytest.mark.parametrize(
    ("own", "master", "place"),
    [
        (Extent(0, 0), Extent(0, 100), None),
        (Extent(0, 50), Extent(0, 100), (0, 50)),
        (Extent(40, 50), Extent(0, 100), (40, 10)),
        (Extent(0, 50), Extent(50, 100), None),
        (Extent(0, 200_000), Extent(0, 300_000), (200_000 - 65_536, 65_536)),
    ],
)
def test_which_bytes_are_compared(own: Extent, master: Extent, place: tuple[int, int] | None) -> None:
    assert tail_place(own, master) == place


# --- the answers of a master ------------------------------------------------------------------------------------------

LOG = b"0123456789" * 10
SECRET = b"0123456789abcdef"
MASTER = Extent(0, 100)


def crc_of(position: int, size: int) -> int:
    return zlib.crc32(LOG[position : position + size])


def answer(group: Group = GROUP, own: Extent = MASTER, log: bytes = LOG[:50], **fields: Any) -> int | str:
    """The position where DATA begins, or the code of the refusal."""
    begin = fields.pop("begin", 0)
    hello = Hello.read(json.dumps(hello_fields(log, begin=begin) | fields).encode())
    found = start_for(hello, group, NONCE, own, crc_of)
    return found.code if isinstance(found, Refusal) else found


def test_where_data_begins() -> None:
    assert answer() == 50
    assert answer(log=LOG) == 100
    assert answer(log=b"") == 0
    assert answer(log=b"", own=Extent(20, 100)) == 20, "an empty slave gets what there is"
    assert answer(own=Extent(20, 100), tail={"begin": 20, "crc": crc_of(20, 30)}) == 50


@cases(
    "fields, code",
    [
        ({"proof": "ab"}, "secret"),
        ({"cluster": "other"}, "group"),
        ({"brokerName": "other"}, "group"),
        ({"member": "b"}, "mode"),
        ({"fileSize": 1}, "fileSize"),
        ({"end": 101, "tail": None}, "longer"),
        ({"tail": None}, "diverged"),
        ({"tail": {"begin": 50, "crc": 0}}, "diverged"),
        ({"tail": {"begin": 0, "crc": 0}}, "diverged"),
    ],
)
def test_a_slave_that_does_not_fit_gets_a_code(fields: dict[str, Any], code: str) -> None:
    assert answer(**fields) == code


@pytest.mark.parametrize("own", [Extent(50, 100), Extent(51, 100)])
def test_a_slave_that_ends_before_the_log_begins_has_nothing_to_compare(own: Extent) -> None:
    assert answer(own=own) == "behind"


def test_a_tail_reaches_back_no_further_than_is_compared() -> None:
    log = bytes(200_000)
    begin = len(log) - lib.RP_HA_TAIL_MAX
    for at, expected in ((begin, 200_000), (begin - 1, "diverged")):
        hello = Hello.read(json.dumps(hello_fields(log) | {"tail": {"begin": at, "crc": 7}}).encode())
        found = start_for(hello, GROUP, NONCE, Extent(0, 300_000), lambda *_: 7)
        assert (found.code if isinstance(found, Refusal) else found) == expected


def test_a_slave_without_the_secret_is_refused() -> None:
    assert answer(attrs.evolve(GROUP, secret=SECRET)) == "secret"


# --- what a slave reads -----------------------------------------------------------------------------------------------

NONCES = Nonces("1" * 32, "2" * 32)


def read(frame: bytes, *, end: int = 50, secret: bytes = b"", is_member: bool = False) -> Welcome:
    group = attrs.evolve(GROUP, secret=secret)
    return read_answer(frame[4], frame[5:], group, NONCES, Extent(0, end), is_member=is_member)


def test_a_challenge_is_a_frame_of_its_kind_with_a_nonce() -> None:
    frame = encode_challenge(NONCE)
    assert read_challenge(frame[4], frame[5:]) == (NONCE, OWN)
    for kind, body in ((lib.RP_HA_TYPE_WELCOME, frame[5:]), (frame[4], b"{}"), (frame[4], encode_challenge("x")[5:])):
        with pytest.raises(MasterUnusable):
            read_challenge(kind, body)


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_a_welcome_goes_on_where_the_log_ends(secret: bytes) -> None:
    welcome = Welcome(50, 100)
    assert read(welcome.encode(secret, NONCES), secret=secret) == welcome
    assert read(Welcome(100, 100).encode(b"", NONCES), end=100).start == 100
    assert read(Welcome(20, 100).encode(b"", NONCES), end=0).start == 20, "an empty slave takes what there is"


@pytest.mark.parametrize(
    "welcome", [Welcome(40, 100), Welcome(60, 100), Welcome(50, 49), Welcome(50, 100, truncate=40)]
)
def test_a_slave_without_failover_does_not_go_on_elsewhere(welcome: Welcome) -> None:
    with pytest.raises(CannotFollow, match=f"wants to begin at {welcome.start}, but the log of this slave ends at 50"):
        read(welcome.encode(b"", NONCES))
    assert read(welcome.encode(b"", NONCES), is_member=True) == welcome, "a member compares epochs"


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (encode_challenge(NONCE), "instead of WELCOME"),
        (Welcome(50, 100).encode(b"another secret!!", NONCES), "has not proved"),
        (Welcome(50, 100, version=2).encode(SECRET, NONCES), "answers in version 2 .* was asked in 3"),
        (Welcome(50, 100).encode(SECRET, NONCES)[:-2] + b",}", "a wrong frame"),
        (
            Refusal("group", "why").encode(b"another secret!!", NONCES),
            r"refused this slave \(group\): why; it has not proved",
        ),
        (Refusal("later", "why").encode(SECRET, NONCES), "cannot serve this slave now: why"),
    ],
)
def test_an_answer_after_which_another_try_may_succeed(frame: bytes, complaint: str) -> None:
    with pytest.raises(MasterUnusable, match=complaint):
        read(frame, secret=SECRET)


@pytest.mark.parametrize(("code", "kind"), [("longer", Diverged), ("diverged", Diverged), ("group", CannotFollow)])
def test_a_refusal_is_for_the_operator(code: str, kind: type[Exception]) -> None:
    with pytest.raises(CannotFollow, match=rf"refused this slave \({code}\): why") as raised:
        read(Refusal(code, "why").encode(SECRET, NONCES), secret=SECRET)
    assert type(raised.value) is kind
