"""Planned changes of the master, as applications see them: clients that find the master by the route, official ones of
Java and Go and ours, with their default settings (the route every 30 s), have no failed send.

HA_ROUTE_SWITCH_OVERS=100 does a hundred; docs/run/automatic-failover.md has such a run.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.interop import toolchain
from tests.interop.programs import command_of
from tests.support.ha.group import Group, real_group
from tests.support.ha.route_senders import LANGUAGES, RouteSender, route_senders
from tests.support.ha.route_watch import RouteWatch

SWITCH_OVERS = int(os.environ.get("HA_ROUTE_SWITCH_OVERS") or 6)
TOPIC = "ByRoute"
GAP_S = 3.0  # generous: the machine may be busy
SETTINGS = {"slaveTimeout": "3000"}
KILL_FOLLOWS_S = 2.0  # bar: a second after the route has the new master; this machine may be busy


@pytest.fixture(autouse=True)
def _needs_programs(tmp_path: Path) -> None:
    for language in LANGUAGES:
        try:
            command_of(language, tmp_path)
        except toolchain.Missing as missing:
            pytest.skip(str(missing))


def test_switch_overs_fail_no_send(tmp_path: Path) -> None:
    """Two in a row meet clients that still send to the master before the last one.
    Fault: A planned change of the master refused every send until clients asked for the route again."""
    gaps: dict[str, list[float]] = {language: [] for language in LANGUAGES}
    with (
        real_group(tmp_path, settings=SETTINGS) as group,
        RouteWatch(group.namesrv.namesrv_port) as route,
        route_senders(group.namesrv.namesrv, tmp_path, TOPIC) as senders,
    ):
        for _ in range(SWITCH_OVERS):
            began_s = switch_over(group, senders)
            for sender in senders:
                gaps[sender.language].append(sender.longest_gap_s(began_s, time.monotonic()))
            assert route.without_master_s(began_s) == 0.0, f"no master in the route:\n{route.story()}"
        for language, found in gaps.items():
            print(
                f"{language}: {SWITCH_OVERS} switch-overs, median {statistics.median(found):.2f} s, {max(found):.2f} s"
            )
        failed = {sender.language: sender.failed for sender in senders}
        assert failed == {language: [] for language in LANGUAGES}
        assert {language: max(found) for language, found in gaps.items() if max(found) > GAP_S} == {}


def switch_over(group: Group, senders: list[RouteSender]) -> float:
    """Returns: when it began. All senders have sent, and all members are in sync, when it returns."""
    group.wait_in_sync()
    first, began_s = group.master() or "", time.monotonic()
    group.history.happened(f"switch-over from {first}")
    group.switch_over(group.other(first))
    for sender in senders:
        sender.wait_for_next()
    group.wait_in_sync()
    return began_s


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_our_client_follows_the_route_after_a_failover(tmp_path: Path, how: str) -> None:
    with (
        real_group(tmp_path, settings=SETTINGS | {"haLeaseSeconds": "2"}) as group,
        RouteWatch(group.namesrv.namesrv_port) as route,
        route_senders(group.namesrv.namesrv, tmp_path, TOPIC, ["python"]) as (sender,),
    ):
        first = group.master() or ""
        new = group.members[group.other(first)].address
        group.history.happened(f"{first} is {how}")
        if how == "killed":
            group.members[first].kill_all()
        else:
            group.members[first].signal_all(signal.SIGSTOP)
        group.wait_for(lambda: route.master == new, "the new master in the route")
        shown_s = route.shown[-1].since_s
        sender.wait_for_next()
        took_s = sender.program.of_kind("sent")[-1]["arrived_s"] - shown_s
        print(f"{how}: {took_s:.2f} s after the route had the new master")
        assert took_s < (KILL_FOLLOWS_S if how == "killed" else KILL_FOLLOWS_S + 3.0), "a frozen master costs a timeout"
        if how == "frozen":
            group.members[first].signal_all(signal.SIGCONT)
        else:
            group.members[first].begin()
        group.wait_in_sync()
