"""Searches of messages: by id, by key, by time, the newest ones; one by its place; its trace.

Each is bounded in messages and queues, so that a search costs a broker about as much as a consumer that pulls once.
Lists inflate no bodies: those of a few compressed messages may have gigabytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

import attrs

from rocketpy.admin.commands.traces import MessageTrace, message_trace
from rocketpy.admin.core import NotFound
from rocketpy.admin.messages import pulls, query_by_key, query_by_unique_key, view_at
from rocketpy.client.cluster.route import subscribe_queues
from rocketpy.client.messages import ReceivedMessage
from rocketpy.errors import BrokerError, ConfigError, MessageInvalid
from rocketpy.message.host import format_host
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import TOOLS_CONSUMER_GROUP, TRACE_TOPIC
from rocketpy.message.numbers import LONG_MAX

from .questions import ASK_S, Answer, Questions

FOUND_MAX = 64
QUEUES_MAX = 64  # of a topic that are read for a search by time
OF_QUEUE = 16  # messages of one queue that a search by time reads at least
SEARCH_S = 2 * ASK_S


@attrs.frozen
class Search:
    """The fields of the form. A topic alone means its newest messages."""

    topic: str = ""
    id: str = ""
    key: str = ""
    since_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.topic or self.id)


@attrs.frozen
class Found:
    """Messages without bodies, the newest first. `queues_left_out`: queues of a search by time that were not read."""

    messages: tuple[ReceivedMessage, ...]
    queues_left_out: int = 0
    errors: tuple[str, ...] = ()


async def search(questions: Questions, wanted: Search) -> Answer[Found]:
    """Look for messages."""

    async def ask() -> Found:
        if wanted.id:
            return _newest(await _by_id(questions, wanted))
        if wanted.key:
            found = await query_by_key(
                questions.admin,
                wanted.topic,
                wanted.key,
                count_max=FOUND_MAX,
                begin_ms=wanted.since_ms or 0,
            )
            return _newest(found)
        return await _by_time(questions, wanted.topic, wanted.since_ms)

    return await questions.one(ask, SEARCH_S)


def _newest(messages: Sequence[ReceivedMessage], left_out: int = 0, errors: Sequence[str] = ()) -> Found:
    ordered = sorted(messages, key=lambda message: -message.store_timestamp_ms)
    return Found(tuple(message.without_body() for message in ordered[:FOUND_MAX]), left_out, tuple(errors))


async def _by_id(questions: Questions, wanted: Search) -> list[ReceivedMessage]:
    """Look for a producer's id in the topic, then for a broker's id, which needs no topic.

    The id of a broker holds an address. Only addresses of known brokers are asked: an id must not make the console
    connect to any machine that its author likes.
    """
    if wanted.topic:
        found = await query_by_unique_key(questions.admin, wanted.topic, wanted.id)
        if found:
            return found
    try:
        place = decode_offset_message_id(wanted.id)
    except MessageInvalid:
        place = None
    address = format_host(place.store_host) if place is not None else ""
    if place is None or not questions.state.knows_address(address):
        return []
    try:
        return [await view_at(questions.admin, address, place.phy_offset)]
    except BrokerError:
        return []  # nothing is stored there


async def _by_time(questions: Questions, topic: str, since_ms: int | None) -> Found:
    """Read each queue from a time on, or its last messages."""
    queues = sorted(subscribe_queues(topic, await questions.admin.route(topic)))
    of_each = max(OF_QUEUE, FOUND_MAX // max(len(queues), 1))

    def question(queue: MessageQueue) -> Callable[[], Awaitable[list[ReceivedMessage]]]:
        async def ask() -> list[ReceivedMessage]:
            brokers = questions.admin.brokers
            low, high = await brokers.min_offset(queue), await brokers.max_offset(queue)
            begin = max(low, high - of_each)
            if since_ms is not None:
                begin = await brokers.offset_since(queue, since_ms, TOOLS_CONSUMER_GROUP, (low, high))
            return await read(questions, queue, begin, min(begin + of_each, high), with_bodies=False)

        return ask

    answers = await questions.all({queue: question(queue) for queue in queues[:QUEUES_MAX]})
    messages = [message for answer in answers.values() for message in answer.value or ()]
    if since_ms is not None:  # the ones next to the time
        messages = sorted(messages, key=lambda message: message.store_timestamp_ms)[:FOUND_MAX]
    errors = dict.fromkeys(f"{queue.broker_name}: {answer.error}" for queue, answer in answers.items() if answer.error)
    return _newest(messages, max(len(queues) - QUEUES_MAX, 0), list(errors)[:8])


async def read(
    questions: Questions, queue: MessageQueue, begin: int, end: int, *, with_bodies: bool
) -> list[ReceivedMessage]:
    """Read at most FOUND_MAX messages of a queue."""
    found: list[ReceivedMessage] = []
    async with contextlib.aclosing(pulls(questions.admin, queue, begin, end, inflate=with_bodies)) as results:
        async for result in results:
            wanted = [message for message in result.messages if message.queue_offset < end]
            found += wanted if with_bodies else [message.without_body() for message in wanted]
            if len(found) >= FOUND_MAX:
                break
    return found[:FOUND_MAX]


async def at_place(questions: Questions, queue: MessageQueue, offset: int) -> ReceivedMessage:
    """Return the message at an offset of a queue. Raises NotFound."""
    await questions.admin.queue(queue.topic, queue.broker_name, queue.queue_id)
    for message in await read(questions, queue, offset, offset + 1, with_bodies=True):
        if message.queue_offset == offset:
            return message
    raise NotFound(f"no message at offset {offset} of queue {queue.queue_id} of {queue.topic} on {queue.broker_name}")


async def trace(questions: Questions, msg_id: str) -> Answer[MessageTrace]:
    """Ask for the sends and consumptions of a message that clients have traced."""

    return await questions.one(lambda: message_trace(questions.admin, msg_id, TRACE_TOPIC))


def parse_number(text: str, name: str, high: int = LONG_MAX) -> int:
    """Read a number of a query string. Raises ConfigError."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > high:
        raise ConfigError(f"{name} is no number from 0 to {high}: {text[:40]!r}")
    return int(text)
