"""SYNC_MASTER: the answer to a send leaves when a slave has the message, or says that none does. The message is stored
in every case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the send loop is C")

from rocketpy.native.core import ffi, lib
from rocketpy.replication.slave_table import SlaveTable
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import send_v2
from tests.support.shared_memory import worker_block

FALL_BEHIND_MAX = 10_000
OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 10, 11, 12


class Rig(FastPath):
    """A master whose slave is played by the test."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.table = SlaveTable()
        self.now_ns = 1_000_000_000_000
        self._clock = ffi.callback("uint64_t(void)", lambda: self.now_ns)
        limits = {"fall_behind_max": FALL_BEHIND_MAX, "slave_timeout_ms": 3_000, "clock_ns": self._clock}
        super().__init__(root, **({"slaves": self.table.pointer} | limits | options))
        self.header = lib.rp_control_header(self.block)
        self.add_topic("T")
        self.tables_end()

    def has_slave(self, acked: int | None = None) -> None:
        """A slave has everything, or what is below `acked`."""
        acked = int(self.header.published_phy_offset) if acked is None else acked
        self.table.pointer.available, self.table.pointer.available_phy_offset = 1, acked
        self.header.replicated_phy_offset = max(self.header.replicated_phy_offset, acked)

    def flushed(self) -> None:
        self.header.durable_phy_offset = self.header.published_phy_offset

    def send_one(self, opaque: int = 1, **fields: Any) -> None:
        self.frame(send_v2(opaque=opaque, **fields))
        self.turn()

    def codes(self) -> list[tuple[int, int]]:
        """(opaque, code) of the answers so far."""
        self.turn()
        return [(reply.opaque, reply.code) for _, reply in self.answers()]

    def pass_ms(self, milliseconds: int) -> None:
        self.now_ns += milliseconds * 1_000_000


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def test_the_answer_leaves_when_a_slave_has_the_message(rig: Rig) -> None:
    rig.has_slave()
    rig.send_one(1)
    first_end = int(rig.header.published_phy_offset)
    rig.send_one(2)
    assert rig.codes() == []
    rig.has_slave(first_end - 1)
    assert rig.codes() == []
    rig.has_slave(first_end)
    assert rig.codes() == [(1, OK)]
    rig.has_slave()
    assert rig.codes() == [(2, OK)]


def test_one_report_releases_all_that_it_covers(rig: Rig) -> None:
    rig.has_slave()
    for opaque in range(1, 51):
        rig.frame(send_v2(opaque=opaque))
    assert rig.codes() == []
    rig.has_slave()
    assert rig.codes() == [(opaque, OK) for opaque in range(1, 51)]


def test_without_a_slave_the_answer_says_so_at_once(rig: Rig) -> None:
    rig.send_one()
    [(_, reply)] = rig.answers()
    assert reply.code == SLAVE_NOT_AVAILABLE
    assert reply.ext_field("queueOffset") == "0" and reply.ext_field("msgId"), "it is stored all the same"
    assert rig.header.published_phy_offset > 0


def test_a_slave_too_far_behind_is_not_waited_for(rig: Rig) -> None:
    rig.send_one(1)
    size = int(rig.header.published_phy_offset)
    assert rig.codes() == [(1, SLAVE_NOT_AVAILABLE)]
    while rig.header.published_phy_offset < FALL_BEHIND_MAX:
        rig.send_one(2)
    rig.codes()
    end = int(rig.header.published_phy_offset) + size
    rig.has_slave(end - FALL_BEHIND_MAX)
    rig.send_one(3)
    assert rig.codes() == [(3, SLAVE_NOT_AVAILABLE)]
    rig.has_slave(end + size - FALL_BEHIND_MAX + 1)
    rig.send_one(4)
    assert rig.codes() == [], "one byte less is waited for"


def test_a_slave_that_takes_too_long(rig: Rig) -> None:
    rig.has_slave()
    rig.send_one(1)
    rig.pass_ms(2_999)
    rig.send_one(2)
    assert rig.codes() == []
    rig.pass_ms(1)
    assert rig.codes() == [(1, FLUSH_SLAVE_TIMEOUT)]
    rig.has_slave()
    assert rig.codes() == [(2, OK)]


def test_who_does_not_want_to_wait_does_not(rig: Rig) -> None:
    rig.has_slave()
    rig.send_one(1, properties="WAIT\x01false\x02")
    assert rig.codes() == [(1, OK)]


def test_an_asynchronous_master_waits_for_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path, slaves=ffi.NULL)
    rig.send_one(1)
    assert rig.codes() == [(1, OK)]
    rig.close()


@pytest.mark.parametrize("disk_first", [True, False])
def test_with_sync_flush_both_are_waited_for(tmp_path: Path, disk_first: bool) -> None:
    rig = Rig(tmp_path, sync_flush=1)
    rig.has_slave()
    rig.send_one()
    for step in (rig.flushed, rig.has_slave) if disk_first else (rig.has_slave, rig.flushed):
        assert rig.codes() == []
        step()
    assert rig.codes() == [(1, OK)]
    rig.close()


def test_without_a_slave_the_disk_is_still_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sync_flush=1)
    rig.send_one(1)
    assert rig.codes() == []
    rig.flushed()
    assert rig.codes() == [(1, SLAVE_NOT_AVAILABLE)]
    rig.send_one(2)
    rig.pass_ms(5_000)
    assert rig.codes() == [(2, SLAVE_NOT_AVAILABLE)], "what the slave says hides what the disk says"
    rig.close()


def test_a_late_slave_hides_a_late_disk(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sync_flush=1)
    rig.has_slave()
    rig.send_one(1)
    rig.pass_ms(3_000)
    assert rig.codes() == [], "the disk has two seconds more"
    rig.pass_ms(2_000)
    assert rig.codes() == [(1, FLUSH_SLAVE_TIMEOUT)]
    rig.send_one(2)
    rig.has_slave()
    rig.pass_ms(5_000)
    assert rig.codes() == [(2, FLUSH_DISK_TIMEOUT)]
    rig.close()


def test_a_reply_that_waits_for_the_disk_alone_does_not_stand_behind_a_slave(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sync_flush=1)
    rig.has_slave()
    rig.send_one(1)
    rig.table.pointer.available = 0
    rig.send_one(2)
    rig.flushed()
    assert rig.codes() == [(2, SLAVE_NOT_AVAILABLE)]
    rig.has_slave()
    assert rig.codes() == [(1, OK)]
    rig.close()


def test_a_stop_answers_what_waits(rig: Rig) -> None:
    rig.has_slave()
    rig.send_one(1)
    rig.workers["send"].stop = lib.RP_STOP_LEAVE
    assert lib.rp_send_run(rig.send, 0) != lib.RP_STOPPED
    rig.pass_ms(3_000)
    while lib.rp_send_run(rig.send, 0) != lib.RP_STOPPED:
        pass
    assert [(reply.opaque, reply.code) for _, reply in rig.answers()] == [(1, FLUSH_SLAVE_TIMEOUT)]


def test_appends_wake_the_replicator(tmp_path: Path) -> None:
    replicator = worker_block(9)
    rig = Rig(tmp_path, replicator=replicator)
    lib.rp_worker_prepare_sleep(replicator)
    rig.send_one()
    assert not replicator.asleep
    rig.close()
