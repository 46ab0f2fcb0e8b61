"""`rocketpy pipeline demo`: starts a broker of its own and shows what Spark does with it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from rocketpy.cli.child_server import ChildServer, stop_all
from rocketpy.cli.pipeline.analytics import print_report
from rocketpy.cli.pipeline.frame import AS_JSON, FAILED, MASTER, job_progress, job_session, status_of
from rocketpy.errors import ConfigError

PORT_MIN, PORT_MAX = 12_000, 32_000  # below the range from which the kernel takes ports of connections
SPARK_LOG = "spark.log"
REPORT = "report.json"  # marks a directory as one of a demo, which the next one may replace


@click.command("demo", short_help="A million messages through a broker, a stream and an archive.")
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@click.option("--messages", "count", type=click.IntRange(1), default=1_000_000, show_default=True)
@AS_JSON
@MASTER
def demo_command(target: Path, count: int, as_json: bool, master: str | None) -> None:
    """Send a million messages to a broker, read them as a table and as a stream, archive them, and plot it all.

    The broker is started for it and stopped afterwards. Its store, the results, two plots, and the logs of broker and
    Spark are in TARGET.
    """
    sys.exit(status_of(lambda: _demo(target, count, as_json, master)))


def _demo(target: Path, count: int, as_json: bool, master: str | None) -> int:
    from rocketpy.spark.jobs.demo import Demo

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    target = target.absolute()
    _make_empty(target)
    began_s = time.monotonic()
    say("starting Spark ...")
    with ExitStack() as stack:
        with _errors_to(target / SPARK_LOG):
            spark = stack.enter_context(job_session(master, inline=False, has_bar=False))
        assert spark is not None
        with running_broker(target) as name_server, job_progress(inline=True) as listener:
            say(f"{'broker':<8} name server at {name_server}, store in {target / 'store'}")
            report = Demo(spark, name_server, target, count, listener, say).run()
    report.seconds = time.monotonic() - began_s
    (target / REPORT).write_text(json.dumps(report.as_json()))
    if not as_json:
        report.tables = {}  # each step was told when it was done
    print_report(report, as_json)
    return int(not report.is_sound)


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Send standard error to a file meanwhile: Spark and its workers write much that is no error."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _make_empty(target: Path) -> None:
    """Raises ConfigError for a directory with anything but the results of an earlier demo."""
    if target.is_dir() and any(target.iterdir()):
        if not (target / REPORT).exists():
            raise ConfigError(f"{target} is not empty: name another directory")
        shutil.rmtree(target)
    target.mkdir(parents=True, exist_ok=True)
    (target / REPORT).write_text("{}")


@contextmanager
def running_broker(target: Path) -> Iterator[str]:
    """Run a broker and a name server on free ports with their store in `target`, stopped at the end.

    Yields: the address of the name server.
    Raises:
        ConfigError: it did not start; its log is in `target`.
    """
    port = _free_port()
    words = ["standalone", "--store", str(target / "store"), "--port", str(port)]
    words += ["--namesrv-port", str(port + 2), "--metrics-port", "0"]
    with _stopped_by_signals():
        broker = ChildServer.started("the broker", words, target / "broker.log")
        try:
            broker.wait_until_ready()
            yield f"127.0.0.1:{port + 2}"
        finally:
            stop_all([broker])


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT end this process as an exception does, so that the broker is stopped. PySpark's own handler of
    SIGINT asks Spark first, which may not answer."""
    handled = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: sys.exit(FAILED)) for number in handled]
    try:
        yield
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)


def _free_port() -> int:
    """Free now, as are the ports beside it that a broker and a name server need."""
    while True:
        port = random.randrange(PORT_MIN, PORT_MAX)
        with ExitStack() as stack:
            try:
                for number in (port - 2, port, port + 1, port + 2):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            return port
