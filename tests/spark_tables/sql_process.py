"""A Spark of any version that answers SQL: a line of JSON with a statement in, a line with its rows or its error out.
The statement null begins another session, without the settings and catalogs of this one.

PYTHONPATH=build/reader-4.1.4 python -P tests/spark_tables/sql_process.py [KEY=VALUE ...]

It knows nothing of rocketpy: it reads tables as any program of Spark does.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession


def plain(value: Any) -> Any:
    """Return what JSON has no type for: bytes as hexadecimal digits, times as text."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"{value!r} has no text")


def main(settings: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else Spark prints
    builder = SparkSession.builder.master("local[2]").appName("tables")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    print(json.dumps({"rows": [{"version": spark.version}]}), file=answers, flush=True)
    for line in sys.stdin:
        answer: dict[str, Any] = {"rows": []}
        try:
            if (statement := json.loads(line)) is None:
                spark = spark.newSession()
            else:
                answer = {"rows": [row.asDict() for row in spark.sql(statement).collect()]}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer, default=plain), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
