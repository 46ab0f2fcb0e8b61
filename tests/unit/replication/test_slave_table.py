"""What the table says of members of a group with failover."""

from __future__ import annotations

from typing import Any

from rocketpy.failover.rules.in_sync import Ack
from rocketpy.native.core import ffi, lib
from rocketpy.replication.slave_table import SlaveTable


def connect(table: SlaveTable, at: int, opened: int, member: str, acked: int, **others: Any) -> None:
    row = table.pointer.rows[at]
    row.opened, row.acked_phy_offset, row.epoch = opened, acked, others.get("epoch", 7)
    row.state = others.get("state", lib.RP_SLAVE_REPLICATING)
    for field, text in ((row.store.member, member), (row.store.incarnation, others.get("incarnation", "i"))):
        ffi.memmove(field, text.encode() + b"\0", len(text) + 1)


def test_what_members_have_acknowledged() -> None:
    table = SlaveTable()
    connect(table, 0, 1, "b", 100)
    connect(table, 1, 2, "c", 50, state=lib.RP_SLAVE_STALLED, epoch=6, incarnation="k")
    connect(table, 2, 3, "d", 60, state=lib.RP_SLAVE_CATCHING_UP)
    assert table.acknowledged() == {"b": Ack("i", 7, 100), "c": Ack("k", 6, 50), "d": Ack("i", 7, 60)}


def test_rows_that_say_nothing() -> None:
    table = SlaveTable()
    connect(table, 0, 1, "a", 100, state=lib.RP_SLAVE_FREE)
    connect(table, 1, 2, "b", 100, state=lib.RP_SLAVE_CONNECTED)
    connect(table, 2, 3, "c", 100, epoch=-1)
    connect(table, 3, 4, "", 100)
    connect(table, 4, 0, "e", 100)
    assert table.acknowledged() == {}


def test_the_newest_connection_of_a_member_counts() -> None:
    table = SlaveTable()
    connect(table, 0, 9, "b", 100)
    connect(table, 1, 3, "b", 900)
    assert table.acknowledged() == {"b": Ack("i", 7, 100)}


def test_a_table_that_was_cleared_has_nobody() -> None:
    table = SlaveTable()
    connect(table, 0, 1, "b", 100)
    table.clear()
    assert table.acknowledged() == {}
