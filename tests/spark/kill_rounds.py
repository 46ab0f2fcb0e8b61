"""Kills at random, by hand: a stream and two archives of live topics have each message once, whatever dies.

python -m tests.spark.kill_rounds [--rounds 200] [--seed N] [--kinds archive,broker,...]

A round sends messages, waits up to two seconds and kills one of KINDS; now and then a queue is added, or a topic is
deleted and made again, at the same moment. After each round no message may be in a table twice, and none may be
skipped. At the end everything that the broker has must be in both tables and in the stream's files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pyarrow.parquet as pq

from rocketpy.admin.cli import main as mqadmin
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import RocketError
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.jobs.table_archive import archive_topics
from tests.spark.following import Following
from tests.spark.query_process import QueryProcess
from tests.spark.tables import FORMATS, Format
from tests.spark.test_exactness import last_batch
from tests.support.broker import RunningBroker, running_broker

TOPIC, DELETED = "Kills", "Deleted"  # the stream reads both, the archives the first
KINDS = ("archive", "broker", "broker worker", "driver", "jvm", "python worker", "executor")
MASTERS = ("local[2,3]", "local-cluster[2,1,1024]")
MESSAGES = 60
DELAY_MAX_S = 2.0
DEADLINE_S = 300.0
BATCH_S = 240.0  # a stream that has read everything makes no batch

Offset = tuple[int, int]
"""A queue and an offset in it."""


def check_prefixes(offsets: list[Offset], what: str) -> dict[int, int]:
    """How many messages of each queue are there. Raises AssertionError if one is missing before others, or doubled."""
    counts = Counter(offsets)
    assert not (doubled := [one for one, count in counts.items() if count > 1]), f"{what}: twice: {doubled[:5]}"
    ends = Counter(queue for queue, _ in counts)
    missing = [(queue, offset) for queue, end in ends.items() for offset in range(end) if (queue, offset) not in counts]
    assert not missing, f"{what}: missing: {missing[:5]}"
    return dict(ends)


@attrs.define
class Rounds:
    """What runs, and what was sent."""

    chance: random.Random
    broker: RunningBroker
    directory: Path
    sent: int = 0
    queues: int = 2
    query: QueryProcess | None = None
    starts: int = 0

    def send(self) -> None:
        """Acknowledged messages; a send that fails is repeated, and may be stored twice."""
        deadline_s = time.monotonic() + DEADLINE_S
        for topic in (TOPIC, DELETED):
            number = 0
            while number < MESSAGES:
                assert time.monotonic() < deadline_s, "the broker takes no messages"
                with contextlib.suppress(RocketError), self._producer() as producer:
                    while number < MESSAGES:
                        producer.send(Message(topic, b"%s %d" % (topic.encode(), self.sent + number)))
                        number += 1
        self.sent += MESSAGES

    def _producer(self) -> Producer:
        return Producer("kills", ProducerOptions(name_servers=self.broker.namesrv, send_timeout=10))

    def start_query(self) -> QueryProcess:
        """The stream, from its checkpoint, unless it still runs."""
        if self.query is None or self.query.process.poll() is not None:
            self.starts += 1
            options = ("failOnDataLoss=false", "maxOffsetsPerTrigger=40", "discoveryInterval=0s")
            master = self.chance.choice(MASTERS)
            topics = f"{TOPIC},{DELETED}"
            self.query = QueryProcess(master, self.broker.namesrv, topics, self.directory / "stream", *options)
        return self.query

    def kill(self, kind: str) -> str:
        """Returns what died."""
        if kind == "archive":
            return self._kill_archive()
        time.sleep(self.chance.uniform(0, DELAY_MAX_S))
        if kind == "broker":
            self.broker.kill_all()
            self.broker.start()
        elif kind == "broker worker":
            name = self.chance.choice(sorted(self.broker.workers()))
            self.broker.kill_worker(name)
            return name
        else:
            return self._kill_query(kind)
        return kind

    def _kill_archive(self) -> str:
        kind = self.chance.choice(FORMATS)
        words = ("-n", self.broker.namesrv, "-t", TOPIC, "--format", kind.name, "--commit-bytes", "3000")
        files, log = self.directory / kind.name, self.directory / f"{kind.name}.log"
        before, read = len(list(files.rglob("*.parquet"))), log.stat().st_size if log.exists() else 0
        wanted = before + self.chance.randint(0, 10)

        def reached() -> bool:  # so many files, or all there is
            return len(list(files.rglob("*.parquet"))) >= wanted or b'"rows"' in log.read_bytes()[read:]

        with Following(files, *words) as following:
            following.wait_until(reached)
            time.sleep(self.chance.uniform(0, 0.2))
        return kind.name

    def _kill_query(self, kind: str) -> str:
        """Kill a part of the stream, if it can, within a batch."""
        query, out = self.start_query(), self.directory / "stream"
        if kind == "executor" and MASTERS[0] in query.process.args:  # type: ignore[operator]  # a list here
            kind = "jvm"  # a local master has no other
        log = self.chance.choice(("offsets", "commits"))
        wanted, deadline_s = last_batch(out, log) + self.chance.randint(1, 2), time.monotonic() + BATCH_S
        while last_batch(out, log) < wanted and time.monotonic() < deadline_s:
            query = self.start_query()
            time.sleep(0.01)
        if found := processes(query.process.pid).get(kind, []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
        if kind in ("driver", "jvm"):
            query.kill()
        return f"{kind if found else 'nothing'} in batch {last_batch(out, 'offsets')}"

    def change(self) -> str:
        """Now and then something that an operator does."""
        if self.chance.random() < 0.1 and self.queues < 8:
            self.queues += 1
            words = ["-b", self.broker.address, "-t", TOPIC, "-r", str(self.queues), "-w", str(self.queues)]
            assert quiet(["updateTopic", "-n", self.broker.namesrv, *words]) in (None, 0)
            return f", queue {self.queues - 1} added"
        if self.chance.random() < 0.1:
            words = ["-c", "DefaultCluster", "-t", DELETED]
            assert quiet(["deleteTopic", "-n", self.broker.namesrv, *words]) in (None, 0)
            return f", {DELETED} deleted"
        return ""

    def table(self, kind: Format) -> dict[int, int]:
        rows = kind.rows(self.directory / kind.name)
        if rows is None:
            return {}
        offsets = zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True)
        return check_prefixes(list(offsets), kind.name)

    def stream(self) -> dict[int, int]:
        """Of TOPIC, in the files that the sink's own log names."""
        logs = (self.directory / "stream/data/_spark_metadata").glob("[0-9]*")
        lines = {line for log in logs for line in log.read_text().splitlines()[1:]}
        offsets = []
        for path in {urlsplit(json.loads(line)["path"]).path for line in lines}:
            for row in pq.read_table(path, columns=["queueId", "queueOffset", "body"]).to_pylist():
                if bytes(row["body"]).split()[0] == TOPIC.encode():
                    offsets.append((row["queueId"], row["queueOffset"]))
        return check_prefixes(offsets, "stream")

    def stored(self) -> dict[int, int]:
        cluster = CLUSTERS.get(ClientOptions(name_servers=self.broker.namesrv))
        bounds = cluster.bounds(cluster.queues({TOPIC}))
        return {queue.queue_id: ends.max_offset for queue, ends in bounds.items() if ends.max_offset}

    def finish(self, kinds: tuple[str, ...]) -> None:
        """Everything that was acknowledged is in the broker, and all that it has is everywhere."""
        wanted = self.stored()
        assert sum(wanted.values()) >= self.sent, f"{self.sent} were acknowledged, {wanted} are stored"
        for kind in FORMATS:
            archive_topics(kind.opened(self.directory / kind.name), (TOPIC,), {"nameServer": self.broker.namesrv})
            assert self.table(kind) == wanted, kind.name
        deadline_s = time.monotonic() + DEADLINE_S
        while streams(kinds) and (found := self.stream()) != wanted:
            query = self.start_query()
            late = f"the stream has {found}, the broker {wanted}"
            assert time.monotonic() < deadline_s, f"{late}: {query.text()[-3000:]}"
            time.sleep(1)


