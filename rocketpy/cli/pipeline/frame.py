"""The common parts of the commands of `rocketpy pipeline`: options, the session, progress, and the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from subprocess import SubprocessError
from typing import TYPE_CHECKING

import click

from rocketpy.admin.output import echo
from rocketpy.cli.settings import key_values
from rocketpy.errors import ConfigError, RocketError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpy.store.inspection.findings import ProgressListener

FAILED = 2
EXTRAS = {"pyspark": "spark", "pyarrow": "spark", "matplotlib": "spark", "deltalake": "spark,delta"}
EXTRAS |= dict.fromkeys(("pyiceberg", "sqlalchemy"), "spark,iceberg")
MASTER = click.option("--master", help="Spark master.  [default: that of spark-submit, otherwise local[*,3]]")
INLINE = click.option("--inline", is_flag=True, help="Run in this process, without Spark.")
OPTIONS = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the connection, like credentialsFile=FILE. May be repeated.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def connection_options(given: Iterable[str]) -> dict[str, str]:
    """Return the pairs of `--option`. Raises ConfigError."""
    return key_values(given, "--option")


@contextmanager
def job_session(
    master: str | None, inline: bool, *, has_bar: bool = True, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession | None]:
    """Open a session that shows Spark's own bar of tasks on a terminal, if `has_bar`; None with `inline`.

    Raises:
        ConfigError: the session would be one of Spark Connect.
    """
    if inline:
        yield None
        return
    remote = os.environ.get("SPARK_REMOTE") or (master if master and master.startswith("sc://") else "")
    if remote:
        raise ConfigError(
            f"{remote} (SPARK_REMOTE or master) is Spark Connect: jobs need a master like local[*], and no SPARK_REMOTE"
        )
    from rocketpy.spark.session import session

    ours = {"spark.ui.showConsoleProgress": str(has_bar and sys.stderr.isatty()).lower(), "spark.log.level": "ERROR"}
    spark = session(master, name="rocketpy pipeline", config=ours | dict(config or {}), advises=False)
    try:
        yield spark
    except (KeyboardInterrupt, SystemExit):  # a signal, in the middle of a talk with the JVM: it ends with this process
        raise
    except BaseException:
        spark.stop()
        raise
    spark.stop()


def job_progress(inline: bool) -> AbstractContextManager[ProgressListener]:
    """Show our own bar where Spark does not show one."""
    from rocketpy.cli.store_progress import StoreProgress
    from rocketpy.store.inspection.findings import NoListener

    return StoreProgress() if inline else nullcontext(NoListener())


def is_of_spark(error: Exception) -> bool:
    """Return True for an error of Spark or its connection; also if a worker has raised it."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def status_of(job: Callable[[], int]) -> int:
    """Return the exit status of a job; its failure is one line on standard error."""
    try:
        return job()
    except (RocketError, OSError, SubprocessError) as exc:
        echo(f"rocketpy: {exc}", err=True)
    except ModuleNotFoundError as exc:
        extra = EXTRAS.get((exc.name or "").split(".")[0])
        if extra is None:
            raise
        echo(f'rocketpy: {exc.name} is not installed: pip install "rocketpy-mq[{extra}]"', err=True)
    except Exception as exc:
        if not is_of_spark(exc):
            raise
        from rocketpy.spark.session import reason_of

        echo(f"rocketpy: {reason_of(exc)}", err=True)
    return FAILED
