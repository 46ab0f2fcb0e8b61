"""Ten thousand crashes at named points of the store, on a simulated disk.

Invariant, after a death at any instant, and after a power failure that keeps what was synced and any sectors of the
rest: no acknowledged message is lost, no torn record is seen, no queue has a hole or an offset twice, queues are what
the log says, and a key finds its message. The seed is printed; a failure names the life's seed and its point's number.

Fault: After a power failure, units of deleted log files were wiped, and queue offsets began at 0.
Fault: Recovery that died after removing units left a control block or checkpoint that still promised them.
Fault: Recovery that rebuilt a control block called the whole log durable for a moment.
Fault: Removed log files that a power failure brought back were taken for the log, and newer files were removed.
"""

from __future__ import annotations

from tests.support.crash.launch import first_seed, run_crashes
from tests.support.crash.points import named_points

CRASHES = 10_000
KINDS = {"death", "power", "workers", "death control", "power control", "death lock", "power lock"}


def test_no_crash_breaks_the_store(capfd: object) -> None:
    with capfd.disabled():  # type: ignore[attr-defined]
        outcome = run_crashes(first_seed(1), CRASHES)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.crashes.total() >= CRASHES
    assert named_points() - outcome.crashes.keys() == set()
    assert outcome.kinds.keys() >= KINDS
