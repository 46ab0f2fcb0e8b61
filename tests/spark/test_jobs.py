"""The jobs on Spark give what the same work gives without Spark, also of stores that the Java broker has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.spark.jobs import rebuild
from rocketpy.spark.jobs.audit import audit
from rocketpy.spark.jobs.running import even_tasks, run_in_groups, run_parts, tasks_of
from rocketpy.store.files import file_name
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import verify_store
from tests.support.log_images import record
from tests.support.rebuilds import files_of
from tests.unit.store.test_java_store import unpack
from tests.unit.store.test_rebuild import write_log
from tests.unit.store.test_verify import in_order


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_the_audit_of_a_store_of_java_says_what_verify_says(spark: Any, tmp_path: Path, name: str) -> None:
    unpack(name, tmp_path)
    report = audit(spark, tmp_path)
    assert in_order(report) == in_order(verify_store(StoreReader(tmp_path)))
    assert report.records == 200 and report.problems == []


def test_the_audit_finds_damage(spark: Any, tmp_path: Path) -> None:
    unpack("clean", tmp_path)
    for path, at in ((f"commitlog/{file_name(0)}", 90), (f"consumequeue/A/0/{file_name(0)}", 19)):
        with (tmp_path / path).open("r+b") as file:
            file.seek(at)
            file.write(b"\x55")
    report = audit(spark, tmp_path)
    assert in_order(report) == in_order(verify_store(StoreReader(tmp_path)))
    assert {problem.file.split("/")[0] for problem in report.problems} == {"commitlog", "consumequeue"}


def test_results_come_in_the_order_of_the_parts(spark: Any) -> None:
    assert list(run_parts(spark, abs, range(-50, 0))) == list(range(50, 0, -1))
    assert list(run_parts(spark, abs, [])) == []
    assert list(run_parts(None, abs, [-2, -1])) == [2, 1]


@pytest.mark.parametrize("count", [*range(20), 10_000])
def test_tasks_become_shorter_towards_the_end(count: int) -> None:
    tasks = tasks_of(range(count), 2)
    assert [part for task in tasks for part in task] == list(range(count))
    sizes = [len(task) for task in tasks]
    assert sizes == sorted(sizes, reverse=True) and sizes[-3:] == [1, 1, 1][: len(sizes)]
    assert len(tasks) <= 40, "each task costs time of its own"


@pytest.mark.parametrize("count", [*range(20), 10_000])
def test_even_tasks_are_bounded_and_have_one_part_each_while_they_can(count: int) -> None:
    tasks = even_tasks(range(count), 8)
    assert [part for task in tasks for part in task] == list(range(count))
    assert len(tasks) <= 8 and (count > 8 or len(tasks) == count)
    assert max(map(len, tasks), default=0) == -(-count // 8)


def test_groups_are_told_as_they_are_done() -> None:
    told: list[Any] = []

    class Listener:
        def begin(self, what: str, total: int, unit: str) -> None:
            told.append((what, total, unit))

        def reached(self, done: int) -> None:
            told.append(done)

    made = iter((abs, str))
    groups = run_in_groups(None, lambda: next(made), [-1, -2, -3], 2, "archive", Listener())
    assert next(groups) == ([-1, -2], [1, 2]) and told == [("archive", 3, "parts"), 1, 2]
    assert list(groups) == [([-3], ["-3"])] and told[-1] == 3


def test_a_record_in_a_body_does_not_mislead_the_audit(spark: Any, tmp_path: Path) -> None:
    """A valid record with its own offset, in a message's body: a piece of the log must not begin there."""
    body_at = record("A", b"").size - len("A") - 3
    inner = record("Evil", b"inner").encode(phy_offset=body_at, queue_offset=0)
    write_log(tmp_path, [(record("A", inner), 0), (record("A", b"x"), 1)])
    assert StoreReader(tmp_path).record_at(body_at) is not None
    report = audit(spark, tmp_path, split_bytes=body_at - 1)
    assert in_order(report) == in_order(verify_store(StoreReader(tmp_path))) and report.records == 2


def test_problems_have_codes(tmp_path: Path) -> None:
    unpack("clean", tmp_path / "s")
    for path, at in ((f"commitlog/{file_name(0)}", 90), (f"consumequeue/A/0/{file_name(0)}", 19)):
        with (tmp_path / "s" / path).open("r+b") as file:
            file.seek(at)
            file.write(b"\x55")
    command = ["pipeline", "audit", "--inline", str(tmp_path / "s")]
    damaged = CliRunner().invoke(cli, [*command, "--json", "--findings", str(tmp_path / "f.parquet")])
    problems = json.loads(damaged.stdout)["problems"]
    assert damaged.exit_code == 1 and {problem["code"] for problem in problems} == {"C2", "Q2"}
    assert pq.read_table(tmp_path / "f.parquet").to_pylist() == problems
    assert CliRunner().invoke(cli, [*command, "--fail-on", "c1,Q4"]).exit_code == 0
    assert CliRunner().invoke(cli, [*command, "--fail-on", "C1,C2"]).exit_code == 1
    (tmp_path / "file").touch()
    lost = CliRunner().invoke(cli, [*command, "--json", "--findings", str(tmp_path / "file/f.parquet")])
    assert lost.exit_code == 2 and json.loads(lost.stdout)["problems"] == problems and "cannot write" in lost.stderr
    wrong = CliRunner().invoke(cli, [*command, "--fail-on", "C9"])
    assert wrong.exit_code == 2 and "C9 is not a problem code. The codes: C1, C2," in wrong.stderr


def test_the_command_tells_findings_from_failures(tmp_path: Path) -> None:
    unpack("clean", tmp_path)
    command = ["pipeline", "audit", "--inline"]
    sound = CliRunner().invoke(cli, [*command, "--json", str(tmp_path)])
    assert sound.exit_code == 0 and json.loads(sound.stdout)["records"] == 200
    with (tmp_path / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(90)
        file.write(b"\x55")
    damaged = CliRunner().invoke(cli, [*command, str(tmp_path)])
    assert damaged.exit_code == 1 and f"commitlog/{file_name(0)} at byte 0: " in damaged.stdout
    missing = CliRunner().invoke(cli, [*command, str(tmp_path / "no")])
    assert missing.exit_code == 2 and missing.stderr == f"rocketpy: {tmp_path / 'no'} is not a directory\n"


def test_a_store_of_java_is_rebuilt_on_workers(spark: Any, tmp_path: Path) -> None:
    unpack("clean", tmp_path / "s")
    rebuilt = rebuild.rebuild(spark, tmp_path / "s", tmp_path / "t", split_bytes=5000)
    assert rebuilt.units == 200 and files_of(tmp_path / "t") == files_of(tmp_path / "s")


def test_the_command_rebuilds_and_publishes(tmp_path: Path) -> None:
    unpack("clean", tmp_path / "s")
    expected = files_of(tmp_path / "s")
    command = ["pipeline", "rebuild", "--inline", str(tmp_path / "s"), str(tmp_path / "t")]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0 and json.loads(done.stdout)["units"] == 200
    (tmp_path / "s/consumequeue").rename(tmp_path / "lost")
    done = CliRunner().invoke(cli, [*command, "--publish"])
    assert done.exit_code == 0 and json.loads(done.stdout)["published"] is True
    assert files_of(tmp_path / "s") == expected
    assert verify_store(StoreReader(tmp_path / "s")).problems == []
    refused = CliRunner().invoke(cli, command)
    assert (
        refused.exit_code == 2 and refused.stderr == f"rocketpy: {tmp_path / 't'} is not empty: give a new directory\n"
    )
