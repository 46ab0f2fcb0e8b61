"""`rocketpy pipeline JOB`: the jobs of rocketpy.spark. spark-submit can run this file, too.

Exit status: 0 done and sound, 1 findings, 2 the job could not be done.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from rocketpy.cli.pipeline.analytics import COMMANDS
from rocketpy.cli.pipeline.archive import archive_command
from rocketpy.cli.pipeline.demo import demo_command
from rocketpy.cli.pipeline.frame import AS_JSON, INLINE, MASTER, job_progress, job_session, status_of
from rocketpy.cli.pipeline.rebuild import rebuild_command
from rocketpy.cli.pipeline.replay import replay_command
from rocketpy.cli.pipeline.run import run_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def pipeline() -> None:
    """Work on whole stores and topics, on Spark.

    \b
    Needs Java 17 and the extra: pip install "rocketpy-mq[spark]". docs/use/spark.md has examples.
    Exit status: 0 done, 1 there are findings, 2 the job could not be done.
    On a cluster: spark-submit --master spark://HOST:7077 .../rocketpy/cli/pipeline/main.py JOB ...
    """


@pipeline.command("audit", short_help="Check every record, unit and index entry of a store.")
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
    Codes: C1 no record, C2 CRC, C3 own offset, C4 past the log's end, C5 files of the log, Q1 queue offsets,
    Q2 unit, Q3 missing units, Q4 files of queues, I1 index, I2 keys without an index entry, S1 control block.
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
    from rocketpy.cli.store_tools import print_report
    from rocketpy.spark.jobs.audit import audit, fatal_codes, write_findings

    fatal = fatal_codes(fail_on)
    with job_session(master, inline) as spark, job_progress(inline) as listener:
        began_s = time.monotonic()
        report = audit(spark, directory, commitlog=commitlog, slots=slots, listener=listener)
        seconds = time.monotonic() - began_s
    print_report(report, seconds, as_json)
    if findings:  # last: hours of work are not lost for a file that cannot be written
        write_findings(report, Path(findings))
    return int(any(problem.code in fatal for problem in report.problems))


for command in (archive_command, rebuild_command, replay_command, run_command, *COMMANDS, demo_command):
    pipeline.add_command(command)

if __name__ == "__main__":
    pipeline(prog_name="pipeline")
