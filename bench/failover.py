"""`python -m bench.failover`: how long is a group without a master, after a death and while an operator switches over?

Three members and one etcd on this machine, six senders that go from member to member. After kill -9 of all of the
master: the time until a send is acknowledged again (code 0), which begins with the time that the lease still has. For a
switch-over: the longest time between two acknowledgements, and the longest that any acknowledged send took.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from tests.support.ha.clients import Clients
from tests.support.ha.group import Group, real_group

from .report import machine

KILL_BAR_S, SWITCH_BAR_S = {6: 8.0, 2: 4.0}, 1.0  # by seconds of the lease
SETTLE_S = 2.0


def until_acknowledged_s(group: Group) -> float:
    """Kill the master; how long until another member acknowledges. All are in sync before and after."""
    first = group.wait_for_master()
    killed_s, known = time.monotonic(), len(group.history.answers)
    group.members[first].kill_all()
    group.wait_for_master(set(group.members) - {first})
    took_s = min(
        answer.answered_s
        for answer in group.history.answers[known:]
        if answer.code == 0 and answer.member != first and answer.sent_s > killed_s
    )
    group.members[first].begin()
    group.wait_in_sync()
    return took_s - killed_s


def switch_over_s(group: Group) -> tuple[float, float]:
    """(the longest time between two acknowledgements, the longest acknowledged send) while the master changes."""
    first = group.wait_for_master()
    target = sorted(set(group.members) - {first})[0]
    known = len(group.history.answers)
    group.switch_over(target)
    group.wait_for_master({target})
    group.wait_in_sync()
    acknowledged = [answer for answer in group.history.answers[known:] if answer.code == 0]
    times = sorted(answer.answered_s for answer in acknowledged)
    gap_s = max(later - earlier for earlier, later in itertools.pairwise(times))
    return gap_s, max(answer.answered_s - answer.sent_s for answer in acknowledged)


def figures(name: str, seconds: Sequence[float], bar_s: float | None = None) -> dict[str, object]:
    """Of one question."""
    found: dict[str, object] = {
        "what": name,
        "count": len(seconds),
        "median_s": round(statistics.median(seconds), 2),
        "max_s": round(max(seconds), 2),
    }
    return found | ({"bar_s": bar_s, "holds": max(seconds) <= bar_s} if bar_s is not None else {})


def measure(lease_s: int, kills: int, switches: int) -> list[dict[str, object]]:
    """All with one lease, and the check that no promise was broken meanwhile."""
    settings, rows = {"haLeaseSeconds": str(lease_s)}, []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-bench-")))
        group = stack.enter_context(real_group(directory, "abc", settings=settings))
        with Clients(group.servers, group.history, 1):
            group.wait_for_master()
            time.sleep(SETTLE_S)
            took = [until_acknowledged_s(group) for _ in range(kills)]
            rows.append(figures(f"kill -9 of the master, lease {lease_s} s", took, KILL_BAR_S.get(lease_s)))
            waits = [switch_over_s(group) for _ in range(switches)]
        group.check()
    if waits:
        rows.append(figures("switch-over, without an acknowledgement", [gap for gap, _ in waits]))
        rows.append(figures("switch-over, longest send", [send for _, send in waits], SWITCH_BAR_S))
    return rows


@click.command(help=__doc__)
@click.option("--kills", default=10, show_default=True, help="Deaths of the master, for each lease.")
@click.option("--switches", default=10, show_default=True, help="Switch-overs.")
@click.option("--lease", "leases", multiple=True, type=int, default=(6, 2), show_default=True, help="haLeaseSeconds.")
def main(kills: int, switches: int, leases: tuple[int, ...]) -> None:
    load = os.getloadavg()[0]
    rows: list[dict[str, object]] = []
    for lease_s in leases:
        rows += measure(lease_s, kills, switches if lease_s == leases[0] else 0)
    for row in rows:
        click.echo(json.dumps(row))
    click.echo(json.dumps({"machine": machine(), "load_before": load}))


if __name__ == "__main__":
    main()
