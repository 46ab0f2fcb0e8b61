"""What Python processes of Spark print and tell: no broken pipes of a JVM that has enough, and reasons of errors."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import traceback
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.worker import HIDE_TRACEBACK, WithoutBrokenPipes, reason_first
from rocketpy.store.files import file_name
from tests.support.log_images import image_of, record

TIMEOUT_S = 600.0  # generous: a JVM, and a dozen processes that import PySpark
ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import rocketpy.spark
config = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "1g"}
spark = rocketpy.spark.session("local[2]", config=config)
frame = rocketpy.spark.read(spark, "rocketmq_store", path=sys.argv[1], columns="body", maxRecordsPerBatch=16)
stderr = spark.sparkContext.parallelize([1], 1).map(lambda _: type(sys.stderr).__name__).collect()
assert stderr == ["WithoutBrokenPipes"], stderr  # also in a worker that runs no code of ours
frame.show(3)
assert len(frame.limit(2).collect()) == 2
try:
    rocketpy.spark.read(spark, "rocketmq_store", path=sys.argv[1], boundary="never").show()
except Exception as error:
    print("first:", str(error).split(chr(10))[0])
    print("reason:", rocketpy.spark.reason_of(error))
spark.stop()
"""


def printed_by(module: str, error: Exception) -> str:
    """What a handler in a function of `module` prints."""

    def fail() -> None:
        raise error

    out = io.StringIO()
    scope: dict[str, Any] = {"__name__": module, "fail": fail, "out": WithoutBrokenPipes(out), "traceback": traceback}
    exec("try:\n    fail()\nexcept Exception:\n    traceback.print_exc(file=out)\n    print('done', file=out)", scope)
    return out.getvalue()


def test_only_broken_pipes_of_the_daemon_are_left_out() -> None:
    assert printed_by("pyspark.daemon", BrokenPipeError(32, "Broken pipe")) == ""
    assert "Broken pipe" in printed_by("elsewhere", BrokenPipeError(32, "Broken pipe"))
    assert "a fault" in printed_by("pyspark.daemon", ValueError("a fault"))
    out = WithoutBrokenPipes(io.StringIO())
    assert out.write("text") == 4 and out.getvalue() == "text"


@pytest.mark.parametrize(("name", "kind"), [("pyspark.daemon", WithoutBrokenPipes), ("pytest.__main__", io.StringIO)])
def test_processes_that_plan_print_no_broken_pipe(monkeypatch: pytest.MonkeyPatch, name: str, kind: type) -> None:
    """Fault: Only processes that read rows were prepared, and one that had planned a source printed a traceback when
    the JVM closed its end first."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(name, None))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with reason_first():
        pass
    assert type(sys.stderr) is kind


def test_a_process_of_its_own_keeps_its_tracebacks() -> None:
    with pytest.raises(ConfigError), reason_first():
        raise ConfigError("no")
    assert HIDE_TRACEBACK not in os.environ


def test_show_prints_no_broken_pipe_and_errors_begin_with_the_reason(java: None, tmp_path: Path) -> None:
    """Fault: Both show and limit printed tracebacks of broken pipes, and the reason of an error stood at its end."""
    image = image_of([record("T", b"%d" % n * 500) for n in range(5000)])
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / file_name(0)).write_bytes(image.data)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT / "rocketpy/spark/shims")}  # Spark finds them where we are installed
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=ROOT, env=env)
    assert ran.returncode == 0, ran.stderr
    assert "BrokenPipe" not in ran.stderr and "failed to flush" not in ran.stderr
    reason = 'boundary: "never" is none of auto, walk, resync'
    first, last = ran.stdout.strip().split("\n")[-2:]
    assert first.startswith("first: ") and first.endswith(f"rocketpy.errors.ConfigError: {reason}")
    assert last == f"reason: {reason}"


KEEPS = """
import resource
from rocketpy.spark.worker import prepare_worker
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    for _ in range(20):
        blocks = [bytes(1 << 20) for _ in range(8)]
        del blocks
use()
before = faults()
use()
without = faults() - before
prepare_worker()
use()
before = faults()
use()
print(without, faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")
def test_a_worker_uses_freed_memory_again() -> None:
    """Each answer to a pull was once received into fresh pages, each of which cost a fault."""
    ran = subprocess.run([sys.executable, "-c", KEEPS], capture_output=True, text=True, cwd=ROOT, check=True)
    without, kept = map(int, ran.stdout.split())
    assert without > 1000, "the test needs a malloc that returns memory"
    assert kept < 100
