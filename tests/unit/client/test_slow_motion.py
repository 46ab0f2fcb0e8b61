"""Consumers in slow motion: whatever happens between two turns of the loop, no message is acknowledged, by an offset or
by sending it back, that its handler did not finish; and another member gets each message that was not.

A turn is one pass of the loop, in which each task that can run does so once. After every turn the offsets are looked at
that the consumer would commit if it were asked now, so a commit that comes too early is found in whichever turn it is
made. Turns are counted from the first call of a handler; the clock goes on after every eighth.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from rocketpy import aio
from rocketpy.client import START_FIRST, PullConsumer, PushConsumer, ReceivedMessage
from rocketpy.message.names import RETRY_PREFIX, dlq_topic
from tests.support.budget import IS_LONG, budget
from tests.support.clients import pull_consumer, push_consumer, remember_channel
from tests.support.cluster import FakeBroker, FakeCluster, run
from tests.support.push_consumers import store

pytestmark = pytest.mark.usefixtures("backend", "same_order")

COUNT, WATCHED = 5, 1  # messages 0 to 4; the handler of the second one ends as the test says
HANDLER_S = 0.4
PAUSE_S, TURNS_BETWEEN = 0.15, 8
POINTS = range(0, 64, budget(17, 3))
AFTERWARDS = 40  # turns
LOOK_S, LOOKS = 2.5, 4
LOOKS_TAKEN_OVER = 30  # a lock is given up 20 s later when messages are cached, and rebalance comes every 20 s
EVENTS = ("cancelled", "left", "joined", "disconnected")


@pytest.fixture
def same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """trio runs the tasks of a turn in a random order; here it is random, and the same in each run."""
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr(trio._core._run, "_r", random.Random(24))


async def end_as_cancelled() -> None:
    """Raise what a handler raises that was cancelled, while its consumer was not."""
    if aio.running().name == "trio":
        with trio.fail_after(0):
            await trio.sleep(1)
    cancelled = asyncio.ensure_future(asyncio.sleep(1))
    cancelled.cancel()
    await cancelled


@attrs.define(eq=False)
class Handling:
    """Handlers that take turns and time. The first one of the watched message does not finish, unless it should."""

    ending: str
    begun: aio.Event = attrs.field(factory=aio.Event)
    finished: set[int] = attrs.field(factory=set)
    failed: set[int] = attrs.field(factory=set)

    async def one(self, message: ReceivedMessage) -> None:
        await self.several([message])

    async def several(self, messages: Sequence[ReceivedMessage]) -> None:
        self.begun.set()
        numbers = {int(message.body) for message in messages}
        await aio.sleep(0)
        await aio.sleep(HANDLER_S)
        if WATCHED in numbers and not self.failed and self.ending != "finishes":
            if self.ending == "blocks":
                await aio.sleep_forever()
            self.failed |= numbers
            if self.ending == "is cancelled":
                await end_as_cancelled()
            raise ValueError
        await aio.sleep(0)
        self.finished |= numbers


@attrs.define(eq=False)
class Watch:
    """What consumers and their broker have acknowledged, beside what handlers have finished."""

    broker: FakeBroker
    handling: Handling
    places: dict[int, int]  # of messages in the log
    consumers: list[PushConsumer | PullConsumer] = attrs.field(factory=list)

    @property
    def given_back(self) -> set[int]:
        asked = {self.places[header.offset] for header in self.broker.sent_back}
        topics = (f"{RETRY_PREFIX}cg", dlq_topic("cg"))
        copies = [image for topic in topics for image in self.broker.records[topic, 0]]
        return asked | {number for number in range(COUNT) if any(b"<%d>" % number in image for image in copies)}

    def check(self) -> None:
        given_back = self.given_back
        assert given_back <= self.handling.failed
        offsets = [self.broker.offsets.get(("cg", "T", 0), 0)]
        for consumer in self.consumers:
            offsets += consumer.consumed_offsets("T").values()
        assert set(range(max(offsets))) <= self.handling.finished | given_back

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await aio.sleep(0)
            self.check()


@attrs.define(eq=False)
class Scene:
    """A broker with messages, one consumer, and an event that happens to it at a point of its work."""

    cluster: FakeCluster
    kind: str
    watch: Watch
    leave: aio.Event = attrs.field(factory=aio.Event)

    async def consume(self, client: str) -> None:
        handling, together = self.watch.handling, self.kind == "batch"
        settings: dict[str, Any] = {"batch_size_max": 2} if together else {}
        handler = handling.several if together else handling.one
        async with push_consumer(
            self.cluster,
            handler,
            client=client,
            batch=together,
            start=START_FIRST,
            ordered=self.kind == "ordered",
            concurrency=2,
            shutdown_grace=1.0,
            **settings,
        ) as consumer:
            self.watch.consumers.append(consumer)
            await self.leave.wait()

    async def read(self, client: str) -> None:
        """A program that asks for messages: it has finished one when it asks for the next, or leaves in good order."""
        try:
            async with pull_consumer(
                self.cluster, client=client, start=START_FIRST, auto_commit_interval=1.0
            ) as consumer:
                self.watch.consumers.append(consumer)
                await consumer.subscribe("T")
                async for message in consumer:
                    await self.watch.handling.one(message)
                    if self.leave.is_set():
                        return
        except ValueError:
            return

    async def play(self, event: str, point: int) -> None:
        work = self.read if self.kind == "pull" else self.consume
        channels = remember_channel(self.watch.broker)
        async with aio.open_nursery() as nursery:
            task = nursery.start(work, "c1")
            await self.watch.handling.begun.wait()
            await aio.sleep(point // TURNS_BETWEEN * PAUSE_S)
            await self.watch.turns(point % TURNS_BETWEEN)
            if event == "cancelled":
                task.cancel()
            elif event == "left":
                self.leave.set()
            elif event == "joined":  # its name is the first: the queue is to be its own
                nursery.start_soon(work, "c0")
            else:
                channels[-1].close()
            await self.watch.turns(AFTERWARDS)
            for _ in range(LOOKS_TAKEN_OVER if event == "joined" else LOOKS):
                await aio.sleep(LOOK_S)
                self.watch.check()
            nursery.cancel()
        self.watch.check()


def new_scene(cluster: FakeCluster, kind: str, ending: str, name: str) -> Scene:
    broker = cluster.add_broker(name, T=1)
    cluster.brokers = {name: broker}
    places = {}
    for number in range(COUNT):
        places[broker.end] = number
        store(broker, b"%d" % number)
    return Scene(cluster, kind, Watch(broker, Handling(ending), places))


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        *itertools.product(("single", "batch", "ordered"), ("finishes", "raises", "is cancelled", "blocks")),
        *itertools.product(("pull",), ("finishes", "raises", "blocks")),  # it is cancelled together with its program
    ],
)
def test_no_message_is_acknowledged_that_its_handler_did_not_finish(kind: str, ending: str) -> None:
    """Holds: client, the smallest unfinished offset is committed.
    Fault: A pull consumer that gave a queue away committed the message that its program was working on."""

    async def scenario(cluster: FakeCluster) -> None:
        reached = set()
        for number, point in enumerate(POINTS):
            for event in EVENTS if IS_LONG else [EVENTS[number % len(EVENTS)]]:
                scene = new_scene(cluster, kind, ending, f"{event}-{point}")
                try:
                    await scene.play(event, point)
                    watch = scene.watch
                    stays = event == "joined" or (event == "disconnected" and (kind, ending) != ("pull", "raises"))
                    if stays and ending != "blocks":
                        assert watch.handling.finished | watch.given_back == set(range(COUNT)), "nothing is lost"
                except BaseException as failure:
                    failure.add_note(f"{event} at point {point}")
                    raise
                reached.add(len(watch.handling.finished))
        assert len(reached) > 1, "the events come before or after all work"

    run(scenario)
