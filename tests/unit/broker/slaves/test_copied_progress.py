"""A slave takes tables that presume messages as far as its own log goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.remoting.bodies.offset import LogMark
from tests.support.copied_tables import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_an_offset_is_taken_as_far_as_its_queue_goes_here(pair: Pair) -> None:
    """The log is behind the table: a new master gives the offsets of messages that it lacks to other messages.
    Fault: After a power failure or failover, committed offsets lay beyond the queues and groups skipped messages."""
    master, slave, queues = pair.master.services.offsets, pair.slave.services.offsets, pair.slave.store
    master.commit("G", "T", 0, 7)
    master.commit("G", "New", 0, 3)
    queues.fill("T", 0, 4)
    pair.run()
    assert slave.query("G", "T", 0) == 4 and slave.query("G", "New", 0) == 0
    queues.fill("T", 0, 6)
    pair.run()
    assert slave.query("G", "T", 0) == 6
    queues.fill("T", 0, 9)
    pair.run()
    assert slave.query("G", "T", 0) == 7
    master.commit("G", "T", 0, 2)  # reset
    pair.run()
    assert slave.query("G", "T", 0) == 2


BEYOND = 5 << 30  # a log position


@pytest.mark.parametrize("is_old", [False, True], ids=["tells", "is asked"])
def test_progress_waits_until_the_log_has_what_it_presumes(pair: Pair, is_old: bool) -> None:
    """The log stream is cut, and the copying of tables goes on. A master of the reference tells no position."""
    pair.is_old = is_old
    master, slave, log = pair.master.services.schedule, pair.slave.services.schedule, pair.slave.store
    pair.master.store.end = log.end = BEYOND
    master.follow(LogMark(offset_table={3: 1}))
    pair.run()
    pair.master.store.end = BEYOND + 100
    master.follow(LogMark(offset_table={3: 2}))
    for end, progress in ((BEYOND, 1), (BEYOND + 99, 1), (BEYOND + 100, 2)):
        log.end = end
        pair.run()
        assert slave.document() == {"offsetTable": {3: progress}}
    assert (28 in pair.codes) == is_old


def test_progress_that_waits_is_forgotten_with_the_stream_of_its_log(pair: Pair) -> None:
    """The master comes back without the end of its log, which then gets other messages."""
    pair.master.store.end = BEYOND
    pair.master.services.schedule.follow(LogMark(offset_table={3: 9}))
    pair.run()
    pair.copy.stream = lambda: 1
    pair.master.services.schedule.follow(LogMark(offset_table={3: 4}))
    pair.slave.store.end = BEYOND
    pair.master.store.end = BEYOND + 1
    pair.run()
    assert pair.slave.services.schedule.document() == {"offsetTable": {}}


def test_without_a_position_progress_is_not_taken(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.is_old, pair.runtime = True, b'{"table":{}}'
    pair.master.services.schedule.follow(LogMark(offset_table={3: 9}))
    pair.run()
    assert pair.slave.services.schedule.document() == {"offsetTable": {}}
    assert "has no commitLogMaxOffset" in caplog.text
