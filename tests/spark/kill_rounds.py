"""Kills at random, by hand: a stream and three archives of live topics have each message once, whatever dies.

python -m tests.spark.kill_rounds [--rounds 200] [--seed N] [--kinds archive,broker,...] [--at-once 2]

In a round messages are sent all the time, and one of KINDS is killed at a random moment. Now and then a queue is added,
or a topic is deleted and made again, while that dies. With the kind `retention` the broker deletes messages that nobody
has read: a run of an archive and a start of the stream must refuse to go on, and go on when they are told to. After
each round DuckDB reads the files of archives and stream. No message may be there twice, none may be skipped that the
broker has, and logs must tell of each one that it has not. At the end all that the broker has must be everywhere.

The stream runs on a local master, or on a standalone cluster of two workers. After a failure its directory stays.
The end of docs/adr/0138-an-archive-is-committed-by-manifests.md has the result of 201 rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from rocketpy.admin.cli import main as mqadmin
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import CLUSTERS, Bounds
from rocketpy.spark.data_lost import GOES_ON
from rocketpy.spark.offsets import offsets_of
from tests.spark.following import Following
from tests.spark.jvm import train
from tests.spark.kill_judges import (
    Reports,
    check_acknowledged,
    check_rows,
    files_of_sink,
    last_batch_of_sink,
    stored_numbers,
    stored_rows,
)
from tests.spark.query_process import QueryProcess, processes_of
from tests.spark.tables import DELTA, ICEBERG, PARQUET, Delta, Iceberg, Parquet
from tests.spark.test_exactness import last_batch
from tests.spark_cluster.standalone import Cluster, running_cluster
from tests.support.broker import RunningBroker, running_broker
from tests.support.readers import wait_for_readers
from tests.support.waiting import wait_until

TOPIC, DELETED = "Kills", "Deleted"  # the stream reads both, the archives the first
OF_STREAM = ("driver", "jvm", "python worker", "executor", "cluster worker")
KINDS = ("archive", "broker", "broker worker", "retention", *OF_STREAM)
ARCHIVES = (DELTA, ICEBERG, PARQUET)
Archive = Delta | Iceberg | Parquet
LOCAL = "local[2,3]"
WORKERS = 2  # of the standalone cluster
MESSAGES = 40  # of each topic before a kill
TRICKLE, PAUSE_S = 5, 0.5  # messages and pause while something dies
BODY_BYTES = 1000
COMMIT_BYTES = "20000"
DELAY_MAX_S = 2.0
QUEUES_MAX = 8
CHANCE = 0.15  # of each change in a round
DEADLINE_S = 420.0  # without a batch, a message or an end: longer is a hang
until = partial(wait_until, within_s=DEADLINE_S, pause_s=0.05)
# Many small files: retention deletes all but the last one.
SETTINGS = {"mappedFileSizeCommitLog": str(128 << 10), "maxMessageSize": str(32 << 10), "fileReservedTime": "0"}
SETTINGS |= {"defaultTopicQueueNums": "2"}
OPTIONS = ("maxOffsetsPerTrigger=60", "discoveryInterval=0s")


@attrs.define
class Traffic:
    """Sends to both topics. A send that fails is repeated, and may be stored twice."""

    broker: RunningBroker
    sent: int = 0  # acknowledged messages of TOPIC
    acknowledged: dict[tuple[int, int], int] = attrs.field(factory=dict)  # their numbers, by queue and offset

    def send(self, count: int) -> None:
        for topic in (DELETED, TOPIC):
            number, deadline_s = 0, time.monotonic() + DEADLINE_S
            while number < count:
                assert time.monotonic() < deadline_s, f"a hang: the broker takes no messages of {topic}"
                options = ProducerOptions(name_servers=self.broker.namesrv, send_timeout=10)
                with contextlib.suppress(RocketError), Producer("kills", options) as producer:
                    while number < count:
                        body = b"%s %d " % (topic.encode(), self.sent + number)
                        result = producer.send(Message(topic, body.ljust(BODY_BYTES, b".")))
                        if topic == TOPIC:
                            self.acknowledged[result.queue.queue_id, result.queue_offset] = self.sent + number
                        number += 1
        self.sent += count

    @contextlib.contextmanager
    def running(self, change: Callable[[], None], delay_s: float) -> Iterator[None]:
        """Within it messages flow; `change` is made after `delay_s`, or at the end."""
        ends, errors, begun_s = threading.Event(), list[BaseException](), time.monotonic()

        def flow() -> None:
            try:
                while not ends.wait(PAUSE_S) and time.monotonic() < begun_s + delay_s:
                    self.send(TRICKLE)
                change()
                self.send(TRICKLE)
                while not ends.wait(PAUSE_S):
                    self.send(TRICKLE)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
        if errors:
            raise errors[0]


@attrs.define
class Rounds:
    """What runs, and what was sent."""

    chance: random.Random
    broker: RunningBroker
    cluster: Cluster | None  # None: no stream
    directory: Path
    traffic: Traffic = attrs.field(init=False)
    queues: int = 2
    query: QueryProcess | None = None
    starts: int = 0  # of the stream
    workers: int = WORKERS  # of the cluster, that were started

    def __attrs_post_init__(self) -> None:
        self.traffic = Traffic(self.broker)

    @property
    def out(self) -> Path:
        return self.directory / "stream"

    # --- the stream ---------------------------------------------------------------------------------------------------

    def started(self, *, fails: bool = False) -> QueryProcess:
        """A start of the stream from its checkpoint."""
        assert self.cluster is not None
        self.starts += 1
        master = self.chance.choice((LOCAL, self.cluster.url))
        loss = f"failOnDataLoss={str(fails).lower()}"
        return QueryProcess(master, self.broker.namesrv, f"{TOPIC},{DELETED}", self.out, *OPTIONS, loss)

    def running_query(self) -> QueryProcess:
        """The stream, started again unless it runs."""
        if self.query is None or self.query.process.poll() is not None:
            self.query = self.started()
        return self.query

    def wait_for_batch(self, log: str, wanted: int) -> None:
        """Wait until a batch is planned (`offsets`) or done (`commits`); a stream that fails meanwhile is restarted."""

        def is_reached() -> bool:
            self.running_query()
            return last_batch(self.out, log) >= wanted

        until(is_reached, f"batch {wanted} of the stream's {log}", pause_s=0.01)

    def is_local(self) -> bool:
        return self.query is not None and LOCAL in self.query.process.args  # type: ignore[operator]  # a list here

    def kill_of_stream(self, kind: str) -> str:
        """Kill a part of the stream, if it has it, within a batch. Returns what died."""
        log = self.chance.choice(("offsets", "commits"))
        self.wait_for_batch(log, last_batch(self.out, log) + self.chance.randint(1, 2))
        query = self.running_query()
        if kind == "cluster worker":
            return self._kill_worker()
        if kind == "executor" and self.is_local():
            kind = "jvm"  # a local master has no other
        found = self._processes(query.process.pid).get(kind, [])
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
        if kind in ("driver", "jvm"):
            query.kill()
        where = "local" if self.is_local() else "on the cluster"
        return f"{kind if found else f'no {kind}'} {where} in batch {last_batch(self.out, 'offsets')}"

    def _kill_worker(self) -> str:
        """A worker of the cluster dies with its executors; another one takes its place, as a unit would start it."""
        assert self.cluster is not None
        number = self.chance.choice(sorted(self.cluster.workers))
        self.cluster.kill_worker(number)
        time.sleep(self.chance.uniform(0, DELAY_MAX_S))
        self.cluster.start_worker(self.workers)
        self.workers += 1
        used = "idle" if self.is_local() else "with the stream"
        return f"worker {number}, {used}, in batch {last_batch(self.out, 'offsets')}"

    def _processes(self, session: int) -> dict[str, list[int]]:
        """The processes of the stream by their kind, on the cluster also those of its workers."""
        workers = {} if self.cluster is None or self.is_local() else self.cluster.workers
        return processes_of(session, [worker.pid for worker in workers.values()])

    # --- the broker and the archives ----------------------------------------------------------------------------------

    def kill(self, kind: str) -> str:
        """Returns what died."""
        if kind == "archive":
            return self._kill_archive()
        if kind in OF_STREAM:
            return self.kill_of_stream(kind)
        time.sleep(self.chance.uniform(0, DELAY_MAX_S))
        if kind == "broker":
            self.broker.kill_all()
            self.broker.start()
            return kind
        name = self.chance.choice(sorted(self.broker.workers()))
        self.broker.kill_worker(name)
        return name

    def _kill_archive(self) -> str:
        kind = self.chance.choice(ARCHIVES)
        files, log = self.directory / kind.name, self._log(kind)
        before, read = len(list(files.rglob("*.parquet"))), log.stat().st_size if log.exists() else 0
        wanted = before + self.chance.randint(0, 10)

        def is_reached() -> bool:  # so many files, or all there is
            return len(list(files.rglob("*.parquet"))) >= wanted or b'"rows"' in log.read_bytes()[read:]

        with Following(files, *self._words(kind), "--allow-gap") as following:
            following.wait_until(is_reached)
            time.sleep(self.chance.uniform(0, 0.2))
        return kind.name

    def _log(self, kind: Archive) -> Path:
        return self.directory / f"{kind.name}.log"

    def _words(self, kind: Archive) -> list[str]:
        return ["-n", self.broker.namesrv, "-t", TOPIC, "--format", kind.name, "--commit-bytes", COMMIT_BYTES]

    def archive(self, kind: Archive, *words: str) -> int:
        """Run an archive to its end. Returns the exit status."""
        command = [sys.executable, "-m", "rocketpy", "pipeline", "archive", "--inline", *self._words(kind), *words]
        with self._log(kind).open("ab") as log:
            command.append(str(self.directory / kind.name))
            return subprocess.run(command, stdout=log, stderr=log, timeout=DEADLINE_S, check=False).returncode

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """Return the bounds of all queues of both topics; a worker of the broker may have died a moment ago."""
        cluster = CLUSTERS.get(ClientOptions(name_servers=self.broker.namesrv))
        found: dict[MessageQueue, Bounds] = {}

        def is_told() -> bool:
            with contextlib.suppress(RocketError):
                queues, missing = cluster.existing((TOPIC, DELETED), 0.0)
                found.update(cluster.bounds(queues))
                return TOPIC not in missing
            return False

        until(is_told, "the offsets of the broker")
        return found

    def admin(self, *words: str) -> None:
        """A command of mqadmin, until the broker does it."""

        def is_done() -> bool:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                return mqadmin([words[0], "-n", self.broker.namesrv, *words[1:]]) == 0

        until(is_done, " ".join(words), pause_s=0.5)

    def choose_change(self) -> tuple[str, Callable[[], None]]:
        """Now and then something that an operator does. A stream that has no position yet would not miss a topic."""
        chosen = self.chance.random() / CHANCE
        if chosen < 1 and self.queues < QUEUES_MAX:
            self.queues += 1
            count = str(self.queues)
            words = ("updateTopic", "-b", self.broker.address, "-t", TOPIC, "-r", count, "-w", count)
            return f", queue {self.queues - 1} added", lambda: self.admin(*words)
        if 1 <= chosen < 2 and last_batch(self.out, "commits") >= 0:
            return f", {DELETED} deleted", lambda: self.admin("deleteTopic", "-c", "DefaultCluster", "-t", DELETED)
        return "", lambda: None

    def begin(self) -> None:
        """Tables begin before anything is deleted: what is missing later was not read."""
        self.traffic.send(TRICKLE)
        wait_for_readers(self.broker.port)
        for kind in ARCHIVES:
            assert self.archive(kind) == 0, self._log(kind).read_text()

    # --- retention ----------------------------------------------------------------------------------------------------

    def expire(self) -> str:
        """Let the broker delete what was not read. Archives and, half of the time, the stream stand still meanwhile."""
        if self.cluster is not None:
            self.wait_for_batch("commits", 0)  # without a position the stream would not miss anything
        is_stopped = self.query is not None and self.chance.random() < 0.5
        if is_stopped and self.query is not None:
            self.query.kill()
        self.traffic.send(3 * MESSAGES)
        before = self.bounds()
        self.admin("deleteExpiredCommitLog", "-b", self.broker.address)
        kept = self._settled_minimums(before)
        refused = [kind.name for kind in ARCHIVES if self._is_refused(kind, kept)]
        if is_stopped and self._is_stream_refused(kept):
            refused.append("stream")
        return f"{sum(kept.values())} offsets gone, {'stopped' if is_stopped else 'running'}, refused: {refused}"

    def _settled_minimums(self, before: dict[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
        """The first offsets when they have grown and no longer change."""
        last: dict[MessageQueue, int] = {}

        def is_settled() -> bool:
            now = {queue: bound.min_offset for queue, bound in self.bounds().items()}
            is_same = now == last
            has_grown = any(now.get(queue, 0) > bound.min_offset for queue, bound in before.items())
            last.clear()
            last.update(now)
            return is_same and has_grown

        until(is_settled, "retention", pause_s=0.5)
        return last

    def _is_refused(self, kind: Archive, kept: dict[MessageQueue, int]) -> bool:
        """Return True if a table is behind what is kept; check that a run without --allow-gap leaves it as it is."""
        rows = self._rows_of(kind)
        ends = {queue: max((at for _, q, at, _ in rows if q == queue), default=-1) + 1 for queue in range(QUEUES_MAX)}
        behind = {queue: at for queue, at in kept.items() if queue.topic == TOPIC and 0 < ends[queue.queue_id] < at}
        if not behind:
            return False
        size = self._log(kind).stat().st_size
        status = self.archive(kind)
        said = self._log(kind).read_bytes()[size:].decode()
        assert status == 2 and "--allow-gap goes on without it" in said, f"{kind.name} is behind {behind}: {said}"
        assert self._rows_of(kind) == rows, f"{kind.name}: a run that was refused has changed the table"
        return True

    def _is_stream_refused(self, kept: dict[MessageQueue, int]) -> bool:
        """Return True if the stream is behind what is kept; check that failOnDataLoss=true ends it with a reason."""
        lines = (self.out / "checkpoint/offsets" / str(last_batch_of_sink(self.out))).read_text().splitlines()
        ends = offsets_of(json.loads(lines[-1])["q"])
        if not any(ends.get(queue, at) < at for queue, at in kept.items()):
            return False
        strict = self.started(fails=True)
        size, batch = len(strict.text()), last_batch_of_sink(self.out)
        try:
            until(lambda: strict.process.poll() is not None, "a start of the stream after retention")
        finally:
            strict.kill()
        said = strict.text()[size:]
        assert GOES_ON in said, f"the stream is behind {kept} at {ends}, and has said {said[-3000:]}"
        assert last_batch_of_sink(self.out) == batch, "a query that failed has written a batch"
        return True

    # --- what is there ------------------------------------------------------------------------------------------------

    def _rows_of(self, kind: Archive) -> list[tuple[str, int, int, int]]:
        if kind.rows(self.directory / kind.name) is None:
            return []
        return sorted(stored_rows(kind.files(self.directory / kind.name)))

    def check(self, *, is_whole: bool = False) -> dict[str, str]:
        """Returns the numbers of rows and of lost offsets. Raises AssertionError."""
        bounds, found = self.bounds(), {}
        of_topic = {queue: bound for queue, bound in bounds.items() if queue.topic == TOPIC}
        for kind in ARCHIVES:
            rows, reports = self._rows_of(kind), Reports.of([self._log(kind)] if self._log(kind).exists() else [])
            lost = check_rows(rows, of_topic, reports, kind.name, is_whole=is_whole)
            found[kind.name] = f"{len(rows)} - {lost.total()}"
            if is_whole:
                table = kind.rows(self.directory / kind.name)
                assert table.num_rows == len(rows), f"{kind.name}: DuckDB reads {len(rows)} of {table.num_rows} rows"
        if self.cluster is not None:
            rows, logs = stored_rows(files_of_sink(self.out)), [self.directory / "query.log"]
            logs += self.directory.glob("worker-*/*/*/stderr")
            lost = check_rows(rows, bounds, Reports.of(logs), "stream", is_whole=is_whole)
            found["stream"] = f"{len(rows)} - {lost.total()}"
        return found

    def has_read_all(self) -> bool:
        """Return True if the stream has committed all that the broker has."""
        ends: dict[tuple[str, int], int] = {}
        for topic, queue, offset, _ in stored_rows(files_of_sink(self.out)):
            ends[topic, queue] = max(ends.get((topic, queue), 0), offset + 1)
        bounds = self.bounds().items()
        return all(ends.get((q.topic, q.queue_id), 0) >= b.max_offset for q, b in bounds if b.max_offset > b.min_offset)

    def finish(self) -> dict[str, str]:
        """Everything that was acknowledged is in the broker, and all that it has is everywhere."""
        wait_for_readers(self.broker.port, DEADLINE_S)  # otherwise the last messages are not read, and then missed
        for kind in ARCHIVES:
            assert self.archive(kind, "--allow-gap") == 0, self._log(kind).read_text()[-3000:]
        if self.cluster is not None:
            until(lambda: self.running_query() is not None and self.has_read_all(), "the end of the topics", pause_s=1)
        self.check_acknowledged()
        return self.check(is_whole=True)

    def check_acknowledged(self) -> None:
        """Raises AssertionError."""
        ends = {queue.queue_id: bound.max_offset for queue, bound in self.bounds().items() if queue.topic == TOPIC}
        files = {kind.name: kind.files(self.directory / kind.name) for kind in ARCHIVES}
        if self.cluster is not None:
            files["stream"] = files_of_sink(self.out)
        for name, of_reader in files.items():
            check_acknowledged(self.traffic.acknowledged, stored_numbers(of_reader, TOPIC), ends, name)


def run(rounds: int, seed: int, kinds: tuple[str, ...], directory: Path) -> None:
    """Raises AssertionError at the first round that shows a fault."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running_broker(SETTINGS, store=directory / "store", is_new=True))
        stack.callback(lambda: (directory / "broker.log").write_text(broker.text()))
        has_stream = bool(set(kinds) & set(OF_STREAM))  # its starts take most of the time
        if has_stream:
            train()
        cluster = stack.enter_context(running_cluster(directory, WORKERS)) if has_stream else None
        state = Rounds(random.Random(seed), broker, cluster, directory)
        state.begin()
        stack.callback(lambda: state.query.kill() if state.query is not None else None)
        for number in range(rounds):
            begun_s = time.monotonic()
            state.traffic.send(MESSAGES)
            if has_stream:
                state.running_query()
            kind = state.chance.choice(kinds)
            if kind == "retention":
                died, change = state.expire(), ""
            else:
                change, make = state.choose_change()
                with state.traffic.running(make, state.chance.uniform(0, DELAY_MAX_S)):
                    died = state.kill(kind)
            have, took_s = state.check(), time.monotonic() - begun_s
            print(f"{number + 1}/{rounds} {kind}: {died}{change}; {have}, {took_s:.0f} s", flush=True)
        print(f"{rounds} rounds, seed {seed}: {state.finish()} - lost; the stream was started {state.starts} times")


def run_at_once(count: int, rounds: int, seed: int, kinds: str) -> int:
    """Run processes beside each other, each with a part of the rounds. Returns the exit status."""
    words = [sys.executable, "-m", "tests.spark.kill_rounds", "--kinds", kinds]
    processes = []
    for number in range(count):
        own = ["--rounds", str(rounds // count + (number < rounds % count)), "--seed", str(seed + number)]
        environment = os.environ | {"ROCKETPY_FIRST_WORKER": str(number)}  # its part of the ports
        processes.append(subprocess.Popen([*words, *own], env=environment))
    return max(process.wait() for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--at-once", type=int, default=1, help="processes, which wait most of their time")
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"unknown kinds {sorted(unknown)}; there are {', '.join(KINDS)}")
    if given.at_once > 1:
        sys.exit(run_at_once(given.at_once, given.rounds, given.seed, given.kinds))
    print("seed", given.seed, flush=True)
    directory = Path(tempfile.mkdtemp(prefix="rocketpy-kills-"))
    try:
        run(given.rounds, given.seed, kinds, directory)
    except BaseException:
        print(f"seed {given.seed}: what was there is in {directory}", flush=True)
        raise
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
