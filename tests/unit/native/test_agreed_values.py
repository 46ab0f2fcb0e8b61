"""Values that stand in several places, in C or in packages that import none of each other, are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the send loop is C")

from rocketpy.broker import replies
from rocketpy.broker.sending import passed_on_sends
from rocketpy.config import failover_relations
from rocketpy.failover import member_block
from rocketpy.failover.rules import records
from rocketpy.native.core import lib
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import send_v2


def test_a_send_waits_for_a_change_of_master_as_long_in_either_worker() -> None:
    assert lib.RP_SEND_KEEP_MS == passed_on_sends.KEEP_S * 1000


def test_a_slave_refuses_sends_in_the_words_of_the_slow_path(tmp_path: Path) -> None:
    rig = FastPath(tmp_path, is_slave=1)
    rig.tables_end()
    rig.frame(send_v2())
    rig.turn()
    ((_, answer),) = rig.answers()
    assert answer.remark == replies.SENDS_REFUSED_BY_SLAVE
    rig.close()


def test_a_group_has_as_many_members_as_its_records_and_its_block_hold() -> None:
    assert failover_relations.MEMBERS_MAX == records.MEMBERS_MAX
    assert member_block.COUNTING_MAX == 2 * records.MEMBERS_MAX, "of each member the old and the new store"
