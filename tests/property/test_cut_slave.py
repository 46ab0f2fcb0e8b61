"""A slave whose log stream is cut while it copies its master's tables, crashed at named points on a simulated disk.

Invariant, after the death of all processes, and after a power failure that keeps what was synced and any sectors of the
rest, of log, queues, control block and the files of tables: no table of the slave presumes more than its log has. As
the new master it knows the topic of each message of its log, delivers each delayed message and can end each open
transaction, and no group is beyond the end of a queue, also after the log has grown again.
"""

from __future__ import annotations

import pytest

from tests.support.budget import IS_LONG, budget
from tests.support.crash.launch import run_seeded

pytestmark = pytest.mark.long  # compiles a core of its own
CRASHES = budget(25, 500)
POINTS = {"life.config.fsync", "life.operated", "copy.asked", "copy.answered", "append.published"}


def test_no_table_of_a_slave_outruns_its_log() -> None:
    """Fault: A power failure that took the first log files left group offsets beyond their queues."""
    found = run_seeded("cut_slave", CRASHES)
    assert found.crashes.total() >= CRASHES
    if IS_LONG:  # a few crashes may miss a point
        assert found.crashes.keys() >= POINTS, sorted(found.crashes)
    assert found.kinds.keys() == {"death", "power"}