def quiet(words: list[str]) -> object:
    """Run a command of mqadmin without its output."""
    with contextlib.redirect_stdout(io.StringIO()):
        return mqadmin(words)


def processes(session: int) -> dict[str, list[int]]:
    """The processes of a query by their kind."""
    found: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            words = (path / "cmdline").read_bytes()
            if int(fields[3]) != session or fields[0] == "Z":
                continue
            if int(path.name) == session:
                kind = "driver"
            elif b"CoarseGrainedExecutorBackend" in words:
                kind = "executor"
            elif b"SparkSubmit" in words:
                kind = "jvm"
            elif b"python" in words and b"daemon" in words:
                kind = "python worker"
            else:
                continue
            found.setdefault(kind, []).append(int(path.name))
    return found


def streams(kinds: tuple[str, ...]) -> bool:
    """Whether a stream runs: its starts take most of the time."""
    return not set(kinds) <= {"archive", "broker", "broker worker"}


def run(rounds: int, seed: int, kinds: tuple[str, ...], directory: Path) -> None:
    with running_broker({"defaultTopicQueueNums": "2"}, is_new=True) as broker:
        state = Rounds(random.Random(seed), broker, directory)
        try:
            for number in range(rounds):
                state.send()
                if streams(kinds):
                    state.start_query()
                kind = state.chance.choice(kinds)
                change = state.change()
                died = state.kill(kind)
                have = {one.name: sum(state.table(one).values()) for one in FORMATS}
                print(f"{number + 1}/{rounds} {kind}: {died}{change}; sent {state.sent}, {have}", flush=True)
            state.finish(kinds)
        finally:
            if state.query is not None:
                state.query.kill()
    print(f"{rounds} rounds, seed {seed}: {state.sent} messages once each; the stream was started {state.starts} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"unknown kinds {sorted(unknown)}; there are {', '.join(KINDS)}")
    print("seed", given.seed, flush=True)
    with tempfile.TemporaryDirectory(prefix="rocketpy-kills-") as directory:
        run(given.rounds, given.seed, kinds, Path(directory))


if __name__ == "__main__":
    main()
