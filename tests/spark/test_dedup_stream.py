"""A stream without copies: each message is in one of the two tables, over runs, kills and repeated micro-batches."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError, StoreError
from rocketpy.spark.jobs.dedup_stream import BatchWriter, DedupStream, dedup_stream
from tests.spark.test_dedup_job import COLUMNS, Given
from tests.support.broker import RunningBroker, running_broker
from tests.support.readers import readable

DEADLINE_S = 300.0
KILLS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"defaultTopicQueueNums": "2"}) as started:
        yield started


def send(broker: RunningBroker, topic: str, keys: list[str | None]) -> None:
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        sent = [producer.send_soon(Message(topic, b"x" * 500, keys=(key,) if key else ())) for key in keys]
        readable([one.result() for one in sent])


def table(spark: Any, target: Path) -> dict[str, list[tuple[str | None, int, int]]]:
    """(key, queue, offset) of the rows of each place."""
    found: dict[str, list[tuple[str | None, int, int]]] = {"messages": [], "duplicates": []}
    for row in spark.read.parquet(str(target / "table")).collect():
        found[row.place].append((row.dedupKey, row.queueId, row.queueOffset))
    return found


def test_runs_follow_each_other(spark: Any, commands_use_session: None, broker: RunningBroker, tmp_path: Path) -> None:
    command = ["pipeline", "dedup", "--stream", "-n", broker.namesrv, "-t", "Runs", "--key", "keys", "--json"]
    command += ["--max-per-trigger", "20", str(tmp_path / "t")]
    send(broker, "Runs", [f"k{n % 40}" for n in range(60)])
    first = json.loads(CliRunner().invoke(cli, command).stdout)["totals"]
    assert (first["input"], first["messages"], first["duplicates"], first["late"]) == (60, 40, 20, 0)
    assert first["batches"] > 1 and first["state_keys"] == 40
    send(broker, "Runs", [None, "k1", "new", None])
    second = json.loads(CliRunner().invoke(cli, command).stdout)["totals"]
    assert (second["input"], second["messages"], second["duplicates"], second["without_key"]) == (4, 3, 1, 2)
    assert json.loads(CliRunner().invoke(cli, command).stdout)["totals"]["input"] == 0
    found = table(spark, tmp_path / "t")
    assert sorted(key for key, _, _ in found["messages"] if key) == sorted(["new", *(f"k{n}" for n in range(40))])
    places = [place[1:] for rows in found.values() for place in rows]
    assert len(places) == len(set(places)) == 64
    assert len(list((tmp_path / "t/state").iterdir())) == 2
    other = CliRunner().invoke(cli, [*command, "--within", "7"])
    assert other.exit_code == 2 and "name another target" in other.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--archive", "."], "reads topics"), (["-n", "n:1", "-t", "T", "--keep", "latest"], "first")],
)
def test_what_a_stream_cannot_do(commands_use_session: None, tmp_path: Path, words: list[str], message: str) -> None:
    wrong = CliRunner().invoke(cli, ["pipeline", "dedup", "--stream", *words, str(tmp_path / "t")])
    assert wrong.exit_code == 2 and message in wrong.stderr and not (tmp_path / "t").exists()


def test_the_state_is_bounded_and_late_messages_are_kept(spark: Any, tmp_path: Path) -> None:
    """Times of the nine messages are 0, 0, 1, 1, ... s; a state of one second. A repeated batch gives the same."""
    messages = Given(archive=tmp_path).frame(spark, COLUMNS)
    writer = BatchWriter(tmp_path, DedupStream("", ("T",), "keys", within_s=1))
    for offsets in ("queueOffset in (2, 3)", "queueOffset in (4, 5, 6)", "queueOffset in (0, 1, 7)"):
        number = writer.counts.batches
        writer.write(messages.where(offsets), number)
    assert writer.counts.late == 2 and writer.counts.state_keys == 1  # c, stored at 2 s
    found = table(spark, tmp_path)
    assert sorted(offset for _, _, offset in found["messages"]) == [0, 1, 2, 3, 4, 5]
    assert sorted(offset for _, _, offset in found["duplicates"]) == [6, 7]
    again = BatchWriter(tmp_path, writer.wanted)
    again.write(messages.where("queueOffset in (0, 1, 7)"), 2)
    assert table(spark, tmp_path) == found
    with pytest.raises(StoreError, match="is gone"):
        again.write(messages, 7)


def test_kills_leave_each_message_once(
    spark: Any, broker: RunningBroker, tmp_path: Path, chance: random.Random
) -> None:
    """kill -9 of driver and JVM in the middle of micro-batches, while more messages arrive."""
    target, count = tmp_path / "t", 0
    words = [sys.executable, "-m", "rocketpy", "pipeline", "dedup", "--stream", "-n", broker.namesrv, "-t", "Killed"]
    words += ["--key", "keys", "--max-per-trigger", "30", "--master", "local[2]", str(target)]
    for _ in range(KILLS):
        send(broker, "Killed", [f"k{number % 50}" for number in range(count, count + 150)])
        count += 150
        wanted = last_planned(target) + chance.randint(1, 3)
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        deadline_s = time.monotonic() + DEADLINE_S
        while last_planned(target) < wanted and process.poll() is None:
            assert time.monotonic() < deadline_s, (tmp_path / "log").read_text()
            time.sleep(0.01)
        time.sleep(chance.random() / 2)  # somewhere in the batch
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stream = DedupStream(broker.namesrv, ("Killed",), "keys")
    assert dedup_stream(spark, stream, target).is_sound
    found = table(spark, target)
    assert sorted(key or "" for key, _, _ in found["messages"]) == sorted(f"k{n}" for n in range(50))
    places = [place[1:] for rows in found.values() for place in rows]
    assert len(places) == len(set(places)) == count
    with pytest.raises(ConfigError, match="name another target"):
        dedup_stream(spark, DedupStream(broker.namesrv, ("Other",), "keys"), target)


def last_planned(target: Path) -> int:
    names = (path.name for path in (target / "checkpoint/offsets").glob("[0-9]*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)
