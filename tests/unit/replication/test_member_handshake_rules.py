"""Where a follower's stream begins: what a master answers, and what a follower makes of it."""

from __future__ import annotations

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.failover.rules.epochs import EpochList, Log
from rocketpy.replication.errors import Diverged, MasterReplaced, MasterUnusable, NeedsCut
from rocketpy.replication.frames import encode
from rocketpy.replication.handshake_messages import EPOCHS_MAX, Extent, Group, Hello, Membership, Refusal, Tail, Welcome
from rocketpy.replication.handshake_rules import TAIL_MAX, read_answer, start_for
from rocketpy.replication.member_handshake_rules import (
    Join,
    check_tail,
    check_welcome,
    join_for,
    joined,
    tail_below,
)
from rocketpy.replication.secret import Nonces
from tests.support.cases import cases
from tests.support.member_pair import epochs

GROUP = Group(cluster="c", broker_name="n", file_size=1024)
HISTORY = epochs((1, 0), (3, 500), (4, 900), (6, 900))
MASTER = Extent(0, 2000)
CHALLENGE, NONCE = "0" * 32, "1" * 32


def hello(end: int, found: EpochList, *, begin: int = 0, member: str = "b") -> Hello:
    log = Extent(begin, end)
    membership = Membership(member, "2e" if member else "", found)
    return Hello(2, "c", "n", 1, 1024, log, None, NONCE, "", membership)


def join(end: int, found: EpochList, *, begin: int = 0, own: Extent = MASTER, epoch: int | None = 6) -> Join | Refusal:
    return join_for(hello(end, found, begin=begin), GROUP, CHALLENGE, own, HISTORY, epoch)


@cases(
    "end, found, answer",
    [
        (0, epochs(), Join(0, None)),
        (700, epochs((1, 0), (3, 500)), Join(700, None)),
        (900, epochs((1, 0), (3, 500)), Join(900, None)),
        (1200, HISTORY, Join(1200, None)),
        (2000, HISTORY, Join(2000, None)),
        (2100, HISTORY, Join(2000, 2000)),  # the master has lost its end, and serves nevertheless
        (950, epochs((1, 0), (3, 500)), Join(900, 900)),  # epoch 3 went on elsewhere
        (950, epochs((1, 0), (3, 500), (5, 800)), Join(800, 800)),
        (950, epochs((1, 0), (3, 400)), Join(400, 400)),
        (900, epochs((1, 0), (3, 500), (4, 900)), Join(900, None)),
    ],
)
def test_what_a_master_answers(end: int, found: EpochList, answer: Join) -> None:
    assert join(end, found) == answer


def test_an_empty_member_gets_what_there_is() -> None:
    assert join(0, epochs(), own=Extent(1024, 2000)) == Join(1024, None)


@pytest.mark.parametrize(
    ("end", "found", "options", "code"),
    [
        (700, epochs(), {}, "diverged"),
        (700, epochs((1, 10)), {}, "diverged"),
        (700, epochs((1, 0), (3, 500)), {"own": Extent(1024, 2000)}, "behind"),
        (950, epochs((1, 0), (3, 400)), {"begin": 600}, "behind"),
        (700, epochs((1, 0), (3, 500)), {"epoch": None}, "later"),
        (700, epochs((1, 0), (7, 600)), {}, "later"),
    ],
)
def test_what_a_master_refuses(end: int, found: EpochList, options: dict[str, object], code: str) -> None:
    answer = join(end, found, **options)  # type: ignore[arg-type]
    assert isinstance(answer, Refusal) and answer.code == code


def test_both_sides_need_the_same_mode() -> None:
    answer = join_for(hello(0, epochs(), member=""), GROUP, CHALLENGE, MASTER, HISTORY, 6)
    assert isinstance(answer, Refusal) and answer.code == "mode"
    plain = start_for(hello(0, epochs()), GROUP, CHALLENGE, MASTER, lambda position, size: 0)
    assert isinstance(plain, Refusal) and plain.code == "mode"


def test_a_stranger_or_other_files_are_refused_first() -> None:
    other = attrs.evolve(hello(0, epochs()), cluster="x")
    answer = join_for(other, GROUP, CHALLENGE, MASTER, HISTORY, 6)
    assert isinstance(answer, Refusal) and answer.code == "group"
    answer = join_for(attrs.evolve(hello(0, epochs()), file_size=1), GROUP, CHALLENGE, MASTER, HISTORY, 6)
    assert isinstance(answer, Refusal) and answer.code == "fileSize"


# --- follower -------------------------------------------------------------------------------------------------------


def check(
    end: int, found: EpochList, start: int, truncate: int | None = None, *, confirmed: int = 0, **options: int
) -> EpochList:
    own = Log(epochs=found, end=end, confirmed=confirmed)
    welcome = Welcome(start, 2000, HISTORY, truncate)
    settings = {"newest_known": -1, "begin": 0} | options
    return check_welcome(welcome, own, settings["begin"], newest_known=settings["newest_known"], is_sync=True)


def test_a_follower_takes_over_the_epochs_up_to_its_end() -> None:
    assert check(0, epochs(), 0) == epochs((1, 0))
    assert check(700, epochs((1, 0), (3, 500)), 700) == epochs((1, 0), (3, 500))
    assert check(900, epochs((1, 0), (3, 500)), 900) == HISTORY
    assert check(1200, HISTORY, 1200) == HISTORY


