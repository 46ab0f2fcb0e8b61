"""Archives of topics that are deleted and made again, against a cluster of numbers: messages are not passed over."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.errors import StoreError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import Bounds
from rocketpy.spark.columns import arrow_schema
from rocketpy.spark.jobs import archive_topics, table_archive
from rocketpy.spark.jobs.archive_log import ArchiveLog, manifest_paths
from rocketpy.spark.jobs.compact import compact
from rocketpy.spark.pulls import Slice
from tests.spark.tables import FORMATS, Format
from tests.spark.test_archive_topics import places as places_in_files
from tests.spark.test_stream_reader import OTHER, Q0, Q1, Numbers

BROKER = "b"
TABLES = {kind.name: kind for kind in FORMATS}
MESSAGE_BYTES = 100
MADE_AGAIN = r"topics of broker b were deleted and made again since.*: U\. Archive them to another directory or table"
DAY = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


class Brokers(Numbers):
    """A cluster of numbers that archives can read."""

    def queues(self, topics: Iterable[str]) -> set[MessageQueue]:
        return self.existing(topics, 0.0)[0]

    def make_again(self, queue: MessageQueue, begin: int, end: int, created_ms: int = 9000) -> None:
        """Delete the topic of this queue and make it again, with messages."""
        self.offsets[queue], self.created_ms[queue.topic] = Bounds(begin, end), created_ms


def rows_of(options: Any, columns: tuple[str, ...], slices: list[Slice]) -> Iterator[Any]:
    """A row for each offset."""
    for one in slices:
        of_queue = {"topic": one.queue.topic, "brokerName": one.queue.broker_name, "queueId": one.queue.queue_id}
        of_queue |= {"storeSize": MESSAGE_BYTES, "storeTimestamp": DAY, "body": b"." * MESSAGE_BYTES, "properties": []}
        rows = [{**of_queue, "queueOffset": at, "physicalOffset": at} for at in range(one.begin, one.end)]
        yield pa.RecordBatch.from_pylist(rows, arrow_schema(columns))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """A broker with the topic T, in queues 0 and 1, and U."""
    cluster = Brokers(q0=(10, 100), q1=(0, 50))
    cluster.offsets[OTHER] = Bounds(0, 20)
    for module in (archive_topics, table_archive):
        monkeypatch.setattr(module, "CLUSTERS", cluster)
        monkeypatch.setattr(module, "mean_message_bytes", lambda options, slices: MESSAGE_BYTES)
    monkeypatch.setattr(archive_topics, "read_slices", rows_of)
    return cluster


@pytest.fixture(params=["parquet", *TABLES])
def name(request: pytest.FixtureRequest) -> str:
    """The name of a format."""
    return str(request.param)


def run(name: str, target: Path, *topics: str, **given: Any) -> None:
    connection = {"nameServer": "n:1"}
    if name == "parquet":
        archive_topics.archive_topics(None, target, topics, connection, **given)
    else:
        table_archive.archive_topics(TABLES[name].opened(target), topics, connection, **given)


def merge_files(name: str, target: Path) -> None:
    if name == "parquet":
        assert compact(None, target, BROKER) is not None
    else:
        (table := TABLES[name].opened(target)).compact()
        assert table.report.merged_files > 1


def places(name: str, target: Path) -> list[tuple[str, int, int]]:
    """(topic, queue, offset) of all rows, sorted."""
    if name == "parquet":
        return places_in_files(target)
    rows = TABLES[name].rows(target)
    return sorted(zip(*(rows[column].to_pylist() for column in ("topic", "queueId", "queueOffset")), strict=True))


def offsets(queue: MessageQueue, begin: int, end: int) -> list[tuple[str, int, int]]:
    return [(queue.topic, queue.queue_id, at) for at in range(begin, end)]


def test_a_topic_that_was_made_again_ends_the_run(name: str, brokers: Brokers, tmp_path: Path) -> None:
    """Fault: An archive left out messages of a topic that was made again and has grown beyond the archived offsets."""
    run(name, tmp_path / "a", "T", "U")
    brokers.grow(q1=5)
    run(name, tmp_path / "a", "T")
    merge_files(name, tmp_path / "a")
    brokers.make_again(OTHER, 0, 33)
    brokers.grow(q1=5)
    for allow_gap in (False, True):
        with pytest.raises(StoreError, match=MADE_AGAIN):
            run(name, tmp_path / "a", "T", "U", allow_gap=allow_gap)
    run(name, tmp_path / "a", "T")
    of_t = offsets(Q0, 10, 100) + offsets(Q1, 0, 60)
    assert places(name, tmp_path / "a") == of_t + offsets(OTHER, 0, 20)
    run(name, tmp_path / "other", "U")
    assert places(name, tmp_path / "other") == offsets(OTHER, 0, 33)


def test_a_shorter_topic_was_made_again(name: str, brokers: Brokers, tmp_path: Path) -> None:
    """Fault: The error of a topic that was made again spoke of a queue that is another one, without a remedy."""
    run(name, tmp_path, "T", "U")
    brokers.make_again(OTHER, 0, 0)
    with pytest.raises(StoreError, match=MADE_AGAIN):
        run(name, tmp_path, "T", "U")


def test_an_archive_of_an_older_release_gets_first_messages_with_its_next_commit(
    name: str, brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: An archive left out messages of a topic that was made again and has grown beyond the archived offsets."""
    with monkeypatch.context() as patched:
        patched.setattr(brokers, "stored", lambda queues, group: dict.fromkeys(queues))  # nothing is known of it
        run(name, tmp_path, "U")
    for path in manifest_paths(tmp_path / "_rocketpy" / BROKER):
        document = json.loads(path.read_text())
        assert document.pop("firsts") == {}
        path.write_text(json.dumps(document))
    brokers.offsets[OTHER] = Bounds(5, 33)
    run(name, tmp_path, "U")
    assert places(name, tmp_path) == offsets(OTHER, 0, 33)
    brokers.make_again(OTHER, 0, 50)
    with pytest.raises(StoreError, match=MADE_AGAIN):
        run(name, tmp_path, "U")


