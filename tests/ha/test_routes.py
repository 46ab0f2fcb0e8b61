"""Routes over failovers: a master that was frozen and wakes never takes its successor out of them."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.interop import toolchain
from tests.interop.java_broker import JavaNameServer
from tests.support.ha.group import Group, Member, real_group
from tests.support.ha.route_watch import RouteWatch
from tests.support.pair import NameServer

FROZEN_S = 30.0  # longer than the lease, and than the least registerNameServerPeriod: it registers when it wakes
SEEN_S = 12.0  # afterwards
GAP_S = 2.0
LATE_S = 0.5
SILENT_S = 9.0  # more than registerBrokerTimeoutMills
SETTINGS = {"haLeaseSeconds": "6", "registerNameServerPeriod": "10000"}


@pytest.mark.parametrize(("forced", "late_s"), [("true", 0.0), ("true", LATE_S), ("false", 0.0)])
@pytest.mark.parametrize("kind", [NameServer, JavaNameServer])
def test_a_master_that_wakes_leaves_the_route_to_its_successor(
    tmp_path: Path, kind: type[NameServer], forced: str, late_s: float
) -> None:
    """Its coordinator may wake later than the worker that registers. With forceRegister=false name servers are asked
    for the version of the topics only."""
    if kind is JavaNameServer:
        need_java()
    with real_group(tmp_path, settings=SETTINGS | {"forceRegister": forced}, kind=kind) as group:
        first = group.master() or ""
        old = group.members[first].address
        with RouteWatch(group.namesrv.namesrv_port) as route:
            group.wait_for(lambda: route.master == old, "the route")
            group.wait_in_sync()
            woken_s = freeze_and_wake(group, first, late_s)
            time.sleep(SEEN_S)
            gap_s = route.without_master_s(woken_s)
            print(f"without a master: {gap_s:.2f} s\n{route.story()}")
            assert route.most == 1, "two masters in one route"
            assert old not in route.masters_since(woken_s), f"the former master was in the route:\n{route.story()}"
            assert gap_s < GAP_S, f"no master in the route:\n{route.story()}"
        group.wait_in_sync()


def test_a_silent_name_server_moves_no_master(tmp_path: Path) -> None:
    """One of two accepts connections and answers nothing, longer than the time after which a member with a fault gives
    way: no member has a fault because of it.
    Fault: A silent name server made three members pass the mastership round every 5 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def arrange(member: Member) -> None:
            member.more_namesrv = f";127.0.0.1:{silent.getsockname()[1]}"

        with real_group(tmp_path, "abc", settings={"haUnhealthySeconds": "2"}, arrange=arrange) as group:
            group.wait_in_sync()
            first, state = group.master() or "", group.state()
            assert state is not None and state.epoch == 1
            group.switch_over("b" if first == "a" else "a")
            time.sleep(SILENT_S)
            state = group.state()
            assert state is not None and state.epoch == 2, "the master has changed once"


def need_java() -> None:
    try:
        toolchain.server_directory()
    except toolchain.Missing as missing:
        toolchain.skip_or_fail(str(missing))


def freeze_and_wake(group: Group, name: str, late_s: float) -> float:
    """Freeze a member; wake its coordinator `late_s` after its other processes. Returns: when the first ones woke."""
    began_s, member = time.monotonic(), group.members[name]
    group.history.happened(f"SIGSTOP of all of {name}")
    member.signal_all(signal.SIGSTOP)
    pids = member.pids()
    del pids["coordinator"]
    try:
        group.wait_for(lambda: group.master() == group.other(name), "the failover")
        time.sleep(max(0.0, began_s + FROZEN_S - time.monotonic()))
    finally:
        group.history.happened(f"SIGCONT of {name}")
        woken_s = time.monotonic()
        for pid in pids.values() if late_s else ():
            os.kill(pid, signal.SIGCONT)
        time.sleep(late_s)
        member.signal_all(signal.SIGCONT)
    return woken_s
