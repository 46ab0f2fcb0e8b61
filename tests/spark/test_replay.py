"""Replays: every archived message of the plan in its topic, each queue in order, over failures and repeated runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketpy.errors import ConfigError, StoreError
from rocketpy.spark.jobs import replay_parts
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.replay import Replayed, replay
from rocketpy.spark.jobs.replay_parts import Pace
from rocketpy.spark.jobs.replay_plan import Ledger, Part, Wanted
from rocketpy.startup.cli.command_line import cli
from rocketpy.store.inspection.reader import StoreReader
from tests.spark.test_sink import load
from tests.support.broker import RunningBroker, running_broker
from tests.unit.store.test_java_store import unpack


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"defaultTopicQueueNums": "4"}) as started:
        yield started


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 200 messages of a store of Java: 134 of A, 66 of B."""
    root = tmp_path_factory.mktemp("replay")
    unpack("clean", root / "s")
    archive(None, root / "s", root / "a", broker="b", split_bytes=3000)
    return root / "a"


def run(archived: Path, ledger: Path, broker: RunningBroker, wanted: Wanted, spark: Any = None) -> Replayed:
    return replay(spark, archived, ledger, wanted, {"nameServer": broker.namesrv})


def source_of(archived: Path) -> dict[tuple[str, int, int], Any]:
    records = StoreReader(archived.parent / "s").records()
    return {(record.topic, record.queue_id, record.queue_offset): record for record in records}


def test_a_replay_on_workers_is_complete_and_in_order(
    spark: Any, archived: Path, broker: RunningBroker, tmp_path: Path
) -> None:
    done = run(archived, tmp_path / "l", broker, Wanted(topics={}, into="All"), spark)
    assert done == Replayed(sent=200, planned=200, stored=200, missing=0, duplicates=0)
    source, orders = source_of(archived), dict[tuple[str, str], list[tuple[int, int, int]]]()
    for row in load(spark, broker, "All"):
        origin = row.properties
        record = source.pop((origin["ORIGIN_TOPIC"], int(origin["ORIGIN_QUEUE"]), int(origin["ORIGIN_OFFSET"])))
        assert bytes(row.body) == record.body and origin["ORIGIN_BROKER"] == "b" and origin["ORIGIN_MSG_ID"]
        assert f"KEYS\x01{row.keys}".encode() in record.properties
        queue = (origin["ORIGIN_TOPIC"], origin["ORIGIN_QUEUE"])
        orders.setdefault(queue, []).append((row.queueId, row.queueOffset, int(origin["ORIGIN_OFFSET"])))
    assert source == {}
    for places in orders.values():
        assert len({queue for queue, _, _ in places}) == 1
        assert [offset for _, _, offset in sorted(places)] == sorted(offset for _, _, offset in places)
    again = run(archived, tmp_path / "l", broker, Wanted(topics={}, into="All"), spark)
    assert again == Replayed(sent=0, planned=200, stored=200, missing=0, duplicates=0)


class Killed(BaseException):
    """A run ends here."""


def test_a_run_that_was_cut_short_goes_on(
    archived: Path, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies when messages of a step are stored and the ledger does not say so: only that step is sent again."""
    write, steps = replay_parts.write_step, []

    def dying(ledger: Path, part: Part, index: int, step: Any) -> None:
        if len(steps) == 3:
            raise Killed
        steps.append(sum(sent.count for sent in step.queues.values()))
        write(ledger, part, index, step)

    monkeypatch.setattr(replay_parts, "write_step", dying)
    with pytest.raises(Killed):
        run(archived, tmp_path / "l", broker, Wanted(topics={"A": "Again"}))
    monkeypatch.setattr(replay_parts, "write_step", write)
    done = run(archived, tmp_path / "l", broker, Wanted(topics={"A": "Again"}))
    assert done.sent == 134 - sum(steps) and sum(steps) > 0
    assert (done.planned, done.stored, done.missing) == (134, 134, 0)
    assert 0 < done.duplicates < 134


def test_messages_that_are_not_there_are_missing(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    assert run(archived, tmp_path / "l", broker, Wanted(topics={"B": "Some"})).is_sound
    step = min(path for path in (tmp_path / "l").iterdir() if path.name[0].isdecimal())
    found = json.loads(step.read_text())
    (queue,) = found["queues"]
    found["queues"][queue][0] += 1
    step.write_text(json.dumps(found))
    assert run(archived, tmp_path / "l", broker, Wanted(topics={"B": "Some"})).missing == 1
    found["queues"][queue] = [found["queues"][queue][0] - 1, found["queues"][queue][1] + 1]
    step.write_text(json.dumps(found))
    assert run(archived, tmp_path / "l", broker, Wanted(topics={"B": "Some"})).missing == 66


def test_only_what_is_wanted_is_sent(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    records = sorted(StoreReader(archived.parent / "s").records(), key=lambda record: record.phy_offset)
    middle_ms = records[100].store_timestamp_ms
    later = sum(record.store_timestamp_ms >= middle_ms and record.topic == "A" for record in records)
    wanted = Wanted(topics={"A": "Late"}, from_ms=middle_ms)
    assert run(archived, tmp_path / "l", broker, wanted).planned == later > 0
    assert run(archived, tmp_path / "m", broker, Wanted(topics={"A": "Keyed"}, keys=frozenset({"jkey1"}))).planned == 1
    first = Wanted(topics={"A": "First"}, where="queueOffset < 2 AND queueId = 0")
    assert run(archived, tmp_path / "n", broker, first).planned == 2


def test_a_ledger_is_of_one_replay(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    run(archived, tmp_path / "l", broker, Wanted(topics={"A": "One"}, keys=frozenset({"jkey1"})))
    with pytest.raises(ConfigError, match="is the ledger of a replay with other settings"):
        run(archived, tmp_path / "l", broker, Wanted(topics={"A": "Two"}))
    settings = {"a": 1}
    with (
        Ledger.opened(tmp_path / "m", settings, list),
        pytest.raises(StoreError, match="another run is using this ledger"),
        Ledger.opened(tmp_path / "m", settings, list),
    ):
        pass


def test_what_is_no_archive_is_named(tmp_path: Path, broker: RunningBroker, archived: Path) -> None:
    with pytest.raises(StoreError, match="is no archive"):
        run(tmp_path, tmp_path / "l", broker, Wanted(topics={}))
    with pytest.raises(ConfigError, match="has none of these topics"):
        run(archived, tmp_path / "l", broker, Wanted(topics={"No": "X"}))


def test_the_command(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    command = ["pipeline", "replay", "--inline", str(archived), "-n", broker.namesrv, "--ledger", str(tmp_path / "l")]
    done = CliRunner().invoke(cli, [*command, "--topic", "B=ByCommand", "--rate", "100000"])
    assert done.exit_code == 0 and json.loads(done.stdout)["stored"] == 66
    wrong = CliRunner().invoke(cli, [*command, "--from", "soon"])
    assert wrong.exit_code == 2 and "soon is no time" in wrong.stderr
    wrong = CliRunner().invoke(cli, [*command, "--where", "a >"])
    assert wrong.exit_code == 2 and "is no SQL92 condition" in wrong.stderr


def test_the_pace_is_kept() -> None:
    now, slept = [50.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(100.0, clock=lambda: now[0], sleep=sleep)
    for _ in range(5):
        pace.add(50)
    assert now[0] == pytest.approx(50.0 + 250 / 100)
    now[0] += 10  # sending was slow: nothing to wait for
    pace.add(100)
    assert len(slept) == 5
