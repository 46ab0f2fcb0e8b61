"""What of a log cannot be archived is in the side table with its bytes; the rest is in the archive, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.errors import RecordCorrupt
from rocketpy.spark.jobs import archive as job
from rocketpy.spark.jobs.archive_log import Manifest
from rocketpy.spark.jobs.compact import compact
from rocketpy.spark.scan import BadPlace
from rocketpy.spark.segments import list_segments
from rocketpy.store.files import file_name
from tests.spark.test_archive import logged, rows, run
from tests.spark.test_segments import SEGMENT, make_store
from tests.support.log_images import image_of, record

BODY_AT = 88  # in a record with addresses of IPv4


def damage(root: Path, place: int) -> bytes:
    """Change a byte of the body of the record at `place`. Returns the bytes from there to the end of the file."""
    path = root / "commitlog" / file_name(place // SEGMENT * SEGMENT)
    with path.open("r+b") as file:
        file.seek(place % SEGMENT + BODY_AT)
        file.write(b"\xff")
    return path.read_bytes()[place % SEGMENT :]


def bad(target: Path, manifests: list[Manifest]) -> list[dict[str, Any]]:
    files = [file for manifest in manifests for file in manifest.bad]
    tables = [pq.ParquetFile(target / file.path).read() for file in files]
    assert [table.num_rows for table in tables] == [file.rows for file in files]
    assert [(target / file.path).stat().st_size for file in files] == [file.bytes for file in files]
    return sorted(pa.concat_tables(tables).to_pylist(), key=lambda row: int(row["physicalOffset"]))


def test_damage_ends_a_run_or_is_in_the_side_table(tmp_path: Path) -> None:
    """Fault: `pipeline archive` did not compare bodies with their CRC."""
    places = make_store(tmp_path / "s", 60)
    sound = logged(tmp_path / "s")
    raw = {place: damage(tmp_path / "s", place) for place in (places[5], places[31])}
    with pytest.raises(RecordCorrupt, match="CRC"):
        run(tmp_path / "s", tmp_path / "a")
    assert rows(tmp_path / "a") == []
    manifests = run(tmp_path / "s", tmp_path / "a", skip_damage=True)
    assert rows(tmp_path / "a") == [row for row in sound if row[1] not in raw]
    found = bad(tmp_path / "a", manifests)
    assert [row["physicalOffset"] for row in found] == list(raw)
    for row in found:
        place = row["physicalOffset"]
        assert row["raw"] == raw[place][: row["size"]] and row["size"] == places[places.index(place) + 1] - place
        assert "CRC" in row["reason"] and row["brokerName"] == "b"
        assert row["segment"] == file_name(place // SEGMENT * SEGMENT)
    assert run(tmp_path / "s", tmp_path / "a", skip_damage=True) == []
    assert compact(None, tmp_path / "a", "b") is not None
    assert bad(tmp_path / "a", manifests) == found


def test_a_body_that_cannot_be_decompressed_is_in_both(tmp_path: Path) -> None:
    records = [record("A", b"fine"), record("A", b"no zlib", sys_flag=0x301), record("A", b"fine, too")]
    image = image_of(records)
    (tmp_path / "s/commitlog").mkdir(parents=True)
    (tmp_path / "s/commitlog" / file_name(0)).write_bytes(image.data)
    manifests = run(tmp_path / "s", tmp_path / "a")
    assert [place for _, place in rows(tmp_path / "a")] == list(image.records)
    (row,) = bad(tmp_path / "a", manifests)
    first, behind = image.records[1:]
    assert (row["physicalOffset"], row["raw"]) == (first, image.data[first:behind])
    assert "damaged zlib body of 7 bytes" in row["reason"]


def test_the_side_table_is_beside_the_table(spark: Any, tmp_path: Path) -> None:
    places = make_store(tmp_path / "s", 60)
    damage(tmp_path / "s", places[5])
    command = ["pipeline", "archive", "--inline", "--broker", "b", str(tmp_path / "s"), str(tmp_path / "a")]
    refused = CliRunner().invoke(cli, command)
    assert refused.exit_code == 2 and "CRC" in refused.stderr
    done = CliRunner().invoke(cli, [*command, "--skip-damage"])
    report = json.loads(done.stdout)
    assert done.exit_code == 1 and (report["rows"], report["bad_rows"]) == (59, 1)
    again = CliRunner().invoke(cli, [*command, "--skip-damage"])
    assert again.exit_code == 0 and json.loads(again.stdout)["bad_rows"] == 0
    assert spark.read.parquet(str(tmp_path / "a")).count() == 59
    assert spark.read.parquet(str(tmp_path / "a/_rocketpy/*/bad")).count() == 1


def test_large_places_are_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path / "s", 5)
    monkeypatch.setattr(job, "RAW_MAX", 10)
    (segment,) = list_segments(tmp_path / "s")
    (row,) = job.bad_table("b", segment, [BadPlace(3, 100, "why")]).to_pylist()
    assert row["size"] == 100 and row["raw"] == segment.path.read_bytes()[3:13]
