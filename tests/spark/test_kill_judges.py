"""The judges of kill_rounds.py see each fault that they are for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import Bounds
from tests.spark.kill_judges import (
    Reports,
    check_acknowledged,
    check_rows,
    files_of_sink,
    last_batch_of_sink,
    stored_numbers,
    stored_rows,
)

Row = tuple[str, int, int, int]
BOUNDS = {MessageQueue("T", "b", 0): Bounds(2, 6), MessageQueue("T", "b", 1): Bounds(0, 1)}
TOLD = "queue 0 of topic T on b: 2 of the offsets 0 to 4 are not there any more; going on with the others\n"


def rows(*offsets: int, queue: int = 0) -> list[Row]:
    return [("T", queue, offset, 100 * queue + offset) for offset in offsets]


def reports(tmp_path: Path, text: str) -> Reports:
    (tmp_path / "log").write_text(text)
    return Reports.of([tmp_path / "log"])


@pytest.mark.parametrize(
    ("found", "text", "message"),
    [
        (rows(2, 3, 4, 4), TOLD, "twice"),
        ([*rows(2, 3), ("T", 0, 4, 3)], TOLD, "records that are there twice"),
        (rows(2, 4), TOLD, r"missing, and the broker has them: \[3\] of 1"),
        (rows(2, 3), "", r"logged for 0 offsets only: \[0, 1\]"),
        (rows(3, 4), "T@b:0: 1 offsets were not there any more\n" + TOLD, "the broker has them"),
        (rows(2, 3), "T@b:0: 1 offsets were not there any more\n", "logged for 1 offsets only"),
        (rows(2, 3), TOLD.replace("queue 0", "queue 1"), "logged for 0 offsets only"),
    ],
)
def test_a_fault_is_seen(tmp_path: Path, found: list[Row], text: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_rows(found, BOUNDS, reports(tmp_path, text), "stream")


def test_what_retention_has_deleted_may_be_missing_when_it_is_logged(tmp_path: Path) -> None:
    whole = rows(2, 3, 4, 5) + rows(0, queue=1)
    by_archive = TOLD.replace("are not there any more", "were deleted before they were archived")
    for text in (TOLD, by_archive, "T@b:0: 2 offsets were not there any more"):
        assert check_rows(whole, BOUNDS, reports(tmp_path, text), "stream", is_whole=True) == {("T", 0): 2}
    assert check_rows(rows(2, 3), BOUNDS, reports(tmp_path, TOLD), "stream") == {("T", 0): 2}
    for part in (rows(2, 3, 4, 5), rows(2, 3, 4) + rows(0, queue=1)):
        with pytest.raises(AssertionError, match="the broker has them"):
            check_rows(part, BOUNDS, reports(tmp_path, TOLD), "stream", is_whole=True)


def test_duckdb_reads_the_files_that_the_log_of_a_sink_names(tmp_path: Path) -> None:
    log = tmp_path / "data/_spark_metadata"
    log.mkdir(parents=True)
    for name, offset in (("kept", 7), ("left", 8)):
        columns = {"queueId": [1], "queueOffset": [offset], "physicalOffset": [70], "body": [b"T 5 ..."]}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    (log / "0").write_text(f'v1\n{{"path":"file://{tmp_path}/kept.parquet","action":"add"}}\n')
    assert stored_rows(files_of_sink(tmp_path)) == [("T", 1, 7, 70)]
    assert stored_numbers(files_of_sink(tmp_path), "T") == {(1, 7): 5}
    assert stored_numbers(files_of_sink(tmp_path), "U") == stored_numbers([], "T") == {}
    assert stored_rows([]) == []


def test_an_acknowledged_message_is_where_the_broker_has_said() -> None:
    """Counted alone, a message that was sent twice would hide one that is lost."""
    acknowledged = {(0, 0): 1, (0, 1): 2, (1, 0): 3}
    numbers = {(0, 1): 2, (0, 2): 2, (1, 0): 3}  # retention has deleted the first one
    check_acknowledged(acknowledged, numbers, {0: 3, 1: 1}, "delta")
    with pytest.raises(AssertionError, match=r"behind the ends .*: \[\(1, 0\)\] of 1"):
        check_acknowledged(acknowledged, numbers, {0: 3}, "delta")
    with pytest.raises(AssertionError, match=r"delta: .*acknowledged and found: \[\(\(0, 1\), 2, 9\)\] of 1"):
        check_acknowledged(acknowledged, numbers | {(0, 1): 9}, {0: 3, 1: 1}, "delta")


def test_the_last_batch_of_a_sink_may_not_be_committed(tmp_path: Path) -> None:
    """Fault: A batch that only the sink had was taken for one that a refused stream had committed."""
    for name in ("9.compact", "28", "29.compact", ".29.compact.crc"):
        (tmp_path / "data/_spark_metadata").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data/_spark_metadata" / name).touch()
    assert last_batch_of_sink(tmp_path) == 29
    assert last_batch_of_sink(tmp_path / "none") == -1
