"""`rocketpy pipeline JOB`: the jobs of rocketpy.spark. spark-submit can run this file, too.

Exit status: 0 done and sound, 1 findings, 2 the job could not be done.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from rocketpy.startup.cli.pipeline_analytics import COMMANDS
from rocketpy.startup.cli.pipeline_demo import demo_command
from rocketpy.startup.cli.pipeline_frame import AS_JSON, INLINE, MASTER, job_progress, job_session, status_of
from rocketpy.startup.cli.pipeline_rebuild import rebuild_command
from rocketpy.startup.cli.pipeline_replay import replay_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def pipeline() -> None:
    """Work on whole stores, on Spark. Needs the extra: pip install "rocketpy-mq[spark]", and Java 17.

    \b
    Exit status: 0 done, 1 there are findings, 2 the job could not be done.
    On a cluster: spark-submit --master spark://HOST:7077 .../rocketpy/startup/cli/pipeline.py JOB ...
    """


@pipeline.command("audit")
@click.argument("directory", type=click.Path())
@click.option("--commitlog", default="", help="Directory of the CommitLog, if it is not DIRECTORY/commitlog.")
@click.option("--hash-slots", "slots", type=click.IntRange(1), help="maxHashSlotNum, if it is not the default.")
@click.option("--findings", type=click.Path(dir_okay=False), help="Write the problems to this Parquet file, too.")
@click.option(
    "--fail-on", default="", help="Codes of problems that make the exit status 1, like C1,C2.  [default: all]"
)
@AS_JSON
@MASTER
@INLINE
def audit_command(directory: str, master: str | None, inline: bool, **given: Any) -> None:
    """Check every record, unit and index entry of a store, as `rocketpy store verify` does, on many cores.

    DIRECTORY must be at the same path on every worker. It is not changed.

    \b
    Codes: C1 no record, C2 CRC, C3 own offset, C4 behind the log's end, C5 files of the log, Q1 queue offsets,
    Q2 unit, Q3 missing units, Q4 files of queues, I1 index, S1 control block.
    """
    sys.exit(status_of(lambda: _audit(Path(directory), master, inline, **given)))


def _audit(
    directory: Path,
    master: str | None,
    inline: bool,
    commitlog: str,
    slots: int | None,
    findings: str | None,
    fail_on: str,
    as_json: bool,
) -> int:
    from rocketpy.spark.jobs.audit import audit, fatal_codes, write_findings
    from rocketpy.startup.cli.store_tools import print_report

    fatal = fatal_codes(fail_on)
    with job_session(master, inline) as spark, job_progress(inline) as listener:
        began_s = time.monotonic()
        report = audit(spark, directory, commitlog=commitlog, slots=slots, listener=listener)
        seconds = time.monotonic() - began_s
    print_report(report, seconds, as_json)
    if findings:  # last: hours of work are not lost for a file that cannot be written
        write_findings(report, Path(findings))
    return int(any(problem.code in fatal for problem in report.problems))


@pipeline.command("archive")
@click.argument("directory", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--broker", required=True, help="Name of the broker; tells the stores in one archive apart.")
@click.option("--allow-gap", is_flag=True, help="Go on where records were deleted before they were archived.")
@click.option("--compact", is_flag=True, help="Then merge small files. Nothing should be reading the archive.")
@click.option("--live-tail", is_flag=True, help="A broker is writing: its unfinished record ends the log.")
@click.option("--skip-damage", is_flag=True, help="Go on behind damage; what it was is in the table of bad rows.")
@MASTER
@INLINE
def archive_command(directory: str, target: str, master: str | None, inline: bool, **given: Any) -> None:
    """Write what is new in a store to Parquet files: TARGET/topic=T/dt=YYYY-MM-DD/BROKER-OFFSET.parquet.

    The first run archives the whole store, a later one goes on behind it. A run may be cut short and repeated: each
    record is in the archive once. What cannot be read is in TARGET/_rocketpy/BROKER/bad, with bytes and reason.

    Prints a line of JSON. Exit status 1: there are new bad rows.
    """
    sys.exit(status_of(lambda: _archive(Path(directory), Path(target), master, inline, given)))


def _archive(directory: Path, target: Path, master: str | None, inline: bool, given: dict[str, Any]) -> int:
    from rocketpy.spark.jobs.archive import archive
    from rocketpy.spark.jobs.compact import compact

    is_compacting = given.pop("compact")
    with job_session(master, inline) as spark:
        began_s = time.monotonic()
        manifests = archive(spark, directory, target, **given)
        merged = compact(spark, target, given["broker"]) if is_compacting else None
        seconds = time.monotonic() - began_s
    bad_rows = sum(file.rows for manifest in manifests for file in manifest.bad)
    report = {
        "rows": sum(manifest.rows for manifest in manifests),
        "bad_rows": bad_rows,
        "files": sum(len(manifest.files) for manifest in manifests),
        "bytes": sum(file.bytes for manifest in manifests for file in manifest.files),
        "begin": manifests[0].begin if manifests else None,
        "end": manifests[-1].end if manifests else None,
        "merged_files": len(merged.removed) if merged else 0,
        "seconds": round(seconds, 3),
    }
    click.echo(json.dumps(report))
    return int(bad_rows > 0)


for command in (rebuild_command, replay_command, *COMMANDS, demo_command):
    pipeline.add_command(command)

if __name__ == "__main__":
    pipeline(prog_name="pipeline")
