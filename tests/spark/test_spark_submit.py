"""A job through spark-submit: its master, its packages and its arguments are those of the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketpy.cli.pipeline.main as pipeline
from rocketpy.store.files import file_name
from tests.unit.store.test_java_store import unpack

TIMEOUT_S = 300.0
pytestmark = pytest.mark.usefixtures("java")


def submit(*words: str) -> subprocess.CompletedProcess[str]:
    """As docs/use/spark-cluster.md says it, with the interpreter of the tests."""
    program = shutil.which("spark-submit", path=str(Path(sys.executable).parent))
    assert program is not None, "the wheel of PySpark has it"
    command = [program, "--master", "local[2]", "--conf", "spark.driver.memory=1g", str(pipeline.__file__), *words]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)


def test_an_audit_through_spark_submit(tmp_path: Path) -> None:
    unpack("clean", tmp_path)
    with (tmp_path / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(90)
        file.write(b"\x55")
    damaged = submit("audit", "--json", str(tmp_path))
    assert damaged.returncode == 1, damaged.stderr
    report = json.loads(damaged.stdout)
    assert report["records"] > 0 and [problem["code"] for problem in report["problems"]] == ["C2"]
    assert {"flag", "storeTimestamp"} <= set(report["unchecked_fields"])
