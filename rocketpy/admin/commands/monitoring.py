"""Monitoring of all groups, until it is interrupted."""

from __future__ import annotations

from contextlib import aclosing

import click
import trio

from ..admin import Admin
from ..base import command
from ..monitoring import Monitor
from ..output import Output, echo, second_text

ROUND_S = 60.0  # Java's


@command(example="mqadmin startMonitoring -n 127.0.0.1:9876")
@click.option("--interval", type=click.FloatRange(min=0.1), default=ROUND_S, show_default=True, help="Seconds.")
@click.option("--rounds", type=click.IntRange(1), help="End after so many rounds.  [endless]")
async def start_monitoring(admin: Admin, out: Output, interval: float, rounds: int | None) -> None:
    """Watch all groups: backlog, members that disagree, queues that do not move. Findings go to standard error."""
    monitor = Monitor(admin)
    done = 0
    while True:
        async with aclosing(monitor.round()) as findings:
            async for finding in findings:
                now = second_text(admin.instance.now_ms())
                if out.is_json:
                    out.record(time=now, kind=finding.kind, group=finding.group, text=finding.text)
                else:
                    echo(f"{now} {finding.kind} {finding.group}: {finding.text}", err=True)
        done += 1
        if done == rounds:
            return
        await trio.sleep(interval)
