"""Erasure from an Iceberg table and Parquet files, as docs/use/spark.md says; test_gallery.py erases from Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pyarrow.compute as pc
import pyarrow.parquet as pq
from click.testing import CliRunner
from pyiceberg.expressions import In

from rocketpy.cli.command_line import cli
from tests.spark.tables import ICEBERG, PARQUET
from tests.spark.test_segments import write_log
from tests.support.log_images import record

KEY, ERASED = "user-00", 0  # the smallest: statistics have it
PROPERTIES = "KEYS\x01user-{0:02}\x02UNIQ_KEY\x01{0:032}\x02"


def archive(kind: str, target: Path, count: int, *words: str) -> list[int]:
    """Archive a store of so many messages, which begins as smaller ones do. Returns the numbers of the bodies."""
    if not (root := target.parent / str(count)).exists():
        write_log(root, [record("T", b"%d" % n, properties=PROPERTIES.format(n).encode()) for n in range(count)])
    command = ["pipeline", "archive", "--inline", "--format", kind, "--broker", "b", *words, str(root), str(target)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    rows: Any = {"iceberg": ICEBERG, "parquet": PARQUET}[kind].rows(target)
    return sorted(map(int, rows["body"].to_pylist()))


def files_with_key(target: Path) -> set[str]:
    """The kinds of files that have the key: data, statistics, or text."""
    found = set()
    for path in (path for path in target.rglob("*") if path.is_file()):
        text = path.read_bytes().decode(errors="replace")
        if path.suffix == ".parquet":
            text += str(pq.ParquetFile(path).read().to_pylist())
        elif path.suffix == ".avro":
            with path.open("rb") as file:
                text += str(list(fastavro.reader(file)))
        if KEY in text:
            found.add(path.suffix)
    return found


def test_rows_are_erased_from_an_iceberg_table(tmp_path: Path) -> None:
    archive("iceberg", target := tmp_path / "a", 20)
    assert files_with_key(target) == {".avro", ".parquet"}
    table = ICEBERG.table(target)
    table.delete(In("msgId", [f"{ERASED:032}"]))
    assert archive("iceberg", target, 30, "--vacuum", "0") == [n for n in range(30) if n != ERASED]
    assert files_with_key(target) == set()
    assert archive("iceberg", target, 40) == [n for n in range(40) if n != ERASED]


def test_rows_are_erased_from_parquet_files(tmp_path: Path) -> None:
    archive("parquet", target := tmp_path / "a", 20)
    for path in map(Path, PARQUET.files(target)):
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.filter(pc.not_equal(rows["keys"], KEY)), path)
    assert files_with_key(target) == set()
    assert archive("parquet", target, 30, "--compact") == [n for n in range(30) if n != ERASED]
    assert files_with_key(target) == set()
