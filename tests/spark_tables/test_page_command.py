"""The command of docs/use/spark.md by which spark-sql reads an Iceberg table, with the packages that Spark fetches."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.spark.tables import ICEBERG
from tests.spark.test_segments import make_store
from tests.spark_tables.conftest import ROOT
from tests.spark_tables.packages import line_of
from tests.spark_tables.test_spark_reads import archive
from tests.support.doc_programs import blocks

ANSWERS_S = 900.0


def test_spark_sql_counts_the_rows(reader: str, tmp_path: Path) -> None:
    lines = "\n".join(blocks("docs/use/spark.md", "sh")).replace("\\\n", " ").splitlines()
    (command,) = (line for line in lines if line.startswith("spark-sql --packages"))
    if f"iceberg-spark-runtime-{line_of(reader)}_" not in command:
        pytest.skip(f"the page has the packages of another Spark than {reader}")
    make_store(tmp_path / "s", 300)
    archive(ICEBERG, tmp_path / "s", tmp_path / "tables/orders")
    _, *words = shlex.split(command.replace("/tables", str(tmp_path / "tables")))
    program = ROOT / f"build/reader-{reader}/pyspark/bin/spark-sql"
    settings = ["--master", "local[2]", "--conf", f"spark.jars.ivy={tmp_path / 'ivy'}"]
    done = subprocess.run(
        [str(program), *settings, *words],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ANSWERS_S,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["300"]), done.stderr
