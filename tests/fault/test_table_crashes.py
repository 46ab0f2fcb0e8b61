"""The progress of delay levels and the offsets of groups, crashed at named points beside a log, on a simulated disk.

Invariant, after the death of all processes, and after a power failure that keeps what was synced and any sectors of the
rest, of log, queues, control block and the files of tables: each delayed message before the progress of its level has
its copy in the log, and no group is beyond the end of a queue, also after the log has grown again.
"""

from __future__ import annotations

from tests.support.crash.launch import run_seeded

CRASHES = 2_000
POINTS = {"life.config.fsync", "append.publish", "append.published"}


def test_no_table_outruns_the_log() -> None:
    found = run_seeded("tables", CRASHES)
    assert found.crashes.total() >= CRASHES
    assert found.crashes.keys() >= POINTS, sorted(found.crashes)
    assert found.kinds.keys() == {"death", "power"}
