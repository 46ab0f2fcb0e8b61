"""A Spark that reads tables, in a process of its own: any version, with the packages of the table formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jvm import FLAGS, OPTIONS
from tests.support.waiting import is_readable

HERE = Path(__file__).parent
ANSWERS_S = 900.0
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # tests vacuum what is seconds old
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # others read Spark's INT96 as nanoseconds
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


class SqlError(Exception):
    """Spark has refused a statement."""


class Sql:
    """The process. `rows` raises SqlError with Spark's words."""

    def __init__(self, jars: Path, formats: Collection[str], pyspark: Path, directory: Path) -> None:
        """Start the Spark of the directory `pyspark` with the packages in `jars`, which are of these formats."""
        self.formats = formats
        settings = SETTINGS | {
            "spark.sql.extensions": ",".join(EXTENSIONS[name] for name in formats),
            "spark.jars": ",".join(map(str, sorted(jars.iterdir()))),  # behind Spark's own, as `--packages` puts them
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        environment = os.environ | {"PYTHONPATH": str(pyspark), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
        environment[OPTIONS] = " ".join(FLAGS)
        command = [sys.executable, "-P", str(HERE / "sql_process.py")]
        command += [f"{key}={value}" for key, value in settings.items()]
        self._log = directory / "sql.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.version: str = self._answer()[0]["version"]

    def begin(self, catalogs: Mapping[str, Mapping[str, str]]) -> None:
        """Begin a session of its own, with catalogs of Iceberg; skip the test if there is no package of Iceberg."""
        if catalogs and "iceberg" not in self.formats:
            pytest.skip(f"Iceberg has no package for Spark {self.version}")
        self._ask(None)
        for name, properties in catalogs.items():
            self.rows(f"SET spark.sql.catalog.{name} = org.apache.iceberg.spark.SparkCatalog")
            for key, value in properties.items():
                self.rows(f"SET `spark.sql.catalog.{name}.{key}` = `{value}`")

    def rows(self, statement: str) -> list[dict[str, Any]]:
        return self._ask(statement)

    def stop(self) -> None:
        """Kill it; its JVM ends with it."""
        self.process.kill()
        self.process.communicate()

    def _ask(self, statement: str | None) -> list[dict[str, Any]]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(statement).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        if not is_readable(self.process.stdout.fileno(), ANSWERS_S):
            self.process.kill()  # a late answer would be taken for that of the next statement
        line = self.process.stdout.readline()
        assert line, self._log.read_text()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SqlError(answer["error"])
        rows: list[dict[str, Any]] = answer["rows"]
        return rows
