"""Transactions, crashed at named points between the records of their ends, their states and the file of their progress,
on a simulated disk.

Invariant, after the death of the send worker or of all, and after a power failure that keeps what was synced and any
sectors of the rest: a half message is open if and only if the log does not end it. However often its producer repeats
the end, each transaction that commits is delivered once, none that rolls back ever is, and each half message has one op
message, also where half messages were stored again.
"""

from __future__ import annotations

from tests.support.crash.launch import run_seeded
from tests.support.crash.points import points_in

CRASHES = 2_000


def test_no_crash_ends_a_transaction_twice() -> None:
    found = run_seeded("transactions", CRASHES)
    assert found.crashes.total() >= CRASHES
    assert points_in("send_end.c", "half_states.c") - found.crashes.keys() == set()
    assert found.kinds.keys() == {"send worker", "death", "power"}
