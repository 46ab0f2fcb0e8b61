"""Reads ranges of queues: several pulls in flight, answers in the order of the ranges.

With retries, slaves, gaps and TLS; direct_pulls.py reads what needs none of them.

Offsets are known in advance, so the ranges are cut into runs of up to pullBatchSize messages, and runs of pullPipeline
times as many messages are read at once, each by one pull after the other: a broker may give fewer messages than asked.
The first pulls of short runs are sent together, because a task and a timer for each cost more than the pull. What is
read ahead is bounded.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

import attrs
import trio

from rocketpy.client.cluster.instance import ClientInstance
from rocketpy.client.consuming.subscription import SQL92, Sql92, build_subscription
from rocketpy.client.results import ClientCode, PullStatus, StoredPull
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, RocketError, TransportError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.route import MASTER_ID
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullSysFlag

from .connection import BUSY_CODES
from .data_lost import DataLost, QueueGone, RecordsGone, ReplicaBehind

ANSWERS_AHEAD = 8  # of each run, not taken yet
RUNS_AHEAD = 32  # short ones: a query may read one message of each of a thousand queues
RUNS_TOGETHER = 16  # of them, in one group: the next group is on its way while one is worked on
BYTES_AHEAD = 32 << 20  # not taken yet; beyond them only the first run is read
ATTEMPTS = 4
RETRY_S = 0.5
SUBSCRIPTIONS_MAX = 64  # that are kept; a pull of each run needs one

logger = logging.getLogger(__name__)

GIVEN = frozenset({PullStatus.FOUND, PullStatus.NO_MATCHED_MSG})


def _may_pass(error: TransportError | BrokerError) -> bool:
    return error.code in BUSY_CODES if isinstance(error, BrokerError) else error.retriable


@attrs.frozen
class Slice:
    """A range of a queue's offsets, `end` excluded."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin


@attrs.frozen
class PullSettings:
    """The settings of the pulls that read slices.

    Attributes:
        expression: `*`, tags, or SQL92.
        fail_on_data_loss: True: a missing message is an error; False: the reader goes on after it.
    """

    group: str
    expression: str | Sql92 = "*"
    batch_size: int = 1024  # messages
    pipeline: int = 4
    timeout_s: float = 20.0
    fail_on_data_loss: bool = True

    @property
    def is_of_all(self) -> bool:
        """Return True if no message is filtered out, so that each offset must come."""
        return self.expression == "*"


def pull_header(queue: MessageQueue, offset: int, count: int, settings: PullSettings) -> PullMessageRequestHeader:
    """A pull that answers at once and changes nothing on the broker."""
    subscription = _subscription(queue.topic, settings.expression)
    return PullMessageRequestHeader(
        consumer_group=settings.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK),
        subscription=subscription.sub_string,
        expression_type=subscription.expression_type if subscription.expression_type == SQL92 else None,
        broker_name=queue.broker_name,
    )


@functools.lru_cache(maxsize=SUBSCRIPTIONS_MAX)
def _subscription(topic: str, expression: str | Sql92) -> SubscriptionData:
    return build_subscription(topic, expression, 0)


@attrs.frozen
class Answer:
    """The answer to one pull of a run, from the offset `begin` on."""

    run: Slice
    begin: int
    pulled: StoredPull

    @property
    def offsets(self) -> int:
        """The number of offsets by which the answer advances."""
        return self.pulled.next_begin_offset - self.begin

    @property
    def is_within(self) -> bool:
        """Return True if all its messages are of the run. With tags or conditions a broker looks for matches beyond the
        run."""
        return self.pulled.next_begin_offset <= self.run.end


@attrs.frozen(eq=False)
class _Reading:
    """A run that is being read."""

    run: Slice
    send: trio.MemorySendChannel[Answer]
    answers: trio.MemoryReceiveChannel[Answer]

    @classmethod
    def of(cls, run: Slice) -> _Reading:
        return cls(run, *trio.open_memory_channel[Answer](ANSWERS_AHEAD))


def cut(slices: Sequence[Slice], count_max: int) -> Iterator[Slice]:
    """The slices in runs of up to so many offsets."""
    for one in slices:
        for begin in range(one.begin, one.end, count_max):
            yield Slice(one.queue, begin, min(begin + count_max, one.end))


def grouped(runs: Iterable[Slice], count_max: int) -> Iterator[list[Slice]]:
    """Neighbouring runs of one broker that have up to so many messages together; a longer one alone."""
    group: list[Slice] = []
    left = 0
    for run in runs:
        is_full = len(group) == RUNS_TOGETHER or run.count > left
        if group and (is_full or run.queue.broker_name != group[0].queue.broker_name):
            yield group
            group = []
        left = (left if group else count_max) - run.count
        group.append(run)
    if group:
        yield group


