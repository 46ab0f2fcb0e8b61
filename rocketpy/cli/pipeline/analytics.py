"""`rocketpy pipeline trace`, `stats`, `dedup` and `windows`: jobs that ask Spark's SQL about messages."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketpy.admin.output import echo, harmless
from rocketpy.cli.pipeline.frame import AS_JSON, MASTER, OPTIONS, connection_options, job_session, status_of
from rocketpy.errors import ConfigError
from rocketpy.message.names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

    from rocketpy.spark.jobs.report import JobReport, Row

    Job = Callable[[SparkSession], JobReport]

ROWS_SHOWN = 40  # of a table; JSON has all that the report has

NAME_SERVER = click.option("--name-server", "-n", help="Read topics of running brokers: HOST:PORT;HOST:PORT.")
STORE = click.option("--store", type=click.Path(path_type=Path), help="Read a store directory.")
ARCHIVE = click.option("--archive", type=click.Path(path_type=Path), help="Read an archive of `pipeline archive`.")
TOPICS = click.option("--topic", "-t", "topics", multiple=True, help="Topic to read; may be repeated.")
PLOT = click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write a plot to this PNG file.")


def input_options(command: Callable[..., None]) -> Callable[..., None]:
    """One of three places to read from, and which topics."""
    for option in (OPTIONS, TOPICS, ARCHIVE, STORE, NAME_SERVER):
        command = option(command)
    return command


@click.command("trace", short_help="How long sends and consumptions took.")
@input_options
@click.option("--window", "window_s", type=click.IntRange(1), default=60, show_default=True, help="Seconds.")
@click.option("--slowest", type=click.IntRange(0, 10_000), default=10, show_default=True, help="Messages to name.")
@PLOT
@AS_JSON
@MASTER
def trace_command(as_json: bool, master: str | None, **given: Any) -> None:
    """Say how long sends and consumptions took and what was not consumed, by the message trace.

    \b
    rocketpy pipeline trace -n 127.0.0.1:9876 --plot trace.png
    """

    def prepare() -> Job:
        from rocketpy.spark.jobs.trace import trace

        given["topics"] = given["topics"] or (TRACE_TOPIC,)
        return partial(trace, source=_input(given), **given)

    run_job(prepare, master, as_json)


@click.command("stats", short_help="Messages of topics, and the lag of groups.")
@input_options
@click.option("--group", "-g", "groups", multiple=True, help="Consumer group whose backlog is shown; with -n.")
@click.option("--window", "window_s", type=click.IntRange(1), default=60, show_default=True, help="Seconds.")
@click.option("--watch", "watch_s", type=click.IntRange(0), default=0, help="Seconds to watch groups for their rates.")
@PLOT
@AS_JSON
@MASTER
def stats_command(as_json: bool, master: str | None, **given: Any) -> None:
    """Say what topics hold: throughput, sizes, skew, largest keys, and how far behind groups are.

    \b
    rocketpy pipeline stats --store /var/lib/rocketpy/store --plot stats.png
    rocketpy pipeline stats -n 127.0.0.1:9876 -t Orders -g billing
    """

    def prepare() -> Job:
        from rocketpy.spark.jobs.stats import check_watch, stats

        source = _input(given)
        check_watch(source, given["groups"], given["watch_s"])
        return partial(stats, source=source, **given)

    run_job(prepare, master, as_json)


@click.command("dedup", short_help="Messages without their copies, as Parquet.")
@input_options
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--key", default="msgId", show_default=True, help="keys, msgId, SPARK_ID, or an SQL expression.")
@click.option("--keep", type=click.Choice(["first", "latest"]), default="first", show_default=True)
@click.option("--stream", "is_stream", is_flag=True, help="Go on where the run before stopped; with -n and -t.")
@click.option("--within", "within_s", type=click.IntRange(1), default=600, show_default=True, help="Seconds; --stream.")
@click.option("--max-per-trigger", type=click.IntRange(1), help="Messages of a micro-batch; with --stream.")
@AS_JSON
@MASTER
def dedup_command(as_json: bool, master: str | None, is_stream: bool, **given: Any) -> None:
    """Write messages to TARGET as Parquet, one of each key, and beside them the duplicates.

    With --stream a run adds what is new to TARGET/table. A copy is recognized if its first message was stored at most
    --within seconds before the newest one that was read.

    \b
    rocketpy pipeline dedup --archive /archive --key SPARK_ID /tables/orders
    rocketpy pipeline dedup --stream -n 127.0.0.1:9876 -t Orders --key keys --within 3600 /tables/orders
    """

    def prepare() -> Job:
        from rocketpy.spark.jobs.dedup import dedup

        limits = {name: given.pop(name) for name in ("within_s", "max_per_trigger")}
        return _dedup_stream(given, **limits) if is_stream else partial(dedup, source=_input(given), **given)

    run_job(prepare, master, as_json)


def _dedup_stream(given: dict[str, Any], within_s: int, max_per_trigger: int | None) -> Job:
    from rocketpy.spark.jobs.dedup_stream import DedupStream, dedup_stream

    if given["store"] or given["archive"] or not given["name_server"] or not given["topics"]:
        raise ConfigError("reads topics of running brokers: name them with --name-server and --topic", key="--stream")
    if given["keep"] != "first":
        raise ConfigError("keeps the first message of a key: it is written before others are read", key="--stream")
    connection = _connection(given["name_server"], given["options"])
    wanted = DedupStream(given["name_server"], given["topics"], given["key"], within_s, connection)
    return partial(dedup_stream, wanted=wanted, target=given["target"], max_per_trigger=max_per_trigger)


@click.command("windows", short_help="Count messages in windows of time, as a stream.")
@click.option("--name-server", "-n", required=True, help="HOST:PORT;HOST:PORT of the name servers.")
@click.option("--topic", "-t", required=True, help="Topic to read.")
@OPTIONS
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--window", default="1 minute", show_default=True, help="Length of a window.")
@click.option("--slide", help="From one window to the next.  [default: they do not overlap]")
@click.option("--watermark", default="10 seconds", show_default=True, help="How late a message may be read.")
@click.option("--by", default="tags", show_default=True, help="SQL expression over tags, keys and body.")
@click.option("--sum", "amount", help="Path into bodies that are JSON, whose numbers are added up: $.amount.")
@click.option("--to-topic", help="Send the results to this topic, too.")
@click.option("--max-per-trigger", type=click.IntRange(1), help="Messages of a micro-batch.")
@click.option("--check", is_flag=True, help="Compare the table with a batch query over the same messages.")
@AS_JSON
@MASTER
def windows_command(
    as_json: bool,
    master: str | None,
    target: Path,
    to_topic: str | None,
    max_per_trigger: int | None,
    check: bool,
    options: tuple[str, ...],
    **given: Any,
) -> None:
    """Count messages in windows of time, as a stream that goes on where the run before stopped.

    \b
    TARGET gets the table (windows/) and the checkpoint.
    rocketpy pipeline windows -n 127.0.0.1:9876 -t Orders --window "10 seconds" --sum '$.amount' /tables/per-tag
    """

    def prepare() -> Job:
        from rocketpy.spark.jobs.windows import Windows, windows

        wanted = Windows(**given, connection=_connection(given["name_server"], options))
        limit = max_per_trigger
        return partial(windows, wanted=wanted, target=target, to_topic=to_topic, max_per_trigger=limit, check=check)

    run_job(prepare, master, as_json)


COMMANDS = (trace_command, stats_command, dedup_command, windows_command)


def _input(given: dict[str, Any]) -> Any:
    """Return the input of these options, which it takes out of `given`."""
    from rocketpy.spark.jobs.inputs import Input

    places = {name: given.pop(name) for name in ("name_server", "store", "archive", "topics")}
    return Input(**places, connection=connection_options(given.pop("options")))


def _connection(name_server: str, options: tuple[str, ...]) -> dict[str, str]:
    """Return the options of the connection beside nameServer. Raises ConfigError."""
    from rocketpy.spark.connection import connection_of

    others = connection_options(options)
    connection_of(name_server, others)
    return others


def run_job(prepare: Callable[[], Job], master: str | None, as_json: bool) -> None:
    """Run a job in a session, print its report, and exit: 0, 1 if a check of the result failed, 2 without result.

    `prepare` checks the arguments: before Spark is started, which takes seconds.
    """

    def run() -> int:
        job = prepare()
        with job_session(master, inline=False) as spark:
            assert spark is not None
            began_s = time.monotonic()
            report = job(spark)
            report.seconds = time.monotonic() - began_s
        print_report(report, as_json)
        return int(not report.is_sound)

    sys.exit(status_of(run))


def print_report(report: JobReport, as_json: bool) -> None:
    """Print a report: a line of JSON, or tables."""
    if as_json:
        echo(json.dumps(report.as_json(), ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for name, rows in report.tables.items():
        if rows:
            console.print(_table(name, rows))
    for name, value in report.totals.items():
        console.print(f"{name.replace('_', ' '):<24} {_text(value)}")
    for name, holds in report.checks.items():
        console.print(f"{'checked' if holds else 'DOES NOT HOLD'}: {name}")
    for path in report.files:
        console.print(f"written: {path}")
    console.print(f"{report.seconds:.1f} s")


def _table(name: str, rows: list[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    title = name.replace("_", " ") + (f" ({ROWS_SHOWN} of {len(rows)} rows)" if len(rows) > ROWS_SHOWN else "")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right", overflow="fold")
    for row in rows[:ROWS_SHOWN]:
        table.add_row(*(Text(harmless(_text(value))) for value in row.values()))  # Text: a str would be markup
    return table


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
