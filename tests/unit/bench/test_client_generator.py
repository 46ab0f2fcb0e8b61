"""The client generator with a system in memory: what it sends, and from when it measures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.bench.clients.generator import END_TO_END, SENDS, ClientGenerator
from rocketpy.bench.clients.system import Receive, Send
from rocketpy.bench.cluster import BenchFailed
from rocketpy.bench.neighbours import SYSTEMS
from rocketpy.bench.result import Run
from rocketpy.bench.scenario import Scenario
from rocketpy.errors import ConfigError

SECONDS = 0.6
OPEN = Scenario(name="s", topics=2, producer_rate=200, test_duration_minutes=SECONDS / 60, warmup_duration_minutes=0)


@attrs.define
class Memory:
    """Delivers at once; `answer` is awaited before each acknowledgement."""

    answer: Callable[[int], Any]
    count: int = 0
    topics: list[str] = attrs.field(factory=list)
    receivers: dict[str, list[Receive]] = attrs.field(factory=dict)

    async def describe(self) -> dict[str, Any]:
        return {}

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None:
        self.topics += topics

    async def delete_topics(self, topics: Sequence[str]) -> None:
        self.topics.clear()

    @contextlib.asynccontextmanager
    async def producer(self, partitions: int) -> AsyncIterator[Send]:
        async def send(topic: str, body: bytes) -> None:
            assert topic in self.topics and len(body) == OPEN.message_size
            self.count += 1
            await self.answer(self.count)
            for members in self.receivers.values():
                members[self.count % len(members)](body)

        yield send

    @contextlib.asynccontextmanager
    async def consumer(self, group: str, topics: Sequence[str], receive: Receive) -> AsyncIterator[None]:
        self.receivers.setdefault(group, []).append(receive)
        yield


def run(answer: Callable[[int], Any], scenario: Scenario = OPEN, system: type[Memory] = Memory) -> tuple[Run, Memory]:
    made = system(answer)

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Memory]:
        yield made

    return ClientGenerator(connect, lambda *_: None).run(scenario), made


async def at_once(_: int) -> None:
    await asyncio.sleep(0)


def test_the_rate_is_kept_and_every_group_gets_each_message() -> None:
    scenario = attrs.evolve(OPEN, subscriptions_per_topic=2, consumer_per_subscription=3)
    found, system = run(at_once, scenario)
    sent = found.figures["messages_per_s"] * found.seconds
    assert 0.3 < sent / (200 * found.seconds) < 1.3, "a closed loop sends thousands"
    assert found.figures["consumed_per_s"] == pytest.approx(2 * found.figures["messages_per_s"], rel=0.05)
    assert sorted(map(len, system.receivers.values())) == [3, 3]
    assert system.topics == [] and set(found.histograms) == {SENDS, END_TO_END} and found.errors == {}


def test_a_stall_counts_for_all_that_was_due_meanwhile() -> None:
    """One send in flight, and one that takes 300 ms: about 60 are late by 0 to 300 ms, not one (no omission)."""

    async def stall(number: int) -> None:
        await asyncio.sleep(0.3 if number == 20 else 0)

    scenario = attrs.evolve(OPEN, topics=1, in_flight_per_producer=1)
    found, _ = run(stall, scenario)
    assert found.figures["send_max_us"] >= 300_000
    assert found.figures["send_p90_us"] > 100_000
    assert found.figures["end_to_end_p90_us"] > 100_000


def test_failures_are_counted_by_their_kind() -> None:
    async def fail(number: int) -> None:
        if number % 2:
            raise ConnectionError("refused")

    found, _ = run(fail)
    assert found.errors["ConnectionError"] > 10 and found.figures["messages_per_s"] > 10


def test_a_system_that_acknowledges_nothing_is_an_error() -> None:
    async def fail(_: int) -> None:
        raise ConnectionError("refused")

    with pytest.raises(BenchFailed, match=r"acknowledged no message: .*ConnectionError"):
        run(fail)


def test_an_error_of_the_load_is_not_hidden_by_that_of_the_deletion() -> None:
    """Fault: The end of a server during a run was hidden by the error of deleting its topics."""

    class Gone(Memory):
        async def delete_topics(self, topics: Sequence[str]) -> None:
            raise ConnectionError("gone")

    async def fail(_: int) -> None:
        raise ConnectionError("refused")

    with pytest.raises(BenchFailed, match="acknowledged no message"):
        run(fail, system=Gone)
    with pytest.raises(ConnectionError, match="gone"):
        run(at_once, system=Gone)


def test_a_client_that_hides_its_cancellation_does_not_hold_the_end_up() -> None:
    async def hide(_: int) -> None:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            raise TimeoutError from None

    found, _ = run(hide)
    assert found.figures["messages_per_s"] > 10


def test_keys_that_it_cannot_serve_are_named() -> None:
    with pytest.raises(BenchFailed, match="no batch_size, transactions: use --generator native"):
        run(at_once, attrs.evolve(OPEN, batch_size=2, transactions=True))


@pytest.mark.parametrize(("name", "needed"), [("nats", "needs nats-server on PATH"), ("kafka", "or KAFKA_LIB")])
def test_a_neighbour_that_is_missing_is_named(
    name: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KAFKA_LIB", raising=False)
    with pytest.raises(ConfigError, match=needed), SYSTEMS[name].open("", tmp_path):
        raise AssertionError("it was started")
    assert list(tmp_path.iterdir()) == []
