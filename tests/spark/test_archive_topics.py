"""Archives of topics of running brokers: every message once, over runs, kills and deleted messages."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rocketpy.admin.cli import main as mqadmin
from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError, StoreError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import Bounds, Cluster
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.archive_log import ArchiveLog, Manifest, files_of, manifests_of
from rocketpy.spark.jobs.archive_topics import (
    TopicPart,
    archive_topics,
    cut_parts,
    new_slices,
    parse_connection,
    write_part,
)
from rocketpy.spark.jobs.compact import compact
from rocketpy.spark.jobs.replay import replay
from rocketpy.spark.jobs.replay.plan import Wanted
from rocketpy.spark.pulls import Slice
from tests.spark.following import Following
from tests.support.broker import RunningBroker, running_broker
from tests.support.readers import readable

BROKER = "broker-a"
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"defaultTopicQueueNums": "3"}) as started:
        yield started


def send(broker: RunningBroker, topic: str, count: int) -> None:
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        messages = [Message(topic, b"%d" % n * 50, tags="t", keys=(f"k{n}",)) for n in range(count)]
        sent = [producer.send_soon(message) for message in messages]
        readable([one.result() for one in sent])


def run(broker: RunningBroker, target: Path, *topics: str, spark: Any = None, **given: Any) -> list[Manifest]:
    return archive_topics(spark, target, topics, {"nameServer": broker.namesrv}, **{"part_bytes": 4000, **given})


def places(target: Path) -> list[tuple[str, int, int]]:
    """(topic, queue, offset) of the rows that readers see in the directory, sorted."""
    found = []
    for path in target.glob("topic=*/dt=*/*.parquet"):
        table = pq.ParquetFile(path).read(["queueId", "queueOffset"])
        columns = (column.to_pylist() for column in table.columns)
        found += [(path.parts[-3].removeprefix("topic="), *place) for place in zip(*columns, strict=True)]
    return sorted(found)


def assert_whole(target: Path, topic: str, count: int) -> None:
    """Each queue from its first offset on without gap or copy, `count` messages together; and in order by manifest."""
    rows = [row for row in places(target) if row[0] == topic]
    assert len(rows) == len(set(rows)) == count
    for queue in range(3):
        assert [offset for _, at, offset in rows if at == queue] == list(range(sum(at == queue for _, at, _ in rows)))
    ends: dict[str, int] = {}
    for file in files_of(manifests_of(target)[BROKER]):
        for queue_id, (low, high) in file.queues.items():
            if file.path.startswith(f"topic={topic}/"):
                assert low > ends.get(queue_id, -1)
                ends[queue_id] = high


def test_it_is_the_archive_of_the_store(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Same", 100)
    manifests = run(broker, tmp_path / "t", "Same", spark=spark)
    assert sum(manifest.rows for manifest in manifests) == 100 and len(manifests[0].files) > 3
    assert run(broker, tmp_path / "t", "Same") == []
    archive(None, broker.store, tmp_path / "s", broker=BROKER, live_tail=True)
    one, other = (
        sorted(
            (
                row
                for path in (tmp_path / name).glob("topic=Same/dt=*/*.parquet")
                for row in pq.ParquetFile(path).read().to_pylist()
            ),
            key=lambda row: int(row["physicalOffset"]),
        )
        for name in "ts"
    )
    assert one == other and len(one) == 100


def test_runs_go_on_where_the_last_one_stopped(broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Runs", 30)
    send(broker, "Beside", 5)
    run(broker, tmp_path, "Runs")
    assert_whole(tmp_path, "Runs", 30)
    send(broker, "Runs", 50)
    run(broker, tmp_path, "Runs", "Beside")  # a topic may be added
    assert_whole(tmp_path, "Runs", 80)
    before = places(tmp_path)
    merged = compact(None, tmp_path, BROKER)
    assert merged is not None and places(tmp_path) == before
    send(broker, "Runs", 7)
    run(broker, tmp_path, "Runs")  # the positions are those of before the compaction
    assert_whole(tmp_path, "Runs", 87)
    assert sum(row[0] == "Beside" for row in places(tmp_path)) == 5
    done = replay(None, tmp_path, tmp_path / "ledger", Wanted({"Runs": "RunsAgain"}), {"nameServer": broker.namesrv})
    assert (done.stored, done.missing, done.duplicates) == (87, 0, 0)


class Dead(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("method", ["commit", "_publish"])
def test_a_run_that_was_cut_short(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It dies at its second commit, before the manifest or behind it."""
    topic = f"Cut{method}_{tmp_path.name}"  # another one for a second try
    send(broker, topic, 60)
    do, calls = getattr(ArchiveLog, method), []

    def dying(log: ArchiveLog, manifest: Manifest) -> Manifest:
        calls.append(manifest)
        if len(calls) == 2:
            raise Dead
        return do(log, manifest)  # type: ignore[no-any-return]

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveLog, method, dying)
        with pytest.raises(Dead):
            run(broker, tmp_path, topic, commit_bytes=8000)
    assert 0 < len(places(tmp_path)) < 60
    assert run(broker, tmp_path, topic) != []
    assert_whole(tmp_path, topic, 60)


