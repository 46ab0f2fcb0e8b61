"""One assigned queue: pulled messages, their limits, messages in consumption, and the offset that may be committed.

Pure state: no clock and no sockets; times are arguments in milliseconds. Only tasks of one loop touch it.
Source: RocketMQ 4.9 `ProcessQueue`; `DefaultMQPushConsumerImpl#pullMessage`, `RebalancePushImpl` (limits).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import attrs

from rocketpy import aio

from ..messages import ReceivedMessage

LOCK_MAX_LIVE_MS = 30_000
PULL_MAX_IDLE_MS = 120_000


@attrs.define(eq=False)
class ProcessQueue:
    """The committed offset of a queue is its smallest unfinished offset, so one slow message holds it back.

    `_order` has the keys of `_messages`, ascending, and offsets that are gone: they leave it when they come first.
    `consume_lock` is held while an ordered handler runs, so that a release of the queue waits for it.
    """

    created_ms: int
    pull_idle_max_ms: int | None = PULL_MAX_IDLE_MS  # without a pull for longer it is taken anew; None: however long
    dropped: bool = attrs.field(init=False, default=False)
    locked: bool = attrs.field(init=False, default=False)
    last_lock_ms: int = attrs.field(init=False, default=0)
    last_pull_ms: int = attrs.field(init=False)
    last_consume_ms: int = attrs.field(init=False)
    try_unlock_times: int = attrs.field(init=False, default=0)
    is_consuming: bool = attrs.field(init=False, default=False)
    queue_offset_max: int = attrs.field(init=False, default=-1)
    cached_bytes: int = attrs.field(init=False, default=0)
    consume_lock: aio.Lock = attrs.field(init=False, factory=aio.Lock, repr=False)
    _changed: aio.Event | None = attrs.field(init=False, default=None, repr=False)
    _calls: dict[int, tuple[int, int]] = attrs.field(init=False, factory=dict, repr=False)
    """Of handlers that run: the offset of their first message -> that of their last, and the time of the call (ms)."""
    _messages: dict[int, ReceivedMessage] = attrs.field(init=False, factory=dict, repr=False)
    _handed_out: dict[int, ReceivedMessage] = attrs.field(init=False, factory=dict, repr=False)
    _order: list[int] = attrs.field(init=False, factory=list, repr=False)

    def __attrs_post_init__(self) -> None:
        self.last_pull_ms = self.last_consume_ms = self.created_ms

    @property
    def cached_count(self) -> int:
        """Number of messages that are cached or in consumption, for flow control."""
        return len(self._messages) + len(self._handed_out)

    @property
    def min_offset(self) -> int | None:
        """The smallest offset not yet handed out or finished."""
        order, table = self._order, self._messages
        gone = 0
        for offset in order:
            if offset in table:
                break
            gone += 1
        del order[:gone]
        return order[0] if order else None

    @property
    def oldest(self) -> ReceivedMessage | None:
        first = self.min_offset
        return None if first is None else self._messages[first]

    @property
    def max_span(self) -> int:
        """Newest cached offset minus the oldest; 0 if empty."""
        first = self.min_offset
        return 0 if first is None else self.queue_offset_max - first

    @property
    def handed_out(self) -> list[ReceivedMessage]:
        return list(self._handed_out.values())

    @property
    def cached(self) -> list[ReceivedMessage]:
        """Everything that is cached, by offset."""
        return [self._messages[offset] for offset in sorted(self._messages)]

    @property
    def changed(self) -> aio.Event:
        """Set at the next change: there is room, or the queue is dropped."""
        if self._changed is None:
            self._changed = aio.Event()
        return self._changed

    def put(self, messages: Iterable[ReceivedMessage]) -> bool:
        """Cache pulled messages. Returns True if an ordered consumer has to start a task for this queue."""
        table, order = self._messages, self._order
        newest, size = self.queue_offset_max, 0
        for message in messages:
            offset = message.queue_offset
            if offset not in table:
                if offset > newest:
                    order.append(offset)
                    newest = offset
                else:
                    insort(order, offset)
                size += len(message.body)
            table[offset] = message
        self.queue_offset_max = newest
        self.cached_bytes += size
        if table and not self.is_consuming:
            self.is_consuming = True
            return True
        return False

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Forget finished messages.

        Returns: the offset that may be committed: the smallest still cached, one past the newest when none is left;
            -1 when nothing was cached to begin with, which must never be committed.
        """
        table, size = self._messages, 0
        if not table:
            return -1
        for message in messages:
            if table.pop(message.queue_offset, None) is not None:
                size += len(message.body)
        self.cached_bytes -= size
        self.wake()
        first = self.min_offset
        return self.queue_offset_max + 1 if first is None else first

    def begin_call(self, messages: Sequence[ReceivedMessage], now_ms: int) -> None:
        """A handler is called with these messages, which are in order."""
        self.last_consume_ms = now_ms
        self._calls[messages[0].queue_offset] = (messages[-1].queue_offset, now_ms)

    def end_call(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take note that the handler of these messages has returned."""
        self._calls.pop(messages[0].queue_offset, None)

    def called_ms(self, offset: int) -> int | None:
        """Return when the handler was called that has this message; None if none has."""
        return next((called_ms for first, (last, called_ms) in self._calls.items() if first <= offset <= last), None)

    def take(self, count: int) -> list[ReceivedMessage]:
        """Hand out the first messages in order (orderly). None left: the queue's task may end."""
        taken: list[ReceivedMessage] = []
        while len(taken) < count and (offset := self.min_offset) is not None:
            message = self._messages.pop(offset)
            self._handed_out[offset] = message
            taken.append(message)
        if not taken:
            self.is_consuming = False
        return taken

    def commit(self) -> int:
        """The messages in consumption are done. Returns the offset to commit, -1 if there were none."""
        if not self._handed_out:
            return -1
        offset = max(self._handed_out) + 1
        self.cached_bytes -= sum(len(message.body) for message in self._handed_out.values())
        self._handed_out.clear()
        self.wake()
        return offset

    def rollback(self) -> None:
        """All messages in consumption must be consumed again."""
        self.put_back(list(self._handed_out.values()))

    def put_back(self, messages: Iterable[ReceivedMessage]) -> None:
        back = [message for message in messages if self._handed_out.pop(message.queue_offset, None) is not None]
        self._messages.update((message.queue_offset, message) for message in back)
        self._order = sorted(self._messages)

    def replace(self, message: ReceivedMessage) -> None:
        """Exchange a cached or handed-out message for its newer version (one more attempt counted)."""
        table = self._handed_out if message.queue_offset in self._handed_out else self._messages
        if message.queue_offset in table:
            table[message.queue_offset] = message

    def drop(self) -> None:
        """The queue is no longer assigned: pulls stop, results of running handlers are ignored."""
        self.dropped = True
        self.wake()

    def clear(self) -> None:
        self._messages.clear()
        self._handed_out.clear()
        self._order.clear()
        self._calls.clear()
        self.cached_bytes = 0
        self.queue_offset_max = -1
        self.wake()

    def wake(self) -> None:
        """Tell a waiting pull loop that there is room, or that it should end."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def is_pull_expired(self, now_ms: int) -> bool:
        return self.pull_idle_max_ms is not None and now_ms - self.last_pull_ms > self.pull_idle_max_ms

    def is_lock_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_lock_ms > LOCK_MAX_LIVE_MS


@attrs.frozen
class FlowLimits:
    """Limits of the messages that a queue holds in memory; above them its pulls pause. All comparisons are strictly
    greater."""

    message_count: int
    size: int  # bytes
    span_max: int | None  # newest minus oldest offset; None for ordered consumption

    def blocks(self, queue: ProcessQueue) -> bool:
        if queue.cached_count > self.message_count:
            return True
        if queue.cached_bytes >> 20 > self.size >> 20:
            return True
        return self.span_max is not None and queue.max_span > self.span_max


def limits_for_queue(limits: FlowLimits, owned_queues: int, topic_count: int, topic_size: int) -> FlowLimits:
    """Limits per topic, where set, shared among the queues the consumer owns (of all its topics, as in Java)."""
    if owned_queues <= 0 or topic_count == topic_size == -1:
        return limits
    count = limits.message_count if topic_count == -1 else max(1, topic_count // owned_queues)
    size = limits.size if topic_size == -1 else max(1 << 20, topic_size // owned_queues)
    return attrs.evolve(limits, message_count=count, size=size)
