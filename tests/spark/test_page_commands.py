"""Commands and SQL of docs/use/spark.md and spark-cluster.md: the parser takes each command, the rest runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import rocketpy.spark
from rocketpy.cli.pipeline import archive, main
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.spark.jobs.table_archive import archive_store
from tests.spark.jvm import train
from tests.spark.tables import FORMATS, ICEBERG, Format
from tests.spark.test_segments import make_store
from tests.support.broker import RunningBroker
from tests.support.doc_examples import ROOT
from tests.support.doc_programs import blocks, output_of
from tests.support.readers import readable, wait_for_readers

PAGES = ("docs/use/spark.md", "docs/use/spark-cluster.md")
SCRIPTS = [block for page in PAGES for block in blocks(page, "sh")]
BEGINS = re.compile(r"rocketpy pipeline |.*spark-submit .*\"\$JOBS\" ")
"""What stands before the name of a job."""
PROGRAMS = re.findall(r"python -c '(.*?)'", "\n".join(SCRIPTS), re.DOTALL)
TABLE = "/tables/orders"
DEADLINE_S = 600.0


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


def statements_of(broker: RunningBroker) -> str:
    (text,) = blocks("docs/use/spark.md", "sql")
    return re.sub(r"--.*", "", text.replace("127.0.0.1:9876", broker.namesrv))


def test_a_table_of_the_catalog_is_made_and_filled(spark: Any, broker: RunningBroker) -> None:
    where = {"nameServer": broker.namesrv, "topic": "Numbers"}
    row = spark.sql("SELECT cast('6' AS binary) AS body, 't0' AS tags")
    row.write.format("rocketmq").mode("append").options(**where).save()  # the page's first steps make the topic
    try:
        for statement in statements_of(broker).split(";"):
            spark.sql(statement)
        wait_for_readers(broker.port)
        found = spark.sql("SELECT cast(body AS string) AS body, tags FROM numbers").collect()
        assert {(row.body, row.tags) for row in found} == {("6", "t0"), ("7", "t1")}
    finally:
        spark.sql("DROP TABLE IF EXISTS numbers")
    assert rocketpy.spark.read(spark, **where).count() == 2


def test_the_same_in_spark_sql(java: None, broker: RunningBroker, tmp_path: Path) -> None:
    """A program of the JVM alone: it finds the source as an installed package, and its catalog is Hive's."""
    train()  # its flags reach the new process
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        readable([producer.send(Message("Lines", b"6", tags="t0"))])
    statements = statements_of(broker).replace("'Numbers'", "'Lines'")
    script = f"{statements}; SELECT cast(body AS string), tags FROM numbers ORDER BY 1"
    words = [str(Path(sys.executable).parent / "spark-sql"), "--master", "local[2,3]", "-e", script]
    words[1:1] = ["--conf", "spark.driver.memory=1g"]
    paths = {"PYTHONPATH": f"{ROOT / 'rocketpy/spark/shims'}:{ROOT}", "PYSPARK_PYTHON": sys.executable}
    environment = os.environ | paths | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["6", "t0", "7", "t1"]), done.stderr
