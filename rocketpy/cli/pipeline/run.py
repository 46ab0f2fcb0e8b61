"""`rocketpy pipeline run`: streaming queries of a file, which are started again when they fail.

Short: the queries are in rocketpy/spark/jobs/queries.py, their restarts in supervisor.py.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path

import click

from rocketpy.cli.pipeline.frame import FAILED, MASTER, job_session, status_of
from rocketpy.cli.pipeline.stopping import stopped_by_signals

POLL_S = 1.0


@click.command("run", short_help="Keep the streaming queries of a file running.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--report",
    "report_s",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Seconds from one report of each query to the next.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65_535), help="Serve lag and rows of the queries to Prometheus here."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address of that port.")
@MASTER
def run_command(file: Path, master: str | None, report_s: int, metrics_port: int | None, metrics_host: str) -> None:
    """Start the streaming queries that FILE declares, and start a query again when it fails, from its checkpoint.

    \b
    [query.orders]
    source = { nameServer = "127.0.0.1:9876", topic = "Orders", startingOffsets = "earliest" }
    sql = "SELECT tags, body FROM {source} WHERE tags = 'eu'"
    sink = { format = "parquet", path = "/tables/orders" }
    checkpoint = "/tables/orders-checkpoint"
    trigger = "10 seconds"

    Tells on standard error what it does. SIGTERM stops the queries. Exit status: 0 stopped or all done, 2 a query has
    an error that a restart cannot repair.
    """
    sys.exit(status_of(lambda: _run(file, master, report_s, metrics_port, metrics_host)))


def _run(file: Path, master: str | None, report_s: int, metrics_port: int | None, metrics_host: str) -> int:
    from rocketpy.spark.jobs.queries import Pipeline
    from rocketpy.spark.jobs.supervisor import Supervisor
    from rocketpy.spark.lag import StreamLags
    from rocketpy.spark.stream_metrics import LagListener, serve

    pipeline, lags = Pipeline.read(file), StreamLags()
    with (
        nullcontext() if metrics_port is None else serve(lags, metrics_host, metrics_port),
        stopped_by_signals() as stop,
        job_session(master or pipeline.master, False, has_bar=False, config=pipeline.config) as spark,
    ):
        assert spark is not None
        spark.streams.addListener(LagListener(lags, pipeline.client_of))
        supervisor = Supervisor(spark, say=lambda line: click.echo(line, err=True), lags=lags.now)
        supervisor.add(pipeline.queries)
        reported_s = time.monotonic()
        while supervisor.step() and not stop.wait(POLL_S):
            if time.monotonic() - reported_s >= report_s:
                supervisor.report()
                reported_s = time.monotonic()
        supervisor.stop()
    return FAILED if supervisor.has_given_up else 0
