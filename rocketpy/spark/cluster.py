"""Requests to name servers and brokers, for the planner in the driver and the tasks in the executors.

One trio thread per process and set of credentials, with one connection to each broker. The tasks of the process, which
run one after the other, share it; they pull by further connections, in their own thread (direct_pulls.py).
Connections are made by the first request: readers are pickled for executors.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import attrs
import trio

from rocketpy.client.cluster.brokers import Brokers
from rocketpy.client.cluster.lifetime import Lifetime, Open, build_client_id
from rocketpy.client.cluster.pull_connections import PullConnections
from rocketpy.client.cluster.time_search import StoredAt
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Blocking, blocking
from rocketpy.errors import BodyInvalid, BrokerError, ConfigError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.route import MASTER_ID

from .direct_pulls import DirectPulls
from .pulls import Answer, Pulls, PullSettings, Slice

logger = logging.getLogger(__name__)

T = TypeVar("T")
REQUESTS_AT_ONCE = 64
TOGETHER_MIN = 16  # queues of a topic on a broker: one answer for all of its queues costs less
CLUSTERS_MAX = 4  # of one process; the one that was used longest ago is closed
ROUTE_RETRY_S = 0.5
END_RETRY_S = 0.005  # the first pause; each next one is twice as long
RECEIVE_SIZE = 256 << 10  # bytes of one read: answers are large


@attrs.frozen
class Bounds:
    """The offsets that a broker has of a queue: min_offset <= offset < max_offset."""

    min_offset: int
    max_offset: int


class AsyncCluster:
    """An open client without group: it asks and reads, and is a member of nothing."""

    def __init__(self, options: ClientOptions, lifetime: Lifetime | None = None) -> None:
        self._options = options
        self._lifetime = lifetime or Lifetime(options, build_client_id(options), receive_size=RECEIVE_SIZE)
        self._open: Open | None = None

    async def __aenter__(self) -> Self:
        self._open = await self._lifetime.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        opened, self._open = self._open, None
        return None if opened is None else await opened.close(kind, error, trace)

    @property
    def opened(self) -> Open:
        assert self._open is not None, "use it within `async with`"
        return self._open

    @property
    def _brokers(self) -> Brokers:
        return Brokers(self.opened.instance)

    async def topics(self) -> list[str]:
        return await self.opened.instance.api.topics(self._options.api_timeout)

    async def queues(self, topics: Iterable[str], wait_s: float = 0.0) -> set[MessageQueue]:
        """All readable queues of the topics, by a fresh route.

        Raises:
            ConfigError: a topic does not exist, after waiting `wait_s` seconds for it.
        """
        found, missing = await self.existing(topics, wait_s)
        if missing:
            raise ConfigError(f"topic {min(missing)} does not exist (option waitForTopic waits for one)")
        return found

    async def existing(self, topics: Iterable[str], wait_s: float) -> tuple[set[MessageQueue], set[str]]:
        """All readable queues of the topics that exist, and the topics that do not, after waiting for them."""
        found: set[MessageQueue] = set()
        missing: set[str] = set()
        deadline = trio.current_time() + wait_s
        for topic in sorted(topics):
            while not (has_route := await self.opened.instance.update_route(topic)):
                if trio.current_time() >= deadline:
                    missing.add(topic)
                    break
                await trio.sleep(min(ROUTE_RETRY_S, max(0.0, deadline - trio.current_time())))
            if has_route:
                found |= await self.opened.instance.readable_queues(topic)
        return found, missing

    async def bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Bounds]:
        async def ask(queue: MessageQueue) -> Bounds:
            return Bounds(await self._brokers.min_offset(queue), await self._brokers.max_offset(queue))

        found = await self._bounds_together(queues)
        return found | await _ask_all(ask, set(queues) - found.keys())

    async def max_offsets(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        found = {queue: bound.max_offset for queue, bound in (await self._bounds_together(queues)).items()}
        return found | await _ask_all(self._brokers.max_offset, set(queues) - found.keys())

    async def wait_for(self, ends: Mapping[MessageQueue, int], wait_s: float) -> dict[MessageQueue, int]:
        """Wait until each queue ends at its offset or beyond: brokers acknowledge a message before readers see it.

        Args:
            wait_s: seconds; then return the queues that still end before their offset, with their ends.
        Raises:
            RocketError: the last of the requests failed.
        """
        deadline, pause_s = trio.current_time() + wait_s, END_RETRY_S
        while True:
            try:
                found = await self.max_offsets(ends)
                behind = {queue: at for queue, at in found.items() if at < ends[queue]}
            except RocketError:  # the route of a new topic, too, may come a moment later
                if trio.current_time() >= deadline:
                    raise
            else:
                if not behind or trio.current_time() >= deadline:
                    return behind
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, ROUTE_RETRY_S)

    async def _bounds_together(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """Return the bounds of queues that brokers give for a whole topic in one answer, where many of its queues
        are wanted. Ask for each missing queue by itself: a broker may refuse, or have more read queues than write
        queues."""
        numbers = Counter((queue.topic, queue.broker_name) for queue in queues)
        found: dict[MessageQueue, Bounds] = {}
        for (topic, broker_name), number in sorted(numbers.items()):
            if number < TOGETHER_MIN:
                continue
            try:
                offsets = await self._brokers.topic_offsets(topic, broker_name)
            except (BrokerError, BodyInvalid) as error:
                logger.info("%s does not give the offsets of %s at once: %s", broker_name, topic, error)
                continue
            found |= {queue: Bounds(one.min_offset, one.max_offset) for queue, one in offsets.items()}
        return {queue: found[queue] for queue in queues if queue in found}

    async def search(
        self, times_ms: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds], group: str
    ) -> dict[MessageQueue, int]:
        """The first offset stored at or after the time; the maximum where nothing is that young.

        Args:
            group: its pulls look at store times.
        """

        async def ask(queue: MessageQueue) -> int:
            within = (bounds[queue].min_offset, bounds[queue].max_offset)
            return await self._brokers.offset_since(queue, times_ms[queue], group, within)

        return await _ask_all(ask, times_ms)

    async def stored(self, queues: Mapping[MessageQueue, int], group: str) -> dict[MessageQueue, StoredAt | None]:
        """Return the first readable message at or after an offset of each queue; None where there is none."""

        async def ask(queue: MessageQueue) -> StoredAt | None:
            return await self._brokers.first_stored(queue, queues[queue], group)

        return await _ask_all(ask, queues)

    async def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        async def ask(queue: MessageQueue) -> int | None:
            return await self._brokers.query_consumer_offset(group, queue)

        return await _ask_all(ask, queues)

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        async def ask(queue: MessageQueue) -> None:
            await self._brokers.update_consumer_offset(group, queue, offsets[queue], oneway=False)

        await _ask_all(ask, offsets)

    async def reader_address(self, queue: MessageQueue) -> str:
        """The address of the broker to read a queue from. Raises: RocketError: none is known."""
        return (await self.opened.instance.find_reader(queue, MASTER_ID))[1]

    async def start_pulls(self, slices: Sequence[Slice], settings: PullSettings) -> Pulls:
        """Begin to read slices; the pulls end with them, or with the cluster."""
        pulls = Pulls(self.opened.instance, slices, settings)
        self.opened.nursery.start_soon(pulls.run)
        return pulls

    async def take(self, pulls: Pulls, size: int = 1) -> list[Answer]:
        return await pulls.take(size)

    async def stop_pulls(self, pulls: Pulls) -> None:
        pulls.stop()


async def _ask_all(
    ask: Callable[[MessageQueue], Awaitable[T]], queues: Iterable[MessageQueue]
) -> dict[MessageQueue, T]:
    """The answer for each queue, a bounded number at once. Raises the first error."""
    answers: dict[MessageQueue, T] = {}
    errors: list[Exception] = []
    remaining = iter(sorted(queues))

    async def work(scope: trio.CancelScope) -> None:
        for queue in remaining:
            try:
                answers[queue] = await ask(queue)
            except Exception as error:
                errors.append(error)
                scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(REQUESTS_AT_ONCE):
            nursery.start_soon(work, nursery.cancel_scope)
    if errors:
        raise errors[0]
    return answers


class Cluster(Blocking[AsyncCluster]):
    """AsyncCluster, blocking: for Spark's threads."""

    backend = "trio"

    def __init__(self, options: ClientOptions, lifetime: Lifetime | None = None) -> None:
        super().__init__(AsyncCluster(options, lifetime))
        self._connections = PullConnections(options.connect_timeout, options.credentials)
        self._has_direct_pulls = options.tls is None and lifetime is None

    def direct_pulls(self, slices: Sequence[Slice], settings: PullSettings) -> DirectPulls | None:
        """Begin to read slices in this thread. None: connections are encrypted, or those of a test."""
        if not self._has_direct_pulls:
            return None
        return DirectPulls(slices, settings, self._connections, self.reader_address)

    def close(self) -> None:
        self._connections.close()
        super().close()

    @property
    def is_open(self) -> bool:
        return not self._ended.done()

    topics = blocking(AsyncCluster.topics)
    queues = blocking(AsyncCluster.queues)
    existing = blocking(AsyncCluster.existing)
    bounds = blocking(AsyncCluster.bounds)
    max_offsets = blocking(AsyncCluster.max_offsets)
    wait_for = blocking(AsyncCluster.wait_for)
    search = blocking(AsyncCluster.search)
    stored = blocking(AsyncCluster.stored)
    committed = blocking(AsyncCluster.committed)
    commit = blocking(AsyncCluster.commit)
    reader_address = blocking(AsyncCluster.reader_address)
    start_pulls = blocking(AsyncCluster.start_pulls)
    take = blocking(AsyncCluster.take)
    stop_pulls = blocking(AsyncCluster.stop_pulls)


class ClusterPool:
    """The open clusters of this process."""

    def __init__(self) -> None:
        self._clusters: OrderedDict[tuple[int, ClientOptions], Cluster] = OrderedDict()

    def get(self, options: ClientOptions) -> Cluster:
        """The cluster for these options, opened if there is none; those of a parent process are not ours."""
        key = (os.getpid(), options)
        if key not in self._clusters or not self._clusters[key].is_open:
            self._clusters[key] = Cluster(options).start()
        self._clusters.move_to_end(key)
        while len(self._clusters) > CLUSTERS_MAX:
            (pid, _), oldest = self._clusters.popitem(last=False)
            if pid == os.getpid():
                oldest.close()
        return self._clusters[key]


CLUSTERS = ClusterPool()
