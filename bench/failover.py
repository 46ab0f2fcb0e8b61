"""`python -m bench.failover`: how long is a group without a master, after a death and while an operator switches over?

Three members and one etcd on this machine. After kill -9 of all of the master: the time until a send of six senders
that go from member to member is acknowledged again (code 0), which begins with the time that the lease still has. For
switch-overs: one sender each of Java, Go (where they are installed) and ours, which find the master by the route, with
default settings: the longest time without a successful send, and all sends that failed. For deaths of the master's
machine (all its processes killed, and its network gone, so that nobody refuses a connection; root is needed): the same,
of our sender, as a median.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from tests.interop import toolchain
from tests.interop.programs import command_of
from tests.support.ha.clients import Clients
from tests.support.ha.group import Group, real_group
from tests.support.ha.network import network
from tests.support.ha.route_senders import LANGUAGES, RouteSender, route_senders

from .report import markdown_table, page_head

KILL_BAR_S = {6: 8.0, 2: 4.0}  # by seconds of the lease
OWN_BAR_S, OFFICIAL_BAR_S = 1.0, 3.0  # of a switch-over
SETTLE_S = 2.0
HEADINGS = ("what", "count", "median", "longest", "bar", "failed sends")


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


def switch_over(group: Group, senders: Sequence[RouteSender]) -> dict[str, float]:
    """Measure the longest time between two successful sends of each sender while the master changes."""
    began_s, first = time.monotonic(), group.master() or ""
    group.switch_over(sorted(set(group.members) - {first})[0])
    for sender in senders:
        sender.wait_for_next()
    group.wait_in_sync()
    time.sleep(SETTLE_S)
    return {sender.language: sender.longest_gap_s(began_s, time.monotonic()) for sender in senders}


def by_route(group: Group, directory: Path, switches: int) -> list[dict[str, object]]:
    """Switch-overs as applications see them: clients find the master by the route, with their default settings."""
    with route_senders(group.namesrv.namesrv, directory, "ByRoute", installed(directory)) as senders:
        gaps = [switch_over(group, senders) for _ in range(switches)]
        rows = []
        for sender in senders:
            name, bar_s = sender.language, OWN_BAR_S if sender.language == "python" else OFFICIAL_BAR_S
            found = figures(f"switch-over, {name} by route", [each[name] for each in gaps], bar_s)
            failed = sender.failed
            rows.append(found | {"sent": sender.sent, "failed": len(failed), "holds": found["holds"] and not failed})
        return rows


def lose_machine(group: Group, sender: RouteSender) -> float:
    """Measure the longest time between two successful sends while the master's machine dies. It returns afterwards."""
    group.wait_in_sync()
    sender.wait_for_next()
    assert group.network is not None
    first, places = group.master() or "", [*group.network.names]
    ways = [way for place in places if place != first for way in ((place, first), (first, place))]
    began_s = time.monotonic()
    for way in ways:
        group.network.cut(*way)
    group.members[first].kill_all()
    sender.wait_for_next()
    gap_s = sender.longest_gap_s(began_s, time.monotonic())
    for way in ways:
        group.network.join(*way)
    group.members[first].begin()
    group.wait_in_sync()
    return gap_s


def lost_machines(lease_s: int, count: int) -> dict[str, object]:
    """Deaths of the master's machine, as our client by route sees them. A send may fail after three tries."""
    settings = {"haLeaseSeconds": str(lease_s), "slaveTimeout": "3000"}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-bench-")))
        places = stack.enter_context(network("a", "b", "c", "etcd"))
        group = stack.enter_context(real_group(directory, "abc", network=places, settings=settings))
        namesrv = group.members["a"].namesrv
        (sender,) = stack.enter_context(route_senders(namesrv, directory, "ByRoute", ["python"]))
        took = []
        for _ in range(count):
            took.append(lose_machine(group, sender))
            click.echo(f"the master's machine dies, lease {lease_s} s: {took[-1]:.2f} s", err=True)
        found = figures(f"death of the master's machine, lease {lease_s} s, python by route", took)
        bar_s = KILL_BAR_S.get(lease_s, math.inf)
        holds = statistics.median(took) <= bar_s
        return found | {"bar_s": bar_s, "holds": holds, "sent": sender.sent, "failed": len(sender.failed)}


