"""A DuckDB with its extensions for tables, which are for one version of it alone: statements in, rows as JSON out.

PYTHONPATH=build/duckdb-1.5.5 python -P tests/spark_tables/duckdb_process.py STATEMENT ... prints the rows of the last.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import duckdb
from sql_process import plain

EXTENSIONS = ("avro", "delta", "iceberg")


def extension(name: str) -> str:
    """The file of an extension, which is a package of its own."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert found is not None, name
    (path,) = Path((found.submodule_search_locations or [])[0]).glob("extensions/*/*.duckdb_extension")
    return str(path)


def main(statements: list[str]) -> None:
    offline = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(config=offline) as connection:
        for name in EXTENSIONS:
            connection.load_extension(extension(name))
        connection.sql("CREATE MACRO unix_micros(t) AS epoch_us(t)")  # as Spark calls it
        for statement in statements:
            answer = connection.execute(statement)
        names = [column[0] for column in answer.description or []]
        print(json.dumps([dict(zip(names, row, strict=True)) for row in answer.fetchall()], default=plain))


if __name__ == "__main__":
    main(sys.argv[1:])