def attempts(pending: Path) -> set[Path]:
    """Return the directories with files that no manifest names yet."""
    try:
        return {path.parent for path in pending.glob("*/topic=*")}
    except FileNotFoundError:  # a run begins, or commits, and removes a directory while glob lists it
        return set()


def test_kills_leave_each_message_once(broker: RunningBroker, tmp_path: Path, chance: random.Random) -> None:
    topic, count = f"Killed_{tmp_path.name}", 0  # another topic for a second try
    words = [sys.executable, "-m", "rocketpy", "pipeline", "archive", "--inline", "-n", broker.namesrv, "-t", topic]
    for _ in range(4):
        send(broker, topic, 2000)
        count += 2000
        pending = tmp_path / "a/_rocketpy" / BROKER / "pending"
        left = attempts(pending)  # by the run that was killed before
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen([*words, str(tmp_path / "a")], stdout=log, stderr=log)
        try:
            deadline_s = time.monotonic() + DEADLINE_S
            while process.poll() is None and not attempts(pending) - left:
                assert time.monotonic() < deadline_s, (tmp_path / "log").read_text()
            time.sleep(chance.random() / 50)  # while it writes, before its commit, or behind it
        finally:
            process.kill()
            process.wait()
    run(broker, tmp_path / "a", topic)
    assert_whole(tmp_path / "a", topic, count)


def test_continuous_follows_the_topics(broker: RunningBroker, tmp_path: Path) -> None:
    topic = f"Followed_{tmp_path.name}"  # another one for a second try
    send(broker, topic, 40)
    with Following(tmp_path / "a", "-n", broker.namesrv, "-t", topic) as following:
        following.wait_until(lambda: len(places(tmp_path / "a")) == 40)
        send(broker, topic, 50)
        following.wait_until(lambda: len(places(tmp_path / "a")) == 90)
        assert following.stop() == 0
    assert_whole(tmp_path / "a", topic, 90)


