"""What a master with automatic failover answers to the HELLO of a member, field by field."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.handshake_messages import NO_EPOCHS, Extent, Membership
from tests.support.member_pair import IMAGE, A, B, MemberMaster, epochs
from tests.support.own_frames import REFUSE, WELCOME
from tests.support.slave_rig import FILE_SIZE
from tests.support.waiting import wait_until
from tests.unit.replication.test_member_strangers import SECRET, Played

LOG, END = IMAGE.data, len(IMAGE.data)
FIRST, SECOND, LATER = IMAGE.records[5], IMAGE.records[16], IMAGE.records[20]
EPOCHS = epochs((1, 0), (3, FIRST), (7, SECOND))
Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MemberMaster]:
    master = MemberMaster(tmp_path / "a", EPOCHS, LOG, secret=SECRET)
    yield master
    master.close()


@pytest.fixture
def ask(master: MemberMaster) -> Iterator[Ask]:
    """Returns the answer to a HELLO of member b. The connection stays open."""
    with contextlib.ExitStack() as opened:

        def one(log: Extent, listed: Any = NO_EPOCHS, name: tuple[str, str] = B) -> tuple[int, dict[str, Any]]:
            played = opened.enter_context(contextlib.closing(Played(master)))
            played.socket.sendall(played.hello(log=log, membership=Membership(*name, listed)))
            kind, payload = played.next()
            if kind == REFUSE:
                assert played.is_closed()
            return kind, json.loads(payload)

        yield one


def check_closed(master: MemberMaster, reason: str) -> None:
    wait_until(lambda: master.table.closed()[reason] == 1, "the master to count a connection")
    assert sum(master.table.closed().values()) == 1 and not master.table.sent_bytes


@pytest.mark.parametrize(
    ("log", "begin"),
    [
        (Extent(0, SECOND), 0),
        (Extent(SECOND - 100, SECOND), SECOND - 100),
        (Extent(SECOND, SECOND), None),
        (Extent(0, 0), None),
    ],
    ids=["long", "short", "begins there", "empty"],
)
def test_a_welcome_names_the_bytes_below_its_start_that_both_have(ask: Ask, log: Extent, begin: int | None) -> None:
    kind, welcome = ask(log, EPOCHS.until(log.end))
    assert (kind, welcome["start"], welcome["truncate"]) == (WELCOME, log.end, None)
    expected = None if begin is None else {"begin": begin, "crc": zlib.crc32(LOG[begin:SECOND])}
    assert welcome["tail"] == expected
    assert (welcome["begin"], welcome["end"], welcome["epochs"]) == (0, END, [[1, 0], [3, FIRST], [7, SECOND]])


def test_a_log_that_has_to_be_cut_is_compared_below_the_cut(ask: Ask, master: MemberMaster) -> None:
    kind, welcome = ask(Extent(0, LATER), epochs((1, 0), (3, FIRST), (5, SECOND)))
    assert (kind, welcome["start"], welcome["truncate"]) == (WELCOME, SECOND, SECOND)
    assert welcome["tail"] == {"begin": 0, "crc": zlib.crc32(LOG[:SECOND])}
    check_closed(master, "diverged")


def test_a_master_that_cannot_read_its_log_refuses_for_now(ask: Ask, master: MemberMaster, tmp_path: Path) -> None:
    (tmp_path / "a" / "commitlog" / f"{0:020d}").unlink()
    kind, refusal = ask(Extent(0, SECOND), EPOCHS.until(SECOND))
    assert (kind, refusal["code"]) == (REFUSE, "later") and "from 0 on" in refusal["reason"]
    check_closed(master, "failed")


def test_a_log_whose_first_records_are_gone_is_served_from_the_begin_of_their_file(
    ask: Ask, master: MemberMaster
) -> None:
    master.control.header.min_phy_offset = FILE_SIZE + 7
    kind, welcome = ask(Extent(0, 0))
    assert (kind, welcome["begin"], welcome["start"], welcome["tail"]) == (WELCOME, FILE_SIZE, FILE_SIZE, None)


@pytest.mark.parametrize("name", [("b" * 256, B[1]), (B[0], "2" * 64), ("b\0c", B[1])], ids=["name", "store", "zero"])
def test_a_name_that_does_not_fit_is_refused(ask: Ask, master: MemberMaster, name: tuple[str, str]) -> None:
    """Acknowledgements of a name that was cut short could count for another member."""
    kind, refusal = ask(Extent(0, 0), name=name)
    assert (kind, refusal["code"]) == (REFUSE, "version") and "does not fit" in refusal["reason"]
    check_closed(master, "stranger")


def test_the_longest_name_is_served(ask: Ask) -> None:
    assert ask(Extent(0, 0), name=("b" * 255, "2" * 63))[0] == WELCOME


@pytest.mark.parametrize(("theirs", "seen"), [(3, -1), (7, -1), (8, 8)])
def test_a_master_notes_the_epoch_of_a_newer_log_only(ask: Ask, master: MemberMaster, theirs: int, seen: int) -> None:
    ask(Extent(0, SECOND), epochs((1, 0), (theirs, FIRST)))
    assert master.block.newest_epoch_seen == seen


def test_a_stranger_names_no_epoch(master: MemberMaster) -> None:
    """It could end the rule of a master that does not reach etcd."""
    with contextlib.closing(Played(master)) as played:
        newer = Membership(*B, epochs((1, 0), (8, FIRST)))
        played.socket.sendall(played.hello(cluster="Other", membership=newer))
        kind, payload = played.next()
        assert (kind, json.loads(payload)["code"]) == (REFUSE, "group") and played.is_closed()
    check_closed(master, "stranger")
    assert master.block.newest_epoch_seen == -1


def test_a_master_whose_epoch_is_not_open_answers_later_and_notes_nothing(ask: Ask, master: MemberMaster) -> None:
    master.block.opened_epoch = -1
    for _ in range(2):
        kind, refusal = ask(Extent(0, SECOND), epochs((1, 0), (8, FIRST)))
        assert (kind, refusal["code"]) == (REFUSE, "later")
    assert master.block.newest_epoch_seen == -1
    master.block.opened_epoch = 7
    assert ask(Extent(0, 0))[0] == WELCOME


def test_a_master_that_may_not_send_any_more_still_notes_a_newer_epoch(ask: Ask, master: MemberMaster) -> None:
    assert ask(Extent(0, 0))[0] == WELCOME
    master.serve(A, B, sends_stream=False)
    assert ask(Extent(0, SECOND), epochs((1, 0), (8, FIRST)))[1]["code"] == "later"
    assert master.block.newest_epoch_seen == 8
