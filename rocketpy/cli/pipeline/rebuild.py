"""`rocketpy pipeline rebuild`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy.cli.pipeline.frame import INLINE, MASTER, job_progress, job_session, status_of


@click.command("rebuild", short_help="Make the queues and the index of a store anew.")
@click.argument("directory", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--commitlog", default="", help="Directory of the CommitLog, if it is not DIRECTORY/commitlog.")
@click.option("-c", "--config", help="Configuration file of the broker.  [default: sizes of the files that are there]")
@click.option("--publish", is_flag=True, help="Then swap them for those of the store. No broker may be using it.")
@click.option("--skip-damage", is_flag=True, help="Go on after damaged records, instead of failing.")
@MASTER
@INLINE
def rebuild_command(directory: str, target: str, master: str | None, inline: bool, **given: Any) -> None:
    """Make the consume queues and the index of a store anew, from its log, in the new directory TARGET.

    DIRECTORY is only read, unless --publish is given; its old files are then in TARGET/replaced. If TARGET has a
    complete rebuild, --publish takes that. Prints a line of JSON. Exit status 1: damage was left out.
    """
    sys.exit(status_of(lambda: _rebuild(Path(directory), Path(target), master, inline, **given)))


def _rebuild(
    directory: Path,
    target: Path,
    master: str | None,
    inline: bool,
    commitlog: str,
    config: str | None,
    publish: bool,
    skip_damage: bool,
) -> int:
    from rocketpy.config import load_broker_config
    from rocketpy.spark.jobs import rebuild as job
    from rocketpy.store.rebuilding.rebuild import MANIFEST, read_manifest

    settings = load_broker_config(config, environ=os.environ).store if config else None
    began_s = time.monotonic()
    if publish and (target / MANIFEST).exists():
        rebuilt = read_manifest(target)
    else:
        with job_session(master, inline) as spark, job_progress(inline) as listener:
            began_s = time.monotonic()
            rebuilt = job.rebuild(
                spark,
                directory,
                target,
                commitlog=commitlog,
                config=settings,
                skip_damage=skip_damage,
                listener=listener,
            )
    if publish:
        job.publish(directory, target, commitlog)
    seconds = round(time.monotonic() - began_s, 3)
    click.echo(json.dumps(attrs.asdict(rebuilt) | {"published": publish, "seconds": seconds}))
    return int(bool(rebuilt.damages))
