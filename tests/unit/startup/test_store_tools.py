"""The text of `rocketpy store ...` over a directory that a Java broker wrote."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.startup.main import cli

ARCHIVE = Path(__file__).parents[1] / "store" / "data" / "java_4_9_7_clean.tar.gz"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    return tmp_path / "store"


def run(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(cli, ["store", *arguments])
    return result.exit_code, result.output.splitlines()


def test_stats(root: Path) -> None:
    status, lines = run("stats", str(root))
    assert status == 0
    assert {"records 200", "units 200", "is_open False"} <= {" ".join(line.split()) for line in lines}


def test_verify(root: Path) -> None:
    assert run("verify", str(root)) == (0, ["200 records, 200 units, log ends at 23824: no problems"])
    (root / "consumequeue/B/7/00000000000000001000").unlink()
    status, lines = run("verify", str(root))
    assert status == 1 and "B/7" in lines[0]


def test_dump(root: Path) -> None:
    status, lines = run("dump", str(root), "--topic", "B", "--queue", "7", "--count", "3")
    assert status == 0 and len(lines) == 6
    assert [line.split()[0] for line in lines[:3]] == ["unit"] * 3
    assert "B/7@0" in lines[3]