def test_retention_makes_no_new_topic(name: str, brokers: Brokers, tmp_path: Path) -> None:
    """The first message that is left is kept instead of the one that was deleted."""
    run(name, tmp_path, "U")
    brokers.offsets[OTHER] = Bounds(20, 20)
    run(name, tmp_path, "U")
    brokers.offsets[OTHER] = Bounds(20, 30)
    run(name, tmp_path, "U")
    assert places(name, tmp_path) == offsets(OTHER, 0, 30)
    brokers.make_again(OTHER, 10, 40)
    with pytest.raises(StoreError, match=MADE_AGAIN):
        run(name, tmp_path, "U")


def test_a_run_that_was_cut_short_before_a_topic(name: str, brokers: Brokers, tmp_path: Path) -> None:
    """Nothing of the old topic is in the archive."""
    answers = iter([False, True])
    run(name, tmp_path, "T", "U", commit_bytes=10 * MESSAGE_BYTES, is_stopped=lambda: next(answers))
    assert places(name, tmp_path) == offsets(Q0, 10, 20)
    brokers.make_again(OTHER, 0, 33)
    run(name, tmp_path, "T", "U")
    assert places(name, tmp_path) == offsets(Q0, 10, 100) + offsets(Q1, 0, 50) + offsets(OTHER, 0, 33)


def test_a_run_goes_on_where_another_one_has_ended_meanwhile(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: An archive's run said that a queue is another one if another run ended while it began."""
    opened, others = ArchiveLog.opened, iter([tmp_path])
    brokers.offsets = {OTHER: Bounds(0, 0)}

    def overtaken(target: Path, broker: str) -> AbstractContextManager[ArchiveLog]:
        for other in others:
            brokers.offsets[OTHER] = Bounds(0, 20)
            run("parquet", other, "U")
        return opened(target, broker)

    monkeypatch.setattr(ArchiveLog, "opened", overtaken)
    run("parquet", tmp_path, "U")
    assert places("parquet", tmp_path) == offsets(OTHER, 0, 20)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_of_two_runs_on_a_table_the_second_fails(kind: Format, brokers: Brokers, tmp_path: Path) -> None:
    second = kind.opened(tmp_path)
    run(kind.name, tmp_path, "U")
    with pytest.raises(StoreError, match=r"another run has .* meanwhile"):
        table_archive.archive_topics(second, ("U",), {"nameServer": "n:1"})
    assert places(kind.name, tmp_path) == offsets(OTHER, 0, 20)


def test_a_topic_that_was_made_again_ends_a_continuous_archive(
    name: str, brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: An archive left out messages of a topic that was made again and has grown beyond the archived offsets."""
    pauses = iter([0, 1])
    monkeypatch.setattr(
        "rocketpy.cli.pipeline.stopping.Stop.wait", lambda *_: next(pauses) or brokers.make_again(OTHER, 0, 33)
    )
    command = ["pipeline", "archive", "--inline", "--continuous", "--format", name, "-n", "n:1", "-t", "U"]
    done = CliRunner().invoke(cli, [*command, str(tmp_path / "a")])
    assert done.exit_code == 2 and re.search(MADE_AGAIN, done.stderr), done.output
    assert json.loads(done.stdout)["rows"] == 20
