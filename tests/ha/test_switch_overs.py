"""Switch-overs by an operator under load: nothing is lost, doubled or cut, and no send fails.

A send may meet the end of its connection, because a role changes with the process tree. It was not stored then, so the
client's next try stores it once.

HA_SWITCH_OVERS=100 does a hundred.
"""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.clients import Clients
from tests.support.ha.group import Group

SWITCH_OVERS = int(os.environ.get("HA_SWITCH_OVERS") or 5)


def test_switch_overs_lose_double_and_cut_nothing(pair: Group, seed: int) -> None:
    """Each epoch is one more than the last, so nobody had to be elected."""
    with Clients(pair.servers, pair.history, seed) as clients:
        for _ in range(SWITCH_OVERS):
            first, epoch = pair.wait_for_master(), pair.epoch()
            target = pair.other(first)
            pair.history.happened(f"switch-over from {first} to {target}")
            pair.switch_over(target)
            pair.wait_for_master({target})
            pair.wait_until_healed()
            assert pair.epoch() == epoch + 1
    pair.wait_in_sync()
    stored = set(pair.stored(pair.members[pair.master() or ""]).values())
    pair.check()
    cut = [str(member.store / "diverged") for member in pair.members.values() if (member.store / "diverged").exists()]
    assert cut == [], "a log was cut"
    print(
        f"{SWITCH_OVERS} switch-overs: codes {pair.history.codes()}, {len(clients.unanswered)} connections ended, "
        f"longest time without an acknowledgement {pair.history.longest_gap_s():.2f} s"
    )
    assert [key for key in clients.unanswered if key in stored] == [], "stored, and the answer is lost"
    assert [why for why in clients.unanswered.values() if isinstance(why, TimeoutError)] == [], "no answer"


def test_a_member_whose_guardian_is_frozen_gives_the_mastership_back(pair: Group, seed: int) -> None:
    """Its other processes run, and its coordinator keeps the lease; but nobody replaces its process tree.
    Fault: An elected member with a frozen guardian kept the lease without opening its epoch."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        target = pair.other(first)
        guardian = pair.members[target].process
        assert guardian is not None
        pair.history.happened(f"SIGSTOP of the guardian of {target}")
        guardian.send_signal(signal.SIGSTOP)
        pair.switch_over(target)
        pair.wait_for(lambda: pair.master() == target, "the election")
        pair.wait_for(lambda: pair.master() == first, "a master that serves")
        guardian.send_signal(signal.SIGCONT)
        pair.wait_until_healed()
    pair.check()
