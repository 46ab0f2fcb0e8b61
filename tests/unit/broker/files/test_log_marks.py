"""Marks of progress: the log decides which of them holds."""

from __future__ import annotations

import random

import pytest

from rocketpy.broker.files.log_marks import (
    AWAITED_MAX,
    MARKS_MAX,
    AwaitedMarks,
    LogExtent,
    LogMarks,
    presumed_by,
    presumed_fields,
)
from rocketpy.remoting.bodies.offset import LogMark, MarkedOffsets
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import loads
from tests.support.cases import cases


def mark(phy_offset: int, progress: int, epoch: int = -1) -> LogMark:
    return LogMark(phy_offset=phy_offset, epoch=epoch, offset_table={1: progress})


def test_a_log_has_what_ends_in_it_and_in_its_epoch() -> None:
    plain, member = LogExtent(100), LogExtent(100, {2: 40, 5: 100})
    assert plain.has(mark(100, 1)) and not plain.has(mark(101, 1)) and plain.has(mark(100, 1, epoch=7))
    assert member.has(mark(40, 1, epoch=2)) and not member.has(mark(41, 1, epoch=2))
    assert member.has(mark(100, 1, epoch=5)) and not member.has(mark(10, 1, epoch=3)), "no such epoch in this log"
    assert member.has(mark(90, 1)), "from before the group"
    assert not LogExtent(100, {0: 40, 1: 100}).has(mark(41, 1, epoch=0)), "epochs count from 0"
    assert plain.has(LogMark()) and member.has(LogMark(epoch=3)), "of a Java broker: no position"


def test_an_unchanged_table_keeps_its_older_position() -> None:
    marks = LogMarks()
    for phy_offset, progress in ((10, 1), (20, 1), (30, 2), (30, 3)):
        marks.add(mark(phy_offset, progress))
    assert marks.until(29) == mark(10, 1) and marks.newest == mark(30, 3) and len(marks) == 2
    assert marks.until(9) is None


def test_marks_are_few_and_lie_closer_together_towards_the_end() -> None:
    marks = LogMarks()
    for progress in range(1000):
        marks.add(mark(progress * 100, progress))
    assert len(marks) == MARKS_MAX and marks.until(0) == mark(0, 0)
    for lost in (1, 10, 100, 800):  # entries of 100 bytes that the log loses
        held = marks.until((999 - lost) * 100)
        assert held is not None
        assert 999 - held.offset_table[1] <= 3 * lost, "what a cut takes is lowered threefold at most"


@cases("seed", range(30))
def test_a_file_read_back_with_any_log_gives_a_table_that_the_log_has(seed: int) -> None:
    """The property: never more than what was true at the end of the log, and all of it if nothing was lost."""
    choose = random.Random(seed)
    marks, truth, at = LogMarks(), [(0, 0)], 0
    for progress in range(1, choose.randrange(2, 200)):
        at += choose.choice((0, 1, 50, 5000))
        truth.append((at, progress))
        if choose.random() < 0.7:
            marks.add(mark(at, progress))
        if choose.random() < 0.1:  # saved and loaded
            marks = LogMarks.of(MarkedOffsets.from_json(loads(marks.to_save(choose.randrange(at + 1)).encode())))
    newest = marks.newest
    end = choose.randrange(at + 1)
    marks.keep(LogExtent(end))
    held = marks.newest
    assert held is None or held.offset_table.get(1, 0) <= max(progress for at, progress in truth if at <= end)
    if newest is not None and newest.phy_offset <= end:
        assert held == newest


def test_the_table_of_the_file_itself_is_one_that_the_disk_has_the_log_for() -> None:
    marks = LogMarks([mark(10, 1), mark(20, 2), mark(30, 3)])
    saved = marks.to_save(25)
    assert (saved.offset_table, saved.phy_offset) == ({1: 2}, 20) and saved.marks == [mark(10, 1), mark(30, 3)]
    assert LogMarks.of(saved).newest == mark(30, 3)
    assert marks.to_save(5).offset_table == {}


def test_an_edited_table_counts_with_the_position_that_it_stands_beside() -> None:
    saved = LogMarks([mark(10, 1), mark(30, 3)]).to_save(30)
    saved.offset_table = {1: 0}
    assert LogMarks.of(saved).newest == mark(30, 0)
    assert LogMarks.of(MarkedOffsets(offset_table={1: 4})).newest == LogMark(offset_table={1: 4})
    assert LogMarks.of(None).newest is None


def test_a_slave_takes_a_mark_when_its_log_is_there() -> None:
    awaited = AwaitedMarks()
    for phy_offset, progress in ((10, 1), (20, 2), (25, 2), (30, 3)):
        awaited.put(mark(phy_offset, progress))
    assert awaited.take(9) is None
    assert awaited.take(29) == mark(20, 2)
    assert awaited.take(29) is None and awaited.take(30) == mark(30, 3)


def test_what_waits_is_bounded_and_the_newest_replaces_the_one_before() -> None:
    awaited = AwaitedMarks()
    for number in range(100):
        awaited.put(mark(number, number))
    assert awaited.take(AWAITED_MAX - 2) == mark(AWAITED_MAX - 2, AWAITED_MAX - 2)
    assert awaited.take(98) is None and awaited.take(99) == mark(99, 99)
    awaited.put(mark(100, 100))
    awaited.clear()
    assert awaited.take(1000) is None


@pytest.mark.parametrize(
    ("fields", "presumed"),
    [
        (presumed_fields(mark(700, 1, epoch=3)), LogMark(phy_offset=700, epoch=3)),
        (presumed_fields(mark(0, 1)), LogMark(phy_offset=0)),
        (presumed_fields(LogMark()), None),
        ({}, None),  # a master of the reference
        (None, None),
    ],
)
def test_an_answer_says_what_its_table_presumes(fields: dict[str, str] | None, presumed: LogMark | None) -> None:
    answer = RemotingCommand(code=0)
    answer.ext_fields = fields
    assert presumed_by(answer) == presumed
