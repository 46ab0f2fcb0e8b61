"""Routes over failovers: a master that was frozen and wakes never takes its successor out of them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.group import Group, real_group
from tests.support.ha.route_watch import RouteWatch

FROZEN_S = 12.0  # longer than the lease, and than the least registerNameServerPeriod: it registers when it wakes
SEEN_S = 12.0  # afterwards
GAP_S = 2.0
SETTINGS = {"haLeaseSeconds": "2", "registerNameServerPeriod": "10000"}


@pytest.mark.parametrize("forced", ["true", "false"])
def test_a_master_that_wakes_leaves_the_route_to_its_successor(tmp_path: Path, forced: str) -> None:
    with real_group(tmp_path, settings=SETTINGS | {"forceRegister": forced}) as group:
        first = group.master() or ""
        old, new = (group.members[name].address for name in (first, group.other(first)))
        with RouteWatch(group.namesrv.namesrv_port) as route:
            group.wait_for(lambda: route.master == old, "the route")
            freeze_and_wake(group, first)
            woken_s = time.monotonic()
            assert route.master == new
            time.sleep(SEEN_S)
            assert old not in route.masters_since(woken_s), f"the former master was in the route:\n{route.story()}"
            assert route.without_master_s(woken_s) < GAP_S, f"no master in the route:\n{route.story()}"
        group.wait_in_sync()


def freeze_and_wake(group: Group, name: str) -> None:
    began_s = time.monotonic()
    group.history.happened(f"SIGSTOP of all of {name}")
    group.members[name].signal_all(signal.SIGSTOP)
    try:
        group.wait_for(lambda: group.master() == group.other(name), "the failover")
        time.sleep(max(0.0, began_s + FROZEN_S - time.monotonic()))
    finally:
        group.history.happened(f"SIGCONT of {name}")
        group.members[name].signal_all(signal.SIGCONT)
