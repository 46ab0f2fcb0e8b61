"""Commands and SQL of docs/use/spark.md and spark-cluster.md: the parser takes each command, the rest runs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import rocketpy.spark
from rocketpy.cli.pipeline import archive, main
from rocketpy.spark.jobs.table_archive import archive_store
from tests.spark.tables import FORMATS, ICEBERG, Format
from tests.spark.test_segments import make_store
from tests.support.broker import RunningBroker
from tests.support.doc_programs import blocks, output_of
from tests.support.readers import wait_for_readers

PAGES = ("docs/use/spark.md", "docs/use/spark-cluster.md")
SCRIPTS = [block for page in PAGES for block in blocks(page, "sh")]
BEGINS = re.compile(r"rocketpy pipeline |.*spark-submit .*\"\$JOBS\" ")
"""What stands before the name of a job."""
PROGRAMS = re.findall(r"python -c '(.*?)'", "\n".join(SCRIPTS), re.DOTALL)
TABLE = "/tables/orders"


def commands() -> Iterator[str]:
    """The name and the arguments of each job, as the pages write them."""
    for script in SCRIPTS:
        for line in script.replace("\\\n", " ").splitlines():
            if begin := BEGINS.match(line):
                yield line[begin.end() :]


def parsed(line: str) -> dict[str, Any]:
    """What the parser of a job makes of its arguments. Raises click.UsageError."""
    name, *words = shlex.split(line, comments=True)
    return main.pipeline.commands[name].make_context(name, words).params


@pytest.mark.parametrize("line", list(commands()), ids=lambda line: " ".join(line.split()[:3]))
def test_a_command_is_taken_by_its_parser(line: str) -> None:
    given = parsed(line)
    if line.startswith("archive "):
        archive._check(given["places"], given)  # of options that do not go together


def test_commands_of_every_job_are_found() -> None:
    """`run` stands in a sentence, with a file below it that another test starts."""
    assert {line.split()[0] for line in commands()} == main.pipeline.commands.keys() - {"run"}
    assert len(list(commands())) >= 16
    with pytest.raises(click.UsageError, match="No such option"):
        parsed("archive --no-such-option /archive")


def test_the_file_of_jobs_is_found() -> None:
    (program,) = (text for text in PROGRAMS if "__file__" in text)
    assert Path(output_of([sys.executable, "-c", program]).strip()) == Path(main.__file__)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_a_version_of_a_table_is_read(kind: Format, tmp_path: Path) -> None:
    (program,) = (text for text in PROGRAMS if TABLE in text and kind.name in text)
    make_store(tmp_path / "s", 300)
    target = tmp_path / TABLE.strip("/")
    archive_store(kind.opened(target), tmp_path / "s", "b", commit_bytes=2000)
    version = ICEBERG.table(target).snapshots()[0].snapshot_id if kind is ICEBERG else 7
    rows = kind.rows(target, version).num_rows
    assert 0 < rows < 300
    assert f"[{rows} rows x " in output_of([sys.executable, "-c", program.replace(TABLE, str(target))])


def test_a_table_of_the_catalog_is_made_and_filled(spark: Any, broker: RunningBroker) -> None:
    (text,) = blocks("docs/use/spark.md", "sql")
    where = {"nameServer": broker.namesrv, "topic": "Numbers"}
    row = spark.sql("SELECT cast('6' AS binary) AS body, 't0' AS tags")
    row.write.format("rocketmq").mode("append").options(**where).save()  # the page's first steps make the topic
    statements = re.sub(r"--.*", "", text.replace("127.0.0.1:9876", broker.namesrv)).split(";")
    try:
        for statement in statements:
            spark.sql(statement)
        wait_for_readers(broker.port)
        found = spark.sql("SELECT cast(body AS string) AS body, tags FROM numbers").collect()
        assert {(row.body, row.tags) for row in found} == {("6", "t0"), ("7", "t1")}
    finally:
        spark.sql("DROP TABLE IF EXISTS numbers")
    assert rocketpy.spark.read(spark, **where).count() == 2