def test_what_was_deleted_or_replaced_is_told(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: An archive of topics with `--allow-gap` did not say which offsets it left out."""
    send(broker, "Gone", 30)
    run(broker, tmp_path, "Gone")

    def shifted(_: Any, queues: Any) -> dict[MessageQueue, Bounds]:
        return {queue: Bounds(max(0, by), 10 + by) for queue in queues}

    monkeypatch.setattr(Cluster, "bounds", shifted)
    by = 20
    with pytest.raises(StoreError, match=r"begins at 20, and is archived up to 10.*--allow-gap"):
        run(broker, tmp_path, "Gone")
    by = -5
    with pytest.raises(StoreError, match="ends at 5, but is archived up to 10: it is another one"):
        run(broker, tmp_path, "Gone")
    by = 20
    assert "deleted" not in caplog.text
    run(broker, tmp_path, "Gone", allow_gap=True)
    for queue in range(3):
        gap = "10 of the offsets 10 to 20 were deleted before they were archived"
        assert f"queue {queue} of topic Gone on {BROKER}: {gap}" in caplog.text


def test_a_topic_that_was_made_again_on_our_broker_goes_on(broker: RunningBroker, tmp_path: Path) -> None:
    """Its offsets continue: an archive has the messages of both."""
    topic = f"Again_{tmp_path.name}"  # another one for a second try
    send(broker, topic, 30)
    run(broker, tmp_path, topic)
    assert mqadmin(["deleteTopic", "-n", broker.namesrv, "-c", "DefaultCluster", "-t", topic]) in (None, 0)
    send(broker, topic, 75)
    run(broker, tmp_path, topic)
    run(broker, tmp_path, topic)
    assert_whole(tmp_path, topic, 105)


def test_a_queue_that_was_added_too_late_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: An archive did not say that messages of an added queue were deleted before it has seen the queue."""
    known, added, other = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("U", "b", 0)
    bounds = {known: Bounds(0, 5), added: Bounds(30, 40), other: Bounds(30, 40)}
    slices = new_slices({"T": {"0": 5}}, bounds, allow_gap=False)
    assert slices == [Slice(added, 30, 40), Slice(other, 30, 40)]
    assert "queue 1 of topic T on b: 30 of the offsets 0 to 30 were deleted before they were archived" in caplog.text
    assert "topic U" not in caplog.text, "it begins with this run"


def test_messages_that_are_deleted_meanwhile_are_told(broker: RunningBroker, tmp_path: Path) -> None:
    """As if retention had overtaken the run: it wants offsets that its broker does not have."""
    send(broker, "Meanwhile", 3)
    queue = MessageQueue("Meanwhile", BROKER, 0)
    connection, part = {"nameServer": broker.namesrv}, TopicPart(0, [Slice(queue, 50, 60)])
    options = parse_connection(("Meanwhile",), connection, allow_gap=False)
    with pytest.raises(StoreError, match="is archived up to 50: what was between was deleted meanwhile; --allow-gap"):
        write_part(options, tmp_path, "p", part)
    options = parse_connection(("Meanwhile",), connection, allow_gap=True)
    assert write_part(options, tmp_path, "p", part) == []


def test_a_broker_that_has_no_route_is_named(
    broker: RunningBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have messages: an archive that lacks them should not look whole.
    Fault: Archives silently left out topics of a broker without a route."""
    send(broker, "Absent", 5)
    run(broker, tmp_path, "Absent")
    (tmp_path / "_rocketpy" / BROKER).rename(tmp_path / "_rocketpy/broker-b")
    run(broker, tmp_path, "Absent")
    assert "broker broker-b has no route now, and has archived messages of Absent" in caplog.text
    caplog.clear()
    send(broker, "Present", 5)
    run(broker, tmp_path, "Present")
    assert "no route" not in caplog.text, "it is asked for other topics"


def test_archives_of_a_store_and_of_topics_are_not_mixed(broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Mixed", 5)
    run(broker, tmp_path / "t", "Mixed")
    with pytest.raises(StoreError, match="is made of its topics"):
        archive(None, broker.store, tmp_path / "t", broker=BROKER, live_tail=True)
    archive(None, broker.store, tmp_path / "s", broker=BROKER, live_tail=True)
    with pytest.raises(StoreError, match="is made of its store"):
        run(broker, tmp_path / "s", "Mixed")


def test_long_slices_go_on_in_the_next_part() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(3)]
    slices = [Slice(queues[0], 5, 17), Slice(queues[1], 0, 1), Slice(queues[2], 3, 9)]
    parts = list(cut_parts(slices, 8))
    assert [part.number for part in parts] == [0, 1, 2]
    assert [sum(one.count for one in part.slices) for part in parts] == [8, 8, 3]
    assert parts[1].slices == [Slice(queues[0], 13, 17), Slice(queues[1], 0, 1), Slice(queues[2], 3, 6)]
    assert list(cut_parts([], 8)) == []


def test_the_command(broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Command", 40)
    command = ["pipeline", "archive", "--inline", "-n", broker.namesrv, "-t", "Command"]
    done = CliRunner().invoke(cli, [*command, "--compact", "--option", "pullBatchSize=7", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["rows"], report["begin"]) == (40, None)
    assert_whole(tmp_path / "a", "Command", 40)
    for words, message in (
        ([str(tmp_path), str(tmp_path / "b")], "only TARGET is named"),
        (["--broker", "b", str(tmp_path / "b")], "belongs to a store"),
        (["--option", "topic=Other", str(tmp_path / "b")], "unknown option"),
        (["-t", "Missing", str(tmp_path / "b")], "topic Missing does not exist"),
    ):
        wrong = CliRunner().invoke(cli, [*command, *words])
        assert wrong.exit_code == 2 and message in wrong.stderr and not (tmp_path / "b").exists()
    of_store = CliRunner().invoke(cli, ["pipeline", "archive", "--inline", "-t", "T", str(tmp_path), str(tmp_path)])
    assert of_store.exit_code == 2 and "belongs to topics" in of_store.stderr
    nameless = CliRunner().invoke(cli, ["pipeline", "archive", "--inline", str(tmp_path), str(tmp_path)])
    assert nameless.exit_code == 2 and "--broker" in nameless.stderr
    with pytest.raises(ConfigError, match="which topics"):
        archive_topics(None, tmp_path, (), {"nameServer": broker.namesrv})
