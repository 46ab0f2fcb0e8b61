"""Messages that were fetched ahead and wait for a poll: batches of one queue each, in order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import attrs

from rocketpy import aio
from rocketpy.message.message_queue import MessageQueue

from ..messages import ReceivedMessage
from .process_queue import ProcessQueue


@attrs.frozen
class Taken:
    """Messages for a poll. They stay cached until the program has them, so offsets do not pass them before."""

    queue: MessageQueue
    process_queue: ProcessQueue
    messages: Sequence[ReceivedMessage]

    def finish(self) -> int:
        """The program has them. Returns: the next offset to consume of the queue; -1 must not be committed."""
        return -1 if self.process_queue.dropped else self.process_queue.remove(self.messages)


@attrs.define(eq=False)
class Fetched:
    """Bounded by the flow control of the pulls that fill it, which uses `count`."""

    rank: Callable[[str], int] | None = None  # of a topic: the lowest is taken first
    count: int = 0
    _batches: deque[tuple[MessageQueue, ProcessQueue, Sequence[ReceivedMessage]]] = attrs.field(factory=deque)
    _arrived: aio.Event = attrs.field(factory=aio.Event)

    def put(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        process_queue.put(messages)
        self._batches.append((queue, process_queue, messages))
        self.count += len(messages)
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until something arrives. Tasks that wait share the event: each of them looks then."""
        if self._arrived.is_set():
            self._arrived = aio.Event()
        await self._arrived.wait()

    def take(self, count_max: int | None) -> Taken | None:
        """The next batch of a queue that is still assigned, at most `count_max` messages; None if there is none."""
        while self._batches:
            queue, process_queue, messages = self._next()
            self.count -= len(messages)
            if process_queue.dropped:
                continue
            taken = Taken(queue, process_queue, messages if count_max is None else messages[:count_max])
            if rest := messages[len(taken.messages) :]:
                self._batches.appendleft((queue, process_queue, rest))
                self.count += len(rest)
            return taken
        return None

    def _next(self) -> tuple[MessageQueue, ProcessQueue, Sequence[ReceivedMessage]]:
        """The first batch of the topic that comes first."""
        index = 0
        if (rank := self.rank) is not None:
            index = min(range(len(self._batches)), key=lambda each: rank(self._batches[each][0].topic))
        batch = self._batches[index]
        del self._batches[index]
        return batch

    def put_back(self, taken: Taken) -> None:
        """The program did not get them: the next poll will."""
        if not taken.process_queue.dropped:
            self._batches.appendleft((taken.queue, taken.process_queue, taken.messages))
            self.count += len(taken.messages)
            self._arrived.set()

    def forget(self, queue: MessageQueue) -> None:
        """Drop all messages of a queue."""
        self._batches = deque(batch for batch in self._batches if batch[0] != queue)
        self.count = sum(len(batch[2]) for batch in self._batches)
