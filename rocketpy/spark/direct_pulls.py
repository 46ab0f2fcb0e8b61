"""Direct pulls: the task's thread asks for runs of messages ahead, and receives the answers from its own sockets.

An event loop and a thread for it cost a task more than all its work on the answers (pulls.py). Here answers wait in the
socket until the task comes back for them. An answer without messages or an error ends direct pulls: the caller pulls
the rest by `Pulls`, which has retries, and knows of slaves, gaps and deleted topics.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import attrs

from rocketpy.client.cluster.pull_connections import PullConnection, PullConnections
from rocketpy.client.results import PullStatus, StoredPull
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from .pulls import BYTES_AHEAD, RUNS_AHEAD, Answer, PullSettings, Slice, pull_header

logger = logging.getLogger(__name__)

FULL_ANSWERS = 256  # in a row, before longer runs are asked for again


@attrs.define(eq=False)
class _Asked:
    """A run that was asked for: the answer to pull `number` comes by `connection`."""

    run: Slice
    connection: PullConnection
    number: int = -1


@attrs.define(eq=False)
class DirectPulls:
    """The pulls of some slices, in the thread that takes the answers.

    Attributes:
        rest: what was not read, after `take` has returned nothing.
    """

    slices: Sequence[Slice]
    settings: PullSettings
    connections: PullConnections
    reader_address: Callable[[MessageQueue], str]
    _left: deque[Slice] = attrs.field(init=False)  # not asked for
    _asked: deque[_Asked] = attrs.field(init=False, factory=deque)
    _count_ahead: int = attrs.field(init=False, default=0)  # messages that were asked for
    _count_max: int = attrs.field(init=False)  # messages of a run: as many as brokers give at once
    _full_answers: int = attrs.field(init=False, default=0)  # in a row
    _answer_size: int = attrs.field(init=False, default=0)  # the largest
    _open: dict[str, PullConnection] = attrs.field(init=False, factory=dict)  # by the name of the broker
    _ended: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._left = deque(self.slices)
        self._count_max = self.settings.batch_size

    @property
    def rest(self) -> list[Slice]:
        return [*(one.run for one in self._asked), *self._left]

    def take(self, size: int) -> list[Answer]:
        """The next answers in the order of the slices: about `size` bytes or more, at least one; none when this path
        ends."""
        taken: list[Answer] = []
        try:
            while size > 0 and not self._ended and (answer := self._next()) is not None:
                taken.append(answer)
                size -= len(answer.pulled.body)
        except RocketError as error:
            logger.debug("direct pulls end, `Pulls` reads the rest: %s", error)
            self._ended = True
        return taken

    def close(self) -> None:
        """End the reading, also before the end of the slices."""
        self._ended = True
        for connection in self._open.values():
            self.connections.give_back(connection)
        self._open.clear()

    def _next(self) -> Answer | None:
        while True:
            self._ask_ahead()
            if not self._asked:
                return None
            asked = self._asked[0]
            run, pulled = asked.run, asked.connection.pulled(asked.number)
            following = pulled.next_begin_offset
            if following <= run.begin or not self._is_usual(pulled):
                self._ended = True
                return None
            self._adapt(run, following)
            if following < run.end:
                rest = _Asked(attrs.evolve(run, begin=following), asked.connection)
                self._send([rest])
                self._asked[0] = rest
            else:
                self._asked.popleft()
            self._count_ahead -= min(following, run.end) - run.begin
            if pulled.status is PullStatus.FOUND:
                self._answer_size = max(self._answer_size, len(pulled.body))
                return Answer(run, run.begin, pulled)

    def _is_usual(self, pulled: StoredPull) -> bool:
        is_without_match = pulled.status is PullStatus.NO_MATCHED_MSG and not self.settings.is_of_all
        return pulled.status is PullStatus.FOUND or is_without_match

    def _adapt(self, run: Slice, following: int) -> None:
        """Ask for as many messages as brokers give at once: the rest of a run costs a request and its answer."""
        if following < run.end:
            self._count_max, self._full_answers = following - run.begin, 0
        else:
            self._full_answers += 1
            if self._full_answers == FULL_ANSWERS:
                self._count_max, self._full_answers = min(2 * self._count_max, self.settings.batch_size), 0

    def _ask_ahead(self) -> None:
        """Ask for more when half of what may be under way has come: so the requests leave in twos or more."""
        count_max = self.settings.pipeline * self.settings.batch_size
        if 2 * self._count_ahead > count_max or 2 * len(self._asked) > RUNS_AHEAD:
            return
        known = len(self._asked)
        while self._left and self._has_room(count_max):
            slice_ = self._left[0]
            run = attrs.evolve(slice_, end=min(slice_.end, slice_.begin + self._count_max))
            self._asked.append(_Asked(run, self._connection(run.queue)))
            self._left[0] = attrs.evolve(slice_, begin=run.end)
            if run.end == slice_.end:
                self._left.popleft()
            self._count_ahead += run.count
        self._send(list(itertools.islice(self._asked, known, None)))

    def _has_room(self, count_max: int) -> bool:
        runs, count = len(self._asked) + 1, min(self._left[0].count, self._count_max)
        is_bounded = self._count_ahead + count <= count_max and runs * self._answer_size <= BYTES_AHEAD
        return not self._asked or (runs <= RUNS_AHEAD and is_bounded)

    def _send(self, asked: Sequence[_Asked]) -> None:
        """Ask for runs; those of one broker in one write."""
        of_brokers: defaultdict[str, list[_Asked]] = defaultdict(list)
        for one in asked:
            of_brokers[one.run.queue.broker_name].append(one)
        for of_broker in of_brokers.values():
            headers = [pull_header(one.run.queue, one.run.begin, one.run.count, self.settings) for one in of_broker]
            numbers = of_broker[0].connection.ask(headers)
            for one, number in zip(of_broker, numbers, strict=True):
                one.number = number

    def _connection(self, queue: MessageQueue) -> PullConnection:
        if queue.broker_name not in self._open:
            address = self.reader_address(queue)
            self._open[queue.broker_name] = self.connections.take(address, self.settings.timeout_s)
        return self._open[queue.broker_name]
