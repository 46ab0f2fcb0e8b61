"""Deduplication: one message of each key is kept, the right one, and nothing else is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import ConfigError, StoreError
from rocketpy.spark.columns import SETS, ddl_of, parse_columns
from rocketpy.spark.jobs import dedup as dedup_module
from rocketpy.spark.jobs.dedup import _unfinished, dedup, mark
from rocketpy.spark.jobs.inputs import Input

COLUMNS = parse_columns(SETS[-1], diagnostics=False)
KEYS = ["a", "b", "a", None, "c", None, "a", "b"]


class Given(Input):
    """An input with a message for each of KEYS, in the order of time, and one of another topic."""

    def frame(self, spark: Any, columns: Any) -> Any:
        assert columns == COLUMNS
        rows = [("T", offset, key) for offset, key in enumerate(KEYS)] + [("U", len(KEYS), "a")]
        made = {
            "topic": "topic",
            "queueOffset": "queueOffset",
            "physicalOffset": "queueOffset",
            "keys": "key",
            "properties": "map('SPARK_ID', key)",
            "storeTimestamp": "timestamp_seconds(int(queueOffset / 2))",
        }
        frame = spark.createDataFrame(rows, "topic string, queueOffset bigint, key string")
        types = dict(one.split(" ") for one in ddl_of(COLUMNS).split(", "))
        casts = [f"cast({made.get(name, 'null')} as {types[name]}) {name}" for name in COLUMNS]
        return frame.selectExpr(*casts)


@pytest.mark.parametrize(
    ("keep", "key", "kept"),
    [
        ("first", "keys", [0, 1, 3, 4, 5, 8]),
        ("latest", "SPARK_ID", [3, 4, 5, 6, 7, 8]),
        ("first", "substring(keys, 9)", [0, 3, 5, 8]),
    ],
)
def test_one_of_each_key_is_kept(spark: Any, tmp_path: Path, keep: str, key: str, kept: list[int]) -> None:
    target = tmp_path / "table"
    with _unfinished(target) as left:  # of a run that was cut short
        (left / "table/place=messages").mkdir(parents=True)
    report = dedup(spark, Given(archive=tmp_path), target, key=key, keep=keep)
    assert report.is_sound and report.totals["input"] == len(KEYS) + 1
    assert report.totals["messages"] == len(kept) and report.totals["without_key"] == 2
    table = spark.read.parquet(str(target))
    assert sorted(row.queueOffset for row in table.where("place = 'messages'").collect()) == kept
    assert table.count() == len(KEYS) + 1
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(ConfigError, match="is there already"):
        dedup(spark, Given(archive=tmp_path), target)


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """Fault: `pipeline dedup` removed a directory TARGET.unfinished of somebody else."""
    (tmp_path / "table.unfinished").mkdir()
    (tmp_path / "table.unfinished/thesis.txt").touch()
    with pytest.raises(ConfigError, match="is in the way and not of this job"), _unfinished(tmp_path / "table"):
        pass
    assert (tmp_path / "table.unfinished/thesis.txt").exists()


def test_two_runs_do_not_make_one_table(tmp_path: Path) -> None:
    """The second would take away the files of the first.
    Fault: Two runs of `dedup` or `windows` on one target removed each other's files."""
    with _unfinished(tmp_path / "table") as mine:
        (mine / "table").mkdir()
        with pytest.raises(StoreError, match="table: another run is making it"), _unfinished(tmp_path / "table"):
            pass
        assert (mine / "table").is_dir()


def test_a_result_that_is_not_right_gets_no_name(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: `pipeline dedup` gave a result its name before checking it."""
    monkeypatch.setattr(dedup_module, "mark", lambda *given: mark(*given).where("queueOffset < 8"))
    report = dedup(spark, Given(archive=tmp_path), tmp_path / "table", key="keys")
    assert not report.is_sound and not (tmp_path / "table").exists()
    assert report.files == [tmp_path / "table.unfinished/table"] and report.files[0].is_dir()
