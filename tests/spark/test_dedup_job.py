"""Deduplication: one message of each key is kept, the right one, and nothing else is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.columns import SETS, ddl_of, parse_columns
from rocketpy.spark.jobs.dedup import dedup
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
    (tmp_path / "table.unfinished").mkdir()  # of a run that was cut short
    report = dedup(spark, Given(archive=tmp_path), target, key=key, keep=keep)
    assert report.is_sound and report.totals["input"] == len(KEYS) + 1
    assert report.totals["messages"] == len(kept) and report.totals["without_key"] == 2
    table = spark.read.parquet(str(target))
    assert sorted(row.queueOffset for row in table.where("place = 'messages'").collect()) == kept
    assert table.count() == len(KEYS) + 1
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(ConfigError, match="is there already"):
        dedup(spark, Given(archive=tmp_path), target)
