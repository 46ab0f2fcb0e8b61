"""The targets nats and kafka of `rocketpy bench` with real servers, which it starts itself (`make test-neighbours`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rocketpy.bench.clients.generator import ClientGenerator
from rocketpy.bench.clients.system import Receive
from rocketpy.bench.cluster import BenchFailed
from rocketpy.bench.neighbours import KAFKA_VERSION, SYSTEMS
from rocketpy.bench.own_broker import OwnBroker, server, wait_ready
from rocketpy.bench.scenario import Scenario

MISSING = [name for name in ("nats-server", "java", "mvn") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"`make test-neighbours` installs or needs {', '.join(MISSING)}")
pytest.importorskip("nats", reason="the extra bench-neighbours is not installed")
pytest.importorskip("aiokafka", reason="the extra bench-neighbours is not installed")

TOPICS = ["first", "second"]
GROUPS = ["g0", "g1"]
STEADY = {
    "topics": 2,
    "partitionsPerTopic": 4,
    "producersPerTopic": 2,
    "producerRate": 200,
    "subscriptionsPerTopic": 2,
    "consumerPerSubscription": 2,
    "testDurationMinutes": 0.05,
    "warmupDurationMinutes": 0.02,
}
neighbours = pytest.mark.parametrize("name", SYSTEMS)


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocketpy", "bench", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@neighbours
def test_a_run_measures_all_that_it_sends_and_says_by_what(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(json.dumps(STEADY))
    (tmp_path / "stores").mkdir()
    options = ("--target", name, "--runs", "1", "--store", str(tmp_path / "stores"), "-o", str(tmp_path / "out.json"))
    done = bench(str(tmp_path / "s.yaml"), *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    (run,) = found["points"][0]["runs"]
    assert run["errors"] == {} and found["generator"] == "client" and found["target"]["system"] == name
    figures = run["figures"]
    assert figures["messages_per_s"] == pytest.approx(200, rel=0.3)
    assert figures["consumed_per_s"] == pytest.approx(2 * figures["messages_per_s"], rel=0.3), "each group reads all"
    assert figures["broker_cpu_us"] > 0 and figures["broker_pss_mib"] > 5
    assert found["target"]["version"] == version(name)
    assert SYSTEMS[name].settings.items() <= found["target"]["settings"].items()
    assert list((tmp_path / "stores").iterdir()) == [], "the stores are removed"


def version(name: str) -> str:
    if name == "kafka":
        return KAFKA_VERSION
    done = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip().rpartition("v")[2]


@neighbours
def test_each_group_gets_each_message_once_and_its_members_share_them(name: str, tmp_path: Path) -> None:
    sent = [f"{topic} {number}".encode() for topic in TOPICS for number in range(200)]
    received = {group: [Counter[bytes](), Counter[bytes]()] for group in GROUPS}

    async def play(connect: Any) -> None:
        async with connect() as system, contextlib.AsyncExitStack() as stack:
            await system.make_topics(TOPICS, 4)
            for group, members in received.items():
                for member in members:
                    await stack.enter_async_context(system.consumer(group, TOPICS, counting(member)))
            send = await stack.enter_async_context(system.producer(4))
            for body in sent:
                await send(body.split()[0].decode(), body)
            async with asyncio.timeout(60):
                while not all(sum(map(Counter.total, each)) >= len(sent) for each in received.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with SYSTEMS[name].open("", tmp_path) as (connect, _):
        asyncio.run(play(connect))
    for members in received.values():
        assert sum(members, Counter()) == Counter(sent)
        assert all(members), "a member got nothing"


def counting(member: Counter[bytes]) -> Receive:
    return lambda body: member.update([bytes(body)])


def make_topic(connect: Any, times: int = 1) -> None:
    async def play() -> None:
        async with connect() as system:
            for _ in range(times):
                await system.make_topics(["topic"], 1)

    asyncio.run(play())


def test_a_topic_that_kafka_refuses_ends_the_run(tmp_path: Path) -> None:
    """Fault: A topic that Kafka refused to create was taken for created."""
    with SYSTEMS["kafka"].open("", tmp_path) as (connect, _), pytest.raises(BenchFailed, match="create the topic"):
        make_topic(connect, times=2)


def test_a_nats_server_without_streams_is_named(tmp_path: Path) -> None:
    """Fault: A NATS server without JetStream ended a run with a traceback."""

    def command(directory: Path, port: int) -> list[str]:
        program, *words = SYSTEMS["nats"].command(directory, port)
        return [program, *words[words.index("-a") :]]

    with server(command, tmp_path) as broker:
        wait_ready(broker, lambda: socket.create_connection(("127.0.0.1", int(broker.address.split(":")[1]))).close())
        with pytest.raises(BenchFailed, match=r"cannot create the stream topic.*-js"):
            make_topic(lambda: SYSTEMS["nats"].connect(broker.address))


@neighbours
def test_a_server_that_dies_during_a_run_is_named(name: str, tmp_path: Path) -> None:
    """Fault: The end of a server during a run was hidden by the error of deleting its topics."""
    with SYSTEMS[name].open("", tmp_path) as (connect, broker):
        assert broker is not None
        with pytest.raises(BenchFailed, match="the broker ended with status -9"):
            generator(connect, broker).run(Scenario(name="s", producer_rate=100, test_duration_minutes=1))


def generator(connect: Any, broker: OwnBroker) -> ClientGenerator:
    """Return one whose server is killed while it measures."""

    def kill(phase: str, at_s: float, messages: int, errors: int) -> None:
        if phase == "measure" and broker.process.poll() is None:
            os.kill(broker.process.pid, signal.SIGKILL)

    return ClientGenerator(connect, kill, broker)


@neighbours
def test_a_server_that_is_not_there_is_one_line(name: str, tmp_path: Path) -> None:
    """Fault: An address where no NATS or Kafka answers ended with a traceback, for NATS after two minutes."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        done = bench("latency", "--target", name, "--address", address, "--quick", "-o", str(tmp_path / "out.json"))
    assert done.returncode == 1 and "answers at" in done.stderr and address in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
