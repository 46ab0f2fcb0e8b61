"""`rocketpy pipeline replay`."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy.cli.pipeline.frame import (
    INLINE,
    MASTER,
    OPTIONS,
    connection_options,
    job_progress,
    job_session,
    status_of,
)
from rocketpy.errors import ConfigError, NumberInvalid
from rocketpy.message.numbers import LONG_MAX, parse_integer


@click.command("replay", short_help="Send the messages of an archive to topics again.")
@click.argument("archive", type=click.Path())
@click.option("-n", "--name-server", required=True, metavar="HOST:PORT;...", help="Name servers of the target.")
@click.option(
    "--ledger", required=True, type=click.Path(), help="Directory that says what is done; new for each replay."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[=TARGET]",
    help="Archived topic, and the topic that gets its messages. May be repeated.  [default: all but system topics]",
)
@click.option("--into", metavar="TOPIC", help="The topic that gets the messages of all topics.")
@click.option("--from", "from_time", metavar="TIME", help="Stored at or after: 2026-11-22T10:00:00+00:00, or ms.")
@click.option("--to", "to_time", metavar="TIME", help="Stored before.")
@click.option("--keys", default="", help="Only messages with one of these keys, separated by commas.")
@click.option("--where", metavar="SQL92", help="Only messages that match: properties, and columns like queueOffset.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages per second, of all workers together.")
@OPTIONS
@MASTER
@INLINE
def replay_command(archive: str, ledger: str, master: str | None, inline: bool, **given: Any) -> None:
    """Send the messages of an archive to topics again, then read them back and compare.

    Each source queue keeps its order. Messages have the properties ORIGIN_TOPIC, ORIGIN_BROKER, ORIGIN_QUEUE,
    ORIGIN_OFFSET and ORIGIN_MSG_ID. After a run that was cut short, the same command goes on: messages that the ledger
    does not say done are sent again, and counted as duplicates if they were stored before.

    Prints a line of JSON. Exit status 1: messages are missing or changed, or could not be sent.
    """
    sys.exit(status_of(lambda: _replay(Path(archive), Path(ledger), master, inline, **given)))


def _replay(
    archive: Path,
    ledger: Path,
    master: str | None,
    inline: bool,
    name_server: str,
    topics: tuple[str, ...],
    into: str | None,
    from_time: str | None,
    to_time: str | None,
    keys: str,
    where: str | None,
    rate: float | None,
    options: tuple[str, ...],
) -> int:
    from rocketpy.spark.jobs.replay import replay
    from rocketpy.spark.jobs.replay.plan import Wanted

    wanted = Wanted(
        topics={name: target or into or name for name, _, target in (topic.partition("=") for topic in topics)},
        into=into,
        from_ms=_time_ms(from_time, "--from"),
        to_ms=_time_ms(to_time, "--to"),
        keys=frozenset(key for key in keys.split(",") if key),
        where=where,
    )
    connection = connection_options(options)
    with job_session(master, inline) as spark, job_progress(inline) as listener:
        began_s = time.monotonic()
        done = replay(
            spark, archive, ledger, wanted, {**connection, "nameServer": name_server}, rate=rate, listener=listener
        )
        seconds = round(time.monotonic() - began_s, 3)
    click.echo(json.dumps(attrs.asdict(done) | {"seconds": seconds}))
    return int(not done.is_sound)


def _time_ms(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    with suppress(NumberInvalid):
        return parse_integer(text, 0, LONG_MAX)
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{text} is no time: {error}", key=option) from error
