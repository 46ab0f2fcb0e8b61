"""`python -m bench.idle_clients`: what do clients that only send heartbeats cost a broker with default settings?

The measurement is that of `rocketpy bench idle`; this gives its figures their bars, and writes their page.
`--strict`: a missed bar is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from rocketpy.bench import idle_cost
from rocketpy.bench.idle import CONSUMER_EACH, GROUP_SIZE, INTERVAL_S
from rocketpy.bench.idle_cost import CPU_PERCENT_MAX, USER_BYTES_MAX, IdleCost

from . import report
from .report import Row


def rows(found: IdleCost) -> Iterator[Row]:
    """Yield the figures, those with a bar first."""
    yield Row("memory of the broker for each client", found.user_bytes, "bytes", USER_BYTES_MAX)
    yield Row("CPU of the broker", found.cpu_percent, "% of a core", CPU_PERCENT_MAX)
    yield Row("heartbeats refused", found.tally.refused, "", 0)
    yield Row("connections lost", found.tally.lost, "", 0)
    yield Row("memory of the kernel for each client, both ends", found.kernel_bytes, "bytes")
    yield Row("CPU of a heartbeat", found.cpu_us_per_heartbeat, "µs")
    yield Row("heartbeat, p50", found.tally.quantile_ms(0.5), "ms")
    yield Row("heartbeat, p99", found.tally.quantile_ms(0.99), "ms")


def page(found: IdleCost, load_average: float) -> str:
    """Return the page of bench/results. `load_average`: before the run."""
    return f"""{report.page_head("Idle clients", "bench.idle_clients")}
{found.clients:,} clients for {found.seconds:.0f} s, a heartbeat of each every {INTERVAL_S:g} s;
each {CONSUMER_EACH}th is a member of a consumer group of {GROUP_SIZE}.
The clients share the cores with the broker.
Load average before the run: {load_average:.1f}.

{report.markdown_table(("figure", "value", "bar", ""), (row.cells for row in rows(found)))}
"""


@click.command()
@click.option("--clients", default=50_000, show_default=True, help="Connections.")
@click.option("--seconds", default=90.0, show_default=True, help="Time of heartbeats.")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
@click.option("--strict", is_flag=True, help="Fail if a bar is missed.")
def main(clients: int, seconds: float, docs: Path | None, *, strict: bool) -> None:
    """Measure what idle clients cost a broker."""
    load_average = os.getloadavg()[0]
    found = idle_cost.measure(clients, seconds, {}, None, lambda *_: None)
    click.echo("\n".join(found.lines))
    if docs is not None:
        docs.write_text(page(found, load_average), encoding="utf-8")
    if strict and not all(row.holds for row in rows(found)):
        raise click.ClickException("a bar is missed")


if __name__ == "__main__":
    main()
