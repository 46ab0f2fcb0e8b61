"""`rocketpy pipeline archive`: a store, or topics of running brokers, as Parquet files, a Delta or an Iceberg table."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from rocketpy.cli.pipeline.frame import INLINE, MASTER, OPTIONS, is_of_spark, job_progress, job_session, status_of
from rocketpy.cli.pipeline.stopping import Stop, stopped_by_signals
from rocketpy.cli.settings import key_values
from rocketpy.errors import ConfigError, RocketError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpy.spark.jobs.archive_log import Manifest
    from rocketpy.spark.jobs.table_archive import TableArchive
    from rocketpy.store.inspection.findings import ProgressListener

OF_STORE = {"broker": "--broker", "live_tail": "--live-tail", "skip_damage": "--skip-damage"}
OF_TOPICS = {"topics": "--topic", "options": "--option"}
OF_PARQUET = {"skip_damage": "--skip-damage"}
OF_TABLES = {"storage_options": "--storage-option", "vacuum_days": "--vacuum"}
OF_ICEBERG = {"table_name": "--table"}
FOREIGN = {"parquet": OF_TABLES | OF_ICEBERG, "delta": OF_PARQUET | OF_ICEBERG, "iceberg": OF_PARQUET}
OF_BOTH = ("allow_gap", "commit_bytes", "is_stopped")  # arguments of both jobs
FAULTS_MAX = 8  # of Spark, in a row: the delays between them are two minutes
REFUSED = re.compile(r"rocketpy\.errors\.(?:RecordCorrupt|StoreError): ")  # by a worker


@click.command("archive", short_help="A store, or topics, as Parquet files or a table.")
@click.argument("places", nargs=-1, metavar="[DIRECTORY] TARGET")
@click.option("--broker", help="Name of the broker of DIRECTORY; tells the stores in one archive apart.")
@click.option("-n", "--name-server", metavar="HOST:PORT;...", help="Read topics of running brokers, not a DIRECTORY.")
@click.option("-t", "--topic", "topics", multiple=True, help="Topic to archive, with -n. May be repeated.")
@click.option("--allow-gap", is_flag=True, help="Go on where records were deleted before they were archived.")
@click.option(
    "--compact", is_flag=True, help="Then merge small files. With --format parquet nothing should be reading."
)
@click.option(
    "--commit-bytes",
    type=click.IntRange(1),
    help="Commit after about so many bytes: a killed run goes on from there.  [default: 2 GiB; tables: 128 MiB]",
)
@click.option("--continuous", is_flag=True, help="Go on with what is new until SIGTERM. Implies --live-tail.")
@click.option(
    "--interval",
    "interval_s",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Seconds from run to run, with --continuous.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Files with manifests, or a Delta or Iceberg table, which this process writes without Spark.",
)
@click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of deltalake or pyiceberg, like aws_endpoint=URL or s3.endpoint=URL. May be repeated.",
)
@click.option(
    "--table", "table_name", metavar="NAMESPACE.NAME", help="Iceberg: name in the catalog.  [rocketmq.TARGET]"
)
@click.option(
    "--vacuum", "vacuum_days", type=click.IntRange(0), help="Tables: then remove versions older than so many days."
)
@click.option("--live-tail", is_flag=True, help="A broker is writing: its unfinished record ends the log.")
@click.option("--skip-damage", is_flag=True, help="Go on after damage; damaged bytes go to the table of bad rows.")
@OPTIONS
@MASTER
@INLINE
def archive_command(places: tuple[str, ...], master: str | None, inline: bool, **given: Any) -> None:
    """Write what is new in a store, or in topics, to Parquet files: TARGET/topic=T/dt=YYYY-MM-DD/BROKER-….parquet, or
    to the table TARGET, a directory or a URL like s3://BUCKET/TABLE.

    The first run archives all that is there, a later one goes on after it. A run may be cut short and repeated: each
    record is in the archive once. What cannot be read of a store is in TARGET/_rocketpy/BROKER/bad, with the reason.

    \b
    rocketpy pipeline archive --broker broker-a /var/lib/rocketpy/store /archive
    rocketpy pipeline archive -n 127.0.0.1:9876 -t Orders /archive
    rocketpy pipeline archive -n 127.0.0.1:9876 -t Orders --format delta --continuous /tables/orders

    Prints a line of JSON; with --continuous one for each run that has archived something. Exit status 1: there are new
    bad rows.
    """
    sys.exit(status_of(lambda: _archive(places, master, inline, given)))


def _archive(places: tuple[str, ...], master: str | None, inline: bool, given: dict[str, Any]) -> int:
    _check(places, given)
    inline = inline or given["format_name"] != "parquet"
    if not given["continuous"]:
        with job_session(master, inline) as spark, job_progress(inline) as listener:
            return _run(spark, places, given, listener)
    given["live_tail"] = not given["name_server"]
    with stopped_by_signals() as stop, job_session(master, inline, has_bar=False) as spark:
        return _follow(spark, places, given, stop)


def _follow(spark: SparkSession | None, places: tuple[str, ...], given: dict[str, Any], stop: Stop) -> int:
    """Run until SIGTERM. An error that may pass is tried again: FAULTS_MAX times in a row if it is of Spark."""
    from rocketpy.spark.jobs.supervisor import delay_s, is_final
    from rocketpy.spark.session import reason_of
    from rocketpy.store.inspection.findings import NoListener  # which needs the compiled core

    given["is_stopped"], status, faults = lambda: stop.is_set, 0, 0
    while not stop.is_set:
        wait_s = float(given["interval_s"])
        try:
            status |= _run(spark, places, given, NoListener())
            faults = 0
        except RocketError as error:
            if not error.retriable:
                raise
            click.echo(f"rocketpy: {error}; the next run is in {wait_s:.0f} s", err=True)
        except Exception as error:
            if not is_of_spark(error) or is_final(error) or REFUSED.search(str(error)):
                raise
            if (faults := faults + 1) == FAULTS_MAX:
                raise RocketError(f"Spark has failed {faults} times in a row: {reason_of(error)}") from error
            wait_s = delay_s(faults)
            click.echo(f"rocketpy: {reason_of(error)}; the next run is in {wait_s:.0f} s", err=True)
        stop.wait(wait_s)
    return status


def _run(spark: SparkSession | None, places: tuple[str, ...], given: dict[str, Any], listener: ProgressListener) -> int:
    """Archive what is new. Returns the exit status."""
    if given["format_name"] != "parquet":
        return _run_table(places, given)
    from rocketpy.spark.jobs.compact import compact

    target, run = Path(places[-1]), _of_topics if given["name_server"] else _of_store
    began_s = time.monotonic()
    manifests = run(spark, places, given, listener)
    merged = [compact(spark, target, broker) for broker in _brokers(target, given)] if given["compact"] else []
    seconds = time.monotonic() - began_s
    bad_rows = sum(file.rows for manifest in manifests for file in manifest.bad)
    report = {
        "rows": sum(manifest.rows for manifest in manifests),
        "bad_rows": bad_rows,
        "files": sum(len(manifest.files) for manifest in manifests),
        "bytes": sum(file.bytes for manifest in manifests for file in manifest.files),
        "begin": manifests[0].begin if manifests and not manifests[0].positions else None,
        "end": manifests[-1].end if manifests and not manifests[-1].positions else None,
        "merged_files": sum(len(one.removed) for one in merged if one is not None),
        "seconds": round(seconds, 3),
    }
    if manifests or not given["continuous"]:
        click.echo(json.dumps(report))
    return int(bad_rows > 0)


def _run_table(places: tuple[str, ...], given: dict[str, Any]) -> int:
    """As `_run`, into a table."""
    from rocketpy.spark.jobs.table_archive import archive_store, archive_topics

    began_s = time.monotonic()
    table = _opened(places[-1], given)
    chosen = _chosen(given, OF_BOTH)
    if given["name_server"]:
        archive_topics(table, given["topics"], _connection(given), **chosen)
    else:
        archive_store(table, Path(places[0]), given["broker"], live_tail=given["live_tail"], **chosen)
    if given["compact"]:
        table.compact()
    if given["vacuum_days"] is not None:
        table.vacuum(given["vacuum_days"])
    report = table.done()
    if report.commits or not given["continuous"]:
        click.echo(json.dumps(attrs.asdict(report) | {"seconds": round(time.monotonic() - began_s, 3)}))
    return int(report.unreadable > 0)


def _opened(target: str, given: dict[str, Any]) -> TableArchive:
    options = key_values(given["storage_options"], "--storage-option")
    if given["format_name"] == "delta":
        from rocketpy.spark.jobs.delta_archive import DeltaArchive

        return DeltaArchive.opened(target, options)
    from rocketpy.spark.jobs.iceberg_archive import IcebergArchive

    return IcebergArchive.opened(target, options, given["table_name"])


def _check(places: tuple[str, ...], given: dict[str, Any]) -> None:
    """Raises ConfigError for options that do not go together."""
    is_store = not given["name_server"]
    if len(places) != 1 + is_store:
        wanted = "DIRECTORY and TARGET are needed, or -n, -t and TARGET" if is_store else "with -n only TARGET is named"
        raise ConfigError(wanted)
    for name, option in (OF_TOPICS if is_store else OF_STORE).items():
        if given[name]:
            raise ConfigError("belongs to topics (-n)" if is_store else "belongs to a store, not to -n", key=option)
    format_name = given["format_name"]
    for name, option in FOREIGN[format_name].items():
        if given[name] not in (None, False, ()):
            raise ConfigError(f"does not belong to --format {format_name}", key=option)
    if format_name == "parquet":
        _check_directory(places[-1])
    if is_store and not given["broker"]:
        raise ConfigError("is needed: it tells the stores in one archive apart", key="--broker")


def _check_directory(target: str) -> None:
    """Raises ConfigError or StoreError if Parquet files cannot be archived there."""
    if "://" in target:
        raise ConfigError(f"{target} is in an object store, where --format parquet cannot commit: use delta or iceberg")
    from rocketpy.spark.jobs.table_archive import check_free

    check_free(target, "parquet")


def _of_store(
    spark: SparkSession | None, places: tuple[str, ...], given: dict[str, Any], listener: ProgressListener
) -> list[Manifest]:
    from rocketpy.spark.jobs.archive import archive

    names = ("broker", "live_tail", "skip_damage", *OF_BOTH)
    return archive(spark, Path(places[0]), Path(places[1]), **_chosen(given, names), listener=listener)


def _of_topics(
    spark: SparkSession | None, places: tuple[str, ...], given: dict[str, Any], listener: ProgressListener
) -> list[Manifest]:
    from rocketpy.spark.jobs.archive_topics import archive_topics

    chosen = _chosen(given, OF_BOTH)
    return archive_topics(spark, Path(places[-1]), given["topics"], _connection(given), **chosen, listener=listener)


def _connection(given: dict[str, Any]) -> dict[str, str]:
    return {**key_values(given["options"], "--option"), "nameServer": given["name_server"]}


def _chosen(given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


def _brokers(target: Path, given: dict[str, Any]) -> list[str]:
    """Whose files are merged: all brokers of the archive, if topics of several were read."""
    from rocketpy.spark.jobs.archive_log import manifests_of

    if given["broker"]:
        return [given["broker"]]
    return [broker for broker, manifests in manifests_of(target).items() if manifests and manifests[-1].positions]
