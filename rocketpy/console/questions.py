"""Questions of single pages to the cluster, beside the figures that the poller has.

An answer is a value or a line that says why there is none: a broker that is down takes its part of a page away, not the
page. Every question ends within ASK_S, at most ASKED_AT_ONCE of one page are on their way, and pages share PAGES_MAX
places.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import attrs

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.admin.core import NotFound
from rocketpy.admin.statistics import TOPIC_PUT_NUMS
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, RequestTimeout, RocketError
from rocketpy.faults import printable
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import retry_topic
from rocketpy.remoting.bodies.client import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerInfo,
)
from rocketpy.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketpy.remoting.bodies.topic import TopicOffset

from .cluster import ClusterState

ASK_S = 4.0
ASKED_AT_ONCE = 8
PAGES_MAX = 8
WAIT_S = 5.0  # for a place
GROUPS_SHOWN = 200
NO_PRODUCERS = "] not exist"  # of a producer group: the remark of brokers, whose code is a general one

T = TypeVar("T")
K = TypeVar("K")


@attrs.frozen
class Answer(Generic[T]):
    """A value, or the reason why there is none."""

    value: T | None = None
    error: str = ""


class TooBusy(RocketError):
    """All places for questions are taken."""


@attrs.frozen
class TopicRow:
    """A topic in the list: its queues on all brokers, and messages per second in the last minute."""

    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: int
    rate: float


@attrs.frozen
class ConnectedProducer:
    """A client as a member of a producer group."""

    group: str
    client: ProducerInfo

    @property
    def address(self) -> str:
        return self.client.remote_ip.removeprefix("/")

    @property
    def text(self) -> str:
        """Return the text that a search looks into; no two producers of a broker have the same."""
        return f"{self.group} {self.client.client_id} {self.address}"


class Questions:
    """Asks for pages."""

    def __init__(self, admin: Admin, state: ClusterState) -> None:
        self.admin = admin
        self.state = state
        self._places = aio.Semaphore(PAGES_MAX)

    @property
    def now_ms(self) -> int:
        return self.admin.instance.now_ms()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold one of the places for pages that ask. Raises TooBusy."""
        with aio.move_on_after(WAIT_S) as scope:
            await self._places.acquire()
        if scope.cancelled_caught:
            raise TooBusy(f"{PAGES_MAX} other pages wait for brokers; try again in a moment")
        try:
            yield
        finally:
            self._places.release()

    async def one(self, ask: Callable[[], Awaitable[T]], seconds: float = ASK_S) -> Answer[T]:
        """Ask; a failure becomes a line."""
        try:
            with aio.move_on_after(seconds) as scope:
                return Answer(await ask())
            assert scope.cancelled_caught
            error: RocketError = RequestTimeout(f"no answer within {seconds:g} s")
        except RocketError as failure:
            error = failure
        return Answer(error=printable(str(error)))

    async def all(self, asks: Mapping[K, Callable[[], Awaitable[T]]], seconds: float = ASK_S) -> dict[K, Answer[T]]:
        """Ask several at the same time; the order is that of `asks`."""
        answers: dict[K, Answer[T]] = dict.fromkeys(asks, Answer())
        at_once = aio.Semaphore(ASKED_AT_ONCE)

        async def ask(key: K, question: Callable[[], Awaitable[T]]) -> None:
            async with at_once:
                answers[key] = await self.one(question, seconds)

        async with aio.open_nursery() as nursery:
            for key, question in asks.items():
                nursery.start_soon(ask, key, question)
        return answers

    # --- topics -------------------------------------------------------------------------------------------------------

    async def topic_rows(self, topics: Sequence[str]) -> dict[str, Answer[TopicRow]]:
        """Ask for the queues and rates of some topics."""
        return await self.all({topic: self._row_question(topic) for topic in topics})

    def _row_question(self, topic: str) -> Callable[[], Awaitable[TopicRow]]:
        async def ask() -> TopicRow:
            route = await self.admin.instance.api.topic_route(topic, self.admin.timeout_s)
            rate = 0.0
            for address in masters_of(route):
                rate += await self._rate(address, topic)
            return TopicRow(
                tuple(sorted(data.broker_name for data in route.broker_datas)),
                sum(data.read_queue_nums for data in route.queue_datas),
                sum(data.write_queue_nums for data in route.queue_datas),
                max((data.perm for data in route.queue_datas), default=0),
                rate,
            )

        return ask

    async def _rate(self, address: str, topic: str) -> float:
        """Return 0 where the broker has no such figure: the topic has had no message."""
        try:
            return (await self.admin.broker_stats(address, TOPIC_PUT_NUMS, topic)).stats_minute.tps
        except BrokerError:
            return 0.0

    async def topic_page(self, topic: str, producer_group: str) -> dict[str, Answer[Any]]:
        """Ask for all of a topic: `route`, `offsets` by queue, `groups`; `producers` of a group if one is named.

        Brokers know producers by group, not by topic.
        """
        admin = self.admin

        async def route() -> TopicRouteData:
            return await admin.instance.api.topic_route(topic, admin.timeout_s)

        async def offsets() -> dict[MessageQueue, TopicOffset]:
            return await admin.topic_stats(topic)

        async def groups() -> list[str]:
            return sorted(await admin.who_consumes(topic))[:GROUPS_SHOWN]

        async def producers() -> ProducerConnection:
            try:
                return await admin.producer_connection(producer_group, topic)
            except BrokerError as error:
                if NO_PRODUCERS in (error.remark or ""):
                    return ProducerConnection()
                raise

        asks: dict[str, Callable[[], Awaitable[Any]]] = {"route": route, "offsets": offsets, "groups": groups}
        return await self.all(asks | ({"producers": producers} if producer_group else {}))

    # --- clients ------------------------------------------------------------------------------------------------------

    async def producers(self, addresses: Sequence[str]) -> dict[str, Answer[dict[str, ConnectedProducer]]]:
        """Ask brokers for all producers that are connected to them, by a text with group, client and address."""

        def question(address: str) -> Callable[[], Awaitable[dict[str, ConnectedProducer]]]:
            async def ask() -> dict[str, ConnectedProducer]:
                table = (await self.admin.all_producers(address)).data
                found = (ConnectedProducer(group, each) for group in sorted(table) for each in table[group])
                return {producer.text: producer for producer in found}

            return ask

        return await self.all({address: question(address) for address in addresses})

    async def members(self, group: str) -> Answer[ConsumerConnection]:
        """Ask for the connections of a group; one without members has none, which is no error."""

        async def ask() -> ConsumerConnection:
            try:
                return await self.admin.consumer_connection(group)
            except BrokerError as error:
                if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
                    return ConsumerConnection()
                raise

        return await self.one(ask)

    async def member(self, group: str, client_id: str) -> Answer[ConsumerRunningInfo]:
        """Ask a member for its state, by way of the brokers of the group."""

        async def ask() -> ConsumerRunningInfo:
            if group not in self.state.groups:
                raise NotFound(f"no group {group}")
            for address in (await self.admin.masters_of_topic(retry_topic(group))).values():
                connection = await self.admin.consumer_connection(group, address)
                if any(member.client_id == client_id for member in connection.connection_set):
                    return await self.admin.running_info(group, client_id, address=address)
            raise NotFound(f"group {group} has no member {client_id} now")

        return await self.one(ask, 2 * ASK_S)


def masters_of(route: TopicRouteData) -> list[str]:
    return [data.broker_addrs[MASTER_ID] for data in route.broker_datas if MASTER_ID in data.broker_addrs]
