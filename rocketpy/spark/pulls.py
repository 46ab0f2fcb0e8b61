"""Reads a range of one queue: several pulls in flight, answers in the order of the queue.

Offsets are known in advance, so the range is cut into runs of pullBatchSize messages, and pullPipeline runs are read at
once, each by one pull after the other: a broker may give fewer messages than asked. What is read ahead is bounded.
"""

from __future__ import annotations

import attrs
import trio

from rocketpy.client.cluster.instance import ClientInstance
from rocketpy.client.cluster.route import MASTER_ID
from rocketpy.client.consuming.subscription import SQL92, Sql92, build_subscription
from rocketpy.client.results import PullStatus, StoredPull
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, RocketError, TransportError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullSysFlag

ANSWERS_AHEAD = 8  # of each run, not taken yet
ATTEMPTS = 4
RETRY_S = 0.5


BUSY_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


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


class DataLost(RocketError):
    """Messages that a query should read are not there any more."""

    def __init__(self, queue: MessageQueue, wanted: int, answer_min: int, answer_max: int) -> None:
        self.queue, self.wanted = queue, wanted
        self.min_offset, self.max_offset = answer_min, answer_max
        super().__init__(
            f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}: offset {wanted} is wanted, "
            f"{answer_min} to {answer_max} are there. Messages were deleted before they were read, or the store was "
            "replaced. With failOnDataLoss=false the query goes on with what is there"
        )


@attrs.frozen
class PullSettings:
    """How slices are read.

    Attributes:
        expression: `*`, tags, or SQL92.
        fail_on_data_loss: whether a missing message is an error; otherwise the reader goes on behind it.
    """

    group: str
    expression: str | Sql92 = "*"
    batch_size: int = 1024  # messages
    pipeline: int = 4
    timeout_s: float = 20.0
    fail_on_data_loss: bool = True


def pull_header(queue: MessageQueue, offset: int, count: int, settings: PullSettings) -> PullMessageRequestHeader:
    """A pull that answers at once and changes nothing on the broker."""
    subscription = build_subscription(queue.topic, settings.expression, 0)
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


@attrs.define(eq=False)
class Pulls:
    """The pulls of one slice. `run` and the other methods run in the thread of the cluster."""

    instance: ClientInstance
    wanted: Slice
    settings: PullSettings
    lost: int = 0  # offsets that were not there
    _error: RocketError | None = None
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _runs: list[trio.MemoryReceiveChannel[StoredPull]] = attrs.field(factory=list)
    _begun: trio.Event = attrs.field(factory=trio.Event)
    _ended: bool = False
    _is_complete: bool = False  # every run has read its part; otherwise the end is no end of the slice
    _slots: trio.Semaphore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = trio.Semaphore(self.settings.pipeline)

    async def run(self) -> None:
        """Read until the end of the slice, an error, or `stop`. Errors are raised by `take`."""
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    for begin in range(self.wanted.begin, self.wanted.end, self.settings.batch_size):
                        await self._slots.acquire()
                        send, receive = trio.open_memory_channel[StoredPull](ANSWERS_AHEAD)
                        end = min(begin + self.settings.batch_size, self.wanted.end)
                        self._runs.append(receive)
                        self._begun.set()
                        nursery.start_soon(self._read_run, begin, end, send)
                self._is_complete = True
            finally:
                self._ended = True
                self._begun.set()

    async def _read_run(self, position: int, end: int, answers: trio.MemorySendChannel[StoredPull]) -> None:
        try:
            async with answers:
                while position < end:
                    pulled = await self._pull(position, end - position)
                    position = await self._advance(pulled, position, end, answers)
        except RocketError as error:
            self._error = self._error or error
            self._scope.cancel()

    async def _advance(
        self, pulled: StoredPull, position: int, end: int, answers: trio.MemorySendChannel[StoredPull]
    ) -> int:
        """The next offset to pull. Raises DataLost."""
        if pulled.status is PullStatus.FOUND:
            await answers.send(pulled)
        if pulled.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG) and pulled.next_begin_offset > position:
            return int(pulled.next_begin_offset)
        if self.settings.fail_on_data_loss:
            raise DataLost(self.wanted.queue, position, pulled.min_offset, pulled.max_offset)
        is_behind = position < pulled.min_offset <= pulled.max_offset
        following = min(end, pulled.min_offset) if is_behind else end
        self.lost += following - position
        return following

    async def _pull(self, position: int, count: int) -> StoredPull:
        """One pull, tried again where that can help."""
        queue = self.wanted.queue
        header = pull_header(queue, position, count, self.settings)
        for attempt in range(ATTEMPTS):
            try:
                _, address = await self.instance.find_reader(queue, MASTER_ID)
                return await self.instance.api.pull_stored(address, header, self.settings.timeout_s)
            except (TransportError, BrokerError) as error:
                if not _may_pass(error) or attempt == ATTEMPTS - 1:
                    raise
                await trio.sleep(RETRY_S * 2**attempt)
                await self._refresh_route()
        raise AssertionError("the last attempt returns or raises")

    async def _refresh_route(self) -> None:
        try:
            await self.instance.update_route(self.wanted.queue.topic)
        except RocketError:
            return  # the attempt that follows says what is wrong

    async def take(self) -> list[StoredPull]:
        """The next answers in the order of the queue, at least one; none at the end of the slice.

        Raises:
            DataLost, TransportError, BrokerError: what ended the reading. ClientError: the client was closed meanwhile.
        """
        while True:
            while not self._runs and not self._ended:
                self._begun = trio.Event() if self._begun.is_set() else self._begun
                await self._begun.wait()
            if self._error is not None:
                raise self._error
            if not self._runs:
                if not self._is_complete:
                    raise ClientError(f"the reading of {self.wanted} was ended before its end")
                return []
            answers = await self._take_from(self._runs[0])
            if answers:
                return answers

    async def _take_from(self, run: trio.MemoryReceiveChannel[StoredPull]) -> list[StoredPull]:
        """What a run has; nothing if it has ended, which makes room for another one."""
        answers: list[StoredPull] = []
        try:
            answers.append(await run.receive())
            while True:
                answers.append(run.receive_nowait())
        except trio.WouldBlock:
            return answers
        except (trio.EndOfChannel, trio.ClosedResourceError):
            self._runs.remove(run)
            self._slots.release()
            return answers

    def stop(self) -> None:
        """End the reading before the end of the slice."""
        self._scope.cancel()