@attrs.define(eq=False)
class Pulls:
    """The pulls of some slices. `run` and the other methods run in the thread of the cluster."""

    instance: ClientInstance
    slices: Sequence[Slice]
    settings: PullSettings
    lost: Counter[MessageQueue] = attrs.field(init=False, factory=Counter)  # offsets that were not there
    _error: RocketError | None = attrs.field(init=False, default=None)
    _scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _readings: deque[_Reading] = attrs.field(init=False, factory=deque)
    _messages_ahead: int = attrs.field(init=False, default=0)  # that the readings were begun for
    _bytes_ahead: int = attrs.field(init=False, default=0)  # of answers that are not taken yet
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)  # set and replaced when any of this changes
    _ended: bool = attrs.field(init=False, default=False)
    _is_complete: bool = attrs.field(init=False, default=False)
    """Every run has been read; otherwise the end is no end of the slices."""

    async def run(self) -> None:
        """Read until the end of the slices, an error, or `stop`. Errors are raised by `take`."""
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    for group in grouped(cut(self.slices, self.settings.batch_size), self.settings.batch_size):
                        count = sum(run.count for run in group)
                        while not self._has_room(len(group), count):
                            await self._changed.wait()
                        readings = [_Reading.of(run) for run in group]
                        self._readings.extend(readings)
                        self._messages_ahead += count
                        self._notify()
                        if len(group) > 1:
                            nursery.start_soon(self._read_together, readings)
                        else:
                            nursery.start_soon(self._read, readings[0], group[0].begin)
                self._is_complete = True
            finally:
                self._ended = True
                self._notify()

    def _has_room(self, runs: int, count: int) -> bool:
        messages_max = self.settings.pipeline * self.settings.batch_size
        return not self._readings or (
            len(self._readings) + runs <= RUNS_AHEAD and self._messages_ahead + count <= messages_max
        )

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _read_together(self, group: list[_Reading]) -> None:
        """Read short runs of one broker: their first pulls together, and what those do not give run by run."""
        try:
            await self._wait_for_bytes(group[0])
            rest: list[tuple[_Reading, int]] = []
            for reading, pulled in zip(group, await self._pull_together(group), strict=True):
                position = reading.run.begin
                if pulled is not None and pulled.status is PullStatus.FOUND and pulled.next_begin_offset > position:
                    self._bytes_ahead += len(pulled.body)
                    reading.send.send_nowait(Answer(reading.run, position, pulled))
                    position = int(pulled.next_begin_offset)
                if position < reading.run.end:
                    rest.append((reading, position))
                else:
                    reading.send.close()
            async with trio.open_nursery() as nursery:
                for reading, position in rest:
                    nursery.start_soon(self._read, reading, position)
        finally:
            for reading in group:
                reading.send.close()

    async def _pull_together(self, group: list[_Reading]) -> list[StoredPull] | list[None]:
        """The first pull of each run; nothing after any error, which is met again and dealt with run by run."""
        headers = [pull_header(one.run.queue, one.run.begin, one.run.count, self.settings) for one in group]
        try:
            _, address = await self.instance.find_reader(group[0].run.queue, MASTER_ID)
            return await self.instance.api.pull_all_stored(address, headers, self.settings.timeout_s)
        except RocketError as error:
            logger.debug("%d pulls together failed: %s; pulling one by one", len(group), error)
            return [None] * len(group)

    async def _wait_for_bytes(self, reading: _Reading) -> None:
        """Wait until more may be read ahead, or this run is the next one that is taken."""
        while self._bytes_ahead >= BYTES_AHEAD and self._readings[0] is not reading:
            await self._changed.wait()

    async def _read(self, reading: _Reading, position: int) -> None:
        """Read a run from `position` on."""
        try:
            async with reading.send:
                while position < reading.run.end:
                    await self._wait_for_bytes(reading)
                    pulled = await self._pull(reading.run, position)
                    if pulled.status is PullStatus.FOUND:
                        self._bytes_ahead += len(pulled.body)
                        await reading.send.send(Answer(reading.run, position, pulled))
                    position = self._following(reading.run, pulled, position)
        except RocketError as error:
            self._error = self._error or error
            self._scope.cancel()

    def _following(self, run: Slice, pulled: StoredPull, position: int) -> int:
        """The next offset to pull. Raises DataLost, RecordsGone."""
        goes_on = pulled.status in GIVEN and pulled.next_begin_offset > position
        if goes_on and self._is_complete_answer(pulled):
            return int(pulled.next_begin_offset)
        if self.settings.fail_on_data_loss:
            if goes_on:
                raise RecordsGone(run.queue, position)
            raise DataLost(run.queue, position, pulled.min_offset, pulled.max_offset)
        is_behind = position < pulled.min_offset <= pulled.max_offset
        following = pulled.next_begin_offset if goes_on else pulled.min_offset if is_behind else run.end
        following = min(run.end, following)
        self.lost[run.queue] += following - position
        return int(following)

    def _is_complete_answer(self, pulled: StoredPull) -> bool:
        """Return True if the answer has all messages that were wanted. A broker also answers "no match" for messages
        whose records are gone, and goes on after them; `slices.py` notices when only a part of them is gone."""
        return pulled.status is PullStatus.FOUND or not self.settings.is_of_all

    async def _pull(self, run: Slice, position: int) -> StoredPull:
        """One pull, tried again where that can help: also if the queue ends before the position, because the plan was
        made by what the master had, and a slave may be behind; and if records are gone, which queues may soon tell.

        Raises:
            ReplicaBehind: a slave answers in place of the master, and does not have the message. QueueGone: the topic
                was deleted, with failOnDataLoss.
        """
        queue = run.queue
        header = pull_header(queue, position, run.end - position, self.settings)
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            try:
                broker_id, address = await self.instance.find_reader(queue, MASTER_ID)
                pulled = await self.instance.api.pull_stored(address, header, self.settings.timeout_s)
                is_behind = pulled.status not in GIVEN and position >= pulled.max_offset
                if is_last and is_behind and broker_id != MASTER_ID:
                    raise ReplicaBehind(queue, position, pulled.max_offset, address)
                if is_last or (not is_behind and (pulled.status not in GIVEN or self._is_complete_answer(pulled))):
                    return pulled
            except (TransportError, BrokerError, ClientError) as error:
                if await self._is_topic_gone(error, queue.topic):
                    return self._gone(queue, position)
                if isinstance(error, ClientError) or not _may_pass(error) or is_last:
                    raise
            await trio.sleep(RETRY_S * 2**attempt)
            await self._refresh_route(queue.topic)
        raise AssertionError("the last attempt returns or raises")

    async def _is_topic_gone(self, error: RocketError, topic: str) -> bool:
        """Return True if a pull failed because the topic was deleted since the plan was made."""
        is_unknown = isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST
        has_no_broker = isinstance(error, ClientError) and error.code == ClientCode.BROKER_NOT_EXIST
        return (is_unknown or has_no_broker) and not await self.instance.update_route(topic)

    def _gone(self, queue: MessageQueue, position: int) -> StoredPull:
        """The answer for a queue of a deleted topic: nothing is there. Raises QueueGone with failOnDataLoss."""
        if self.settings.fail_on_data_loss:
            raise QueueGone(queue, position)
        return StoredPull(PullStatus.OFFSET_ILLEGAL, next_begin_offset=0, min_offset=0, max_offset=0, body=b"")

    async def _refresh_route(self, topic: str) -> None:
        try:
            await self.instance.update_route(topic)
        except RocketError:
            return  # the attempt that follows says what is wrong

    async def take(self, size: int = 1) -> list[Answer]:
        """The next answers in the order of the slices: about `size` bytes or more, at least one; none at the end.

        Raises:
            MessagesMissing, ReplicaBehind, TransportError, BrokerError: what ended the reading. ClientError: the client
            was closed meanwhile.
        """
        taken: list[Answer] = []
        while size > 0:
            if self._error is not None:
                raise self._error
            if self._readings:
                answer = await self._take_first(self._readings[0])
                if answer is not None:
                    taken.append(answer)
                    size -= len(answer.pulled.body)
            elif not self._ended:
                await self._changed.wait()
            elif taken or self._is_complete:
                break
            else:
                raise ClientError(f"the reading of {len(self.slices)} slices was ended before its end")
        return taken

    async def _take_first(self, first: _Reading) -> Answer | None:
        """The next answer of the first run; None if it has ended, which makes room for another one."""
        try:
            answer = await _receive(first.answers)
        except trio.EndOfChannel:
            self._readings.popleft()
            self._messages_ahead -= first.run.count
            self._notify()
            return None
        if self._bytes_ahead >= BYTES_AHEAD:
            self._notify()
        self._bytes_ahead -= len(answer.pulled.body)
        return answer

    def stop(self) -> None:
        """End the reading before the end of the slices."""
        self._scope.cancel()


async def _receive(answers: trio.MemoryReceiveChannel[Answer]) -> Answer:
    """The next answer, without letting other tasks run if it is there."""
    try:
        return answers.receive_nowait()
    except trio.WouldBlock:
        return await answers.receive()
