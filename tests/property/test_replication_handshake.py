"""The handshake on the HA port, and what both sides make of anything that the other one may say; derandomised."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.failover.rules.epochs import Epoch, EpochList, Log, common_end
from rocketpy.native.core import lib
from rocketpy.replication.errors import CannotFollow, Diverged, MasterUnusable, NeedsCut
from rocketpy.replication.frames import FrameInvalid
from rocketpy.replication.handshake_messages import EPOCH_MAX, Extent, Group, Hello, Membership, Refusal, Tail, Welcome
from rocketpy.replication.handshake_rules import TAIL_MAX, encode_challenge, read_answer, read_challenge, start_for
from rocketpy.replication.member_handshake_rules import Join, check_tail, check_welcome, join_for
from rocketpy.replication.secret import Nonces
from tests.support.budget import budget

repeatable = settings(derandomize=True, deadline=None, max_examples=budget(20, 100), database=None)

SECRET, CHALLENGE, NONCE = b"0123456789abcdef", "0" * 32, "1" * 32
GROUP = Group(cluster="c", broker_name="n", file_size=1024, secret=SECRET)
NONCES = Nonces(CHALLENGE, NONCE)
HEAD = 5  # bytes of a frame before its body
POSITION = st.integers(0, 3000) | st.integers(0, 2**63 - 1)
CRC = st.integers(0, 2**32 - 1)
TEXT = st.sampled_from(["", "a", "b", "x" * 300, "\u2028\n", "\ud800"])
TAILS = st.none() | st.builds(Tail, POSITION, CRC)


@st.composite
def epoch_lists(draw: st.DrawFn) -> EpochList:
    numbers = sorted(draw(st.sets(st.integers(0, 9) | st.just(EPOCH_MAX), max_size=5)))
    starts = sorted(draw(st.lists(POSITION, min_size=len(numbers), max_size=len(numbers))))
    return EpochList(tuple(Epoch(*pair) for pair in zip(numbers, starts, strict=True)))


HELLOS = st.builds(
    Hello,
    st.just(2),
    st.just("c"),
    st.just("n"),
    POSITION,
    st.sampled_from([1024, 1, 2**62]),
    st.builds(Extent, POSITION, POSITION),
    TAILS,
    st.just(NONCE),
    st.just(""),
    st.builds(Membership, TEXT, TEXT, epoch_lists()),
)
WELCOMES = st.builds(Welcome, POSITION, POSITION, epoch_lists(), st.none() | POSITION, POSITION, TAILS)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=6,
)


def said(hello: Hello) -> Hello:
    return Hello.read(hello.encode(SECRET, CHALLENGE)[HEAD:])


@repeatable
@given(HELLOS)
def test_a_hello_is_read_as_it_was_said(hello: Hello) -> None:
    assume("\ud800" not in (hello.membership.member, hello.membership.incarnation))  # it is read as another character
    read = said(hello)
    assert attrs.evolve(read, proof="") == hello and read.is_proved(SECRET, CHALLENGE)
    assert not read.is_proved(SECRET, NONCE) and not read.is_proved(b"f" * 16, CHALLENGE)


@repeatable
@given(HELLOS, HELLOS)
def test_a_proof_fits_no_other_hello(one: Hello, other: Hello) -> None:
    proof = said(one).proof
    assert attrs.evolve(other, proof=proof).is_proved(SECRET, CHALLENGE) == (one == other)


@repeatable
@given(WELCOMES, WELCOMES)
def test_a_proof_fits_no_other_welcome(one: Welcome, other: Welcome) -> None:
    fields = one.fields | {"proof": json.loads(other.encode(SECRET, NONCES)[HEAD:])["proof"]}
    body, log = json.dumps(fields).encode(), Extent(0, 0)
    if one == other:
        assert read_answer(lib.RP_HA_TYPE_WELCOME, body, GROUP, NONCES, log, is_member=True) == one
        return
    with pytest.raises(MasterUnusable, match="not proved"):
        read_answer(lib.RP_HA_TYPE_WELCOME, body, GROUP, NONCES, log, is_member=True)


# --- what is no frame -------------------------------------------------------------------------------------------------


FULL = [
    (lib.RP_HA_TYPE_CHALLENGE, encode_challenge(CHALLENGE)),
    (lib.RP_HA_TYPE_HELLO, Hello(2, "c", "n", 1, 1024, Extent(0, 9), Tail(0, 7), NONCE).encode(SECRET, CHALLENGE)),
    (lib.RP_HA_TYPE_WELCOME, Welcome(0, 9, tail=Tail(0, 7)).encode(SECRET, NONCES)),
    (lib.RP_HA_TYPE_REFUSE, Refusal("diverged", "it differs").encode(SECRET, NONCES)),
]


def take(kind: int, body: bytes) -> None:
    """What the side that gets such a frame does with it."""
    if kind == lib.RP_HA_TYPE_CHALLENGE:
        read_challenge(kind, body)
    elif kind == lib.RP_HA_TYPE_HELLO:
        Hello.read(body)
    else:
        read_answer(kind, body, GROUP, NONCES, Extent(0, 9), is_member=False)


@pytest.mark.parametrize(("kind", "frame"), FULL, ids=["challenge", "hello", "welcome", "refuse"])
def test_a_frame_that_is_cut_at_any_byte_says_nothing(kind: int, frame: bytes) -> None:
    for end in range(HEAD, len(frame)):
        with pytest.raises((FrameInvalid, MasterUnusable)):
            take(kind, frame[HEAD:end])


@pytest.mark.parametrize(("kind", "frame"), FULL, ids=["challenge", "hello", "welcome", "refuse"])
def test_a_frame_with_any_byte_changed_stops_nobody_for_good(kind: int, frame: bytes) -> None:
    for at in range(HEAD, len(frame)):
        for byte in {0, 0x22, 0x2C, 0x30, 0x7D, 0xFF, frame[at] ^ 1} - {frame[at]}:
            with contextlib.suppress(FrameInvalid, MasterUnusable):
                take(kind, frame[HEAD:at] + bytes([byte]) + frame[at + 1 :])


@repeatable
@given(st.sampled_from([kind for kind, _ in FULL]), st.binary(max_size=40) | JSON.map(lambda v: json.dumps(v).encode()))
def test_what_is_no_frame_of_its_kind(kind: int, body: bytes) -> None:
    with pytest.raises((FrameInvalid, MasterUnusable)):
        take(kind, body)


NAMES = st.sampled_from(sorted({*Welcome(0, 9).fields, *Hello.read(FULL[1][1][HEAD:]).fields, "proof"}))


@repeatable
@given(NAMES, JSON, st.booleans())
def test_a_field_of_another_kind(name: str, value: Any, is_hello: bool) -> None:
    kind, frame = FULL[1] if is_hello else FULL[2]
    fields = json.loads(frame[HEAD:])
    body = json.dumps(fields | {name: value}).encode()
    assume(name in fields and fields[name] != value)
    with contextlib.suppress(FrameInvalid, MasterUnusable):
        take(kind, body)


# --- what a lying slave and a lying master can do ---------------------------------------------------------------------


@repeatable
@given(HELLOS, epoch_lists(), POSITION, POSITION, st.none() | st.integers(0, 9))
def test_a_master_answers_any_hello(hello: Hello, listed: EpochList, begin: int, end: int, epoch: int | None) -> None:
    assume(begin <= end)
    hello, own = said(hello), Extent(begin, end)
    answer = join_for(hello, GROUP, CHALLENGE, own, listed, epoch)
    if isinstance(answer, Join):
        assert own.begin <= answer.start <= own.end and answer.truncate in (None, answer.start)
    plain = said(attrs.evolve(hello, membership=Membership()))
    start = start_for(plain, GROUP, CHALLENGE, own, lambda at, size: size if size <= TAIL_MAX else 1 // 0)
    assert isinstance(start, Refusal) or own.begin <= start <= own.end


@repeatable
@given(WELCOMES, epoch_lists(), st.tuples(POSITION, POSITION, POSITION).map(sorted), st.booleans())
def test_no_welcome_has_a_member_cut_what_was_confirmed(
    welcome: Welcome, listed: EpochList, positions: list[int], is_sync: bool
) -> None:
    """Nor below its beginning, nor anywhere but where the epochs part."""
    begin, confirmed, end = positions
    own = Log(epochs=listed, end=end, confirmed=confirmed)
    try:
        check_welcome(welcome, own, begin, newest_known=-1, is_sync=is_sync)
        position = end
    except NeedsCut as exc:
        position = exc.position
        assert begin < position < end or position == begin == 0
        assert position == common_end(listed, end, welcome.epochs, welcome.master_end)
        assert position >= confirmed or not is_sync
    except (CannotFollow, MasterUnusable):
        return
    assert welcome.start == position or end == 0


@repeatable
@given(WELCOMES, POSITION, POSITION, CRC)
def test_a_tail_that_is_not_where_it_must_be_is_not_followed(welcome: Welcome, begin: int, end: int, crc: int) -> None:
    assume(begin <= end)
    asked = []

    def crc_of(position: int, size: int) -> int:
        asked.append((position, size))
        return crc

    try:
        check_tail(welcome, Extent(begin, end), crc_of)
    except Diverged:
        assert welcome.tail is not None and welcome.tail.crc != crc
    except MasterUnusable:
        assert not asked
        return
    for position, size in asked:
        assert begin <= position and position + size == welcome.start and 0 < size <= TAIL_MAX
