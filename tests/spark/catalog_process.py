"""A session with a catalog on the disk (Hive's, in Derby), in a process of its own: statements, then rows as JSON.

python -m tests.spark.catalog_process DIRECTORY STATEMENT ... prints the rows of the last statement.
Short: test_tables.py needs another JVM for each session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rocketpy.spark import session
from tests.spark.jvm import train

ROOT = Path(__file__).parents[2]
DEADLINE_S = 600.0  # two JVMs that load Hive, beside other load


def run_statements(directory: Path, *statements: str) -> list[list[Any]]:
    """Run the statements in a new process, and return the rows of the last one."""
    train()  # its flags reach the new process
    command = [sys.executable, "-m", "tests.spark.catalog_process", str(directory), *statements]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main(directory: str, *statements: str) -> None:
    config = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore;create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = session("local[2,3]", name="catalog", config=config)
    rows = [spark.sql(statement).collect() for statement in statements][-1]
    print(json.dumps([list(row) for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