def test_a_log_that_has_more_is_cut_first() -> None:
    with pytest.raises(NeedsCut) as raised:
        check(950, epochs((1, 0), (3, 500)), 900, 900)
    assert raised.value.position == 900


@pytest.mark.parametrize(
    ("end", "found", "confirmed", "begin", "same"),
    [
        (950, epochs((1, 0), (3, 500)), 901, 0, "is its master's up to 900 only"),  # what was confirmed
        (950, epochs((1, 10)), 0, 0, "has nothing in common with its master's"),
        (950, epochs((1, 0), (3, 400)), 0, 401, "up to 400 only"),  # before where this log begins
        (950, epochs((1, 0), (3, 400)), 0, 400, "up to 400 only"),  # or there: nothing would be left
    ],
)
def test_what_no_cut_can_mend(end: int, found: EpochList, confirmed: int, begin: int, same: str) -> None:
    with pytest.raises(Diverged, match=f"{same}, and is not cut there by itself; stop this member"):
        check(end, found, 900, 900, confirmed=confirmed, begin=begin)


@pytest.mark.parametrize(("start", "truncate"), [(800, 800), (950, None), (900, None), (1000, 900)])
def test_a_master_that_wants_something_else_is_not_believed(start: int, truncate: int | None) -> None:
    with pytest.raises(MasterUnusable, match="both logs are equal up to 900"):
        check(950, epochs((1, 0), (3, 500)), start, truncate)


def test_an_older_master_is_not_followed() -> None:
    with pytest.raises(MasterReplaced):
        check(0, epochs(), 0, newest_known=7)
    with pytest.raises(MasterReplaced):
        check(900, epochs((1, 0), (8, 500)), 500, 500)
    with pytest.raises(MasterUnusable, match="names no epoch"):
        check_welcome(Welcome(0, 0), Log(epochs=epochs(), end=0, confirmed=0), 0, newest_known=-1, is_sync=True)


def test_a_long_list_is_sent_from_its_newest_end() -> None:
    long = epochs(*((i, i * 10) for i in range(EPOCHS_MAX + 200)))
    frame = Welcome(0, 2000, long).encode(b"", Nonces(CHALLENGE, NONCE))
    welcome = read_answer(frame[4], frame[5:], GROUP, Nonces(CHALLENGE, NONCE), Extent(0, 0), is_member=True)
    assert len(welcome.epochs.entries) == EPOCHS_MAX and welcome.epochs.last == long.last
    assert joined(long.until(5000), welcome.epochs, 5000) == long.until(5000), "the older ones stay"


@cases(
    "wrong", [[[2, 0], [1, 5]], [[1, 5], [2, 0]], [[1]], [["1", 0]], [[1, -1]], [[2**31, 0]], [[1, 0]] * 1001, {}, None]
)
def test_a_list_of_epochs_that_is_none(wrong: object) -> None:
    said = Welcome(0, 5).fields | {"epochs": wrong, "proof": ""}
    frame = encode(3, said)
    with pytest.raises(MasterUnusable, match="epochs"):
        read_answer(frame[4], frame[5:], GROUP, Nonces(CHALLENGE, NONCE), Extent(0, 0), is_member=True)


# --- the bytes below the place where both go on -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "own", "other", "place"),
    [
        (900, Extent(0, 950), Extent(0, 2000), (0, 900)),
        (900, Extent(400, 950), Extent(0, 2000), (400, 500)),
        (900, Extent(0, 950), Extent(850, 2000), (850, 50)),
        (900, Extent(900, 950), Extent(0, 2000), None),
        (5 * TAIL_MAX, Extent(0, 6 * TAIL_MAX), Extent(0, 7 * TAIL_MAX), (4 * TAIL_MAX, TAIL_MAX)),
    ],
)
def test_which_bytes_both_compare(start: int, own: Extent, other: Extent, place: tuple[int, int] | None) -> None:
    assert tail_below(start, own, other) == place == tail_below(start, other, own)


OWN = Extent(0, 950)


def tail(found: Tail | None, *, own: Extent = OWN, crc: int = 7) -> None:
    asked = []

    def crc_of(position: int, size: int) -> int:
        asked.append((position, size))
        return crc

    check_tail(Welcome(900, 2000, HISTORY, 900, 0, found), own, crc_of)
    assert asked == ([(0, 900)] if found else [])


def test_equal_bytes_are_followed() -> None:
    tail(Tail(0, 7))
    tail(None, own=Extent(0, 0))
    tail(None, own=Extent(900, 950))


def test_other_bytes_of_the_same_epochs_have_diverged() -> None:
    with pytest.raises(Diverged, match="between 0 and 900, though both are of one history"):
        tail(Tail(0, 8))


@pytest.mark.parametrize("found", [None, Tail(1, 7), Tail(900, 7)])
def test_a_master_that_does_not_say_what_it_has_is_not_followed(found: Tail | None) -> None:
    with pytest.raises(MasterUnusable, match="does not say what its log has below 900"):
        tail(found)


def test_a_tail_that_nobody_needs_is_not_believed() -> None:
    with pytest.raises(MasterUnusable, match="does not say what its log has"):
        tail(Tail(0, 7), own=Extent(0, 0))