def installed(directory: Path) -> list[str]:
    """List the clients that this machine can run."""
    found = []
    for language in LANGUAGES:
        with contextlib.suppress(toolchain.Missing):
            command_of(language, directory)
            found.append(language)
    return found


def figures(name: str, seconds: Sequence[float], bar_s: float | None = None) -> dict[str, object]:
    """Return the figures of one question."""
    found: dict[str, object] = {
        "what": name,
        "count": len(seconds),
        "median_s": round(statistics.median(seconds), 2),
        "max_s": round(max(seconds), 2),
    }
    return found | ({"bar_s": bar_s, "holds": max(seconds) <= bar_s} if bar_s is not None else {})


def measure(lease_s: int, kills: int, switches: int) -> list[dict[str, object]]:
    """Measure all with one lease, and check that no promise was broken meanwhile."""
    settings, rows = {"haLeaseSeconds": str(lease_s)}, []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-bench-")))
        group = stack.enter_context(real_group(directory, "abc", settings=settings))
        with Clients(group.servers, group.history, 1):
            group.wait_for_master()
            time.sleep(SETTLE_S)
            took = [until_acknowledged_s(group) for _ in range(kills)]
            if took:
                rows.append(figures(f"kill -9 of the master, lease {lease_s} s", took, KILL_BAR_S.get(lease_s)))
        if switches:
            rows += by_route(group, directory, switches)
        group.check()
    return rows


def table_row(found: Mapping[str, object]) -> tuple[str, ...]:
    """Return one question as a row of the page's table."""
    bar_s, sent = found.get("bar_s"), found.get("sent")
    bar = f"{bar_s:g} s: {'holds' if found['holds'] else 'missed'}" if bar_s is not None else ""
    failed = f"{found['failed']} of {sent}" if sent is not None else ""
    return str(found["what"]), str(found["count"]), f"{found['median_s']} s", f"{found['max_s']} s", bar, failed


def page(rows: Sequence[Mapping[str, object]], load: float) -> str:
    return f"""{page_head("Failover", "bench.failover")}

Three members and one etcd; SYNC_MASTER. Load average before the run: {load:.1f}. The history of each run is checked: no
acknowledged message is missing or seen twice, and no two masters acknowledged.

{markdown_table(HEADINGS, map(table_row, rows))}

- **kill -9 of the master**: of all its processes, until one of six senders, which go from member to member, is
  acknowledged. It begins with the time that the lease still has.
- **switch-over** and **death of the master's machine** (all processes killed, its network cut at the same moment, so
  that no connection is refused): the longest time between two successful sends of one sender that finds the master by
  the route, with default settings. A send fails after its retries.

The bar of a death of the machine is one of the median, the others are of the longest.
"""


@click.command(help=__doc__)
@click.option("--kills", default=10, show_default=True, help="Deaths of the master, for each lease.")
@click.option("--switches", default=10, show_default=True, help="Switch-overs.")
@click.option("--machines", default=0, show_default=True, help="Deaths of the master's machine, for each lease.")
@click.option("--lease", "leases", multiple=True, type=int, default=(6, 2), show_default=True, help="haLeaseSeconds.")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
def main(kills: int, switches: int, machines: int, leases: tuple[int, ...], docs: Path | None) -> None:
    load = os.getloadavg()[0]
    rows: list[dict[str, object]] = []
    for lease_s in leases:
        if kills or switches:
            rows += measure(lease_s, kills, switches if lease_s == leases[0] else 0)
        if machines:
            rows.append(lost_machines(lease_s, machines))
    for row in rows:
        click.echo(json.dumps(row))
    if docs is not None:
        docs.write_text(page(rows, load))


if __name__ == "__main__":
    main()
