"""Requests about a queue, for consumers and offset stores: finds the broker of the queue, then sends the request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

import attrs

from rocketpy.errors import ClientError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.record import RECORD_HEAD_MAX, queue_offset_of, store_timestamp_of
from rocketpy.remoting.bodies.route import MASTER_ID
from rocketpy.remoting.bodies.topic import TopicOffset
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullSysFlag

from ..messages import ReceivedMessage
from ..results import ClientCode, PullStatus
from .instance import ClientInstance
from .time_search import StoredAt, first_offset_since

SEND_BACK_TIMEOUT_S = 5.0
OFFSET_TIMEOUT_S = 5.0
LOCK_TIMEOUT_S = 1.0
GAPS_MAX = 64  # ranges of unreadable messages that one look passes over


@attrs.frozen
class Brokers:
    """Requests that name a queue instead of an address. They use the VIP port if the options say so; pulls do not."""

    instance: ClientInstance

    async def _master(self, queue: MessageQueue) -> str:
        return self.instance.vip(await self.instance.find_master(queue))

    async def _reader(self, queue: MessageQueue) -> str:
        return self.instance.vip((await self.instance.find_reader(queue, MASTER_ID))[1])

    async def query_consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        address = await self._reader(queue)
        return await self.instance.api.query_consumer_offset(address, group, queue, OFFSET_TIMEOUT_S)

    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int, *, oneway: bool) -> None:
        address = await self._reader(queue)
        await self.instance.api.update_consumer_offset(address, group, queue, offset, OFFSET_TIMEOUT_S, oneway=oneway)

    async def max_offset(self, queue: MessageQueue) -> int:
        address = await self._master(queue)
        return await self.instance.api.max_offset(address, queue, self.instance.options.api_timeout)

    async def min_offset(self, queue: MessageQueue) -> int:
        address = await self._master(queue)
        return await self.instance.api.min_offset(address, queue, self.instance.options.api_timeout)

    async def topic_offsets(self, topic: str, broker_name: str) -> dict[MessageQueue, TopicOffset]:
        """Of all write queues. Raises ClientError: the broker has no master."""
        address = await self._master(MessageQueue(topic, broker_name, 0))
        return await self.instance.api.topic_offsets(address, topic, broker_name, self.instance.options.api_timeout)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The broker's answer: the offset of a message that was stored about then."""
        address = await self._master(queue)
        return await self.instance.api.search_offset(address, queue, timestamp_ms, self.instance.options.api_timeout)

    async def offset_since(
        self, queue: MessageQueue, timestamp_ms: int, group: str, within: tuple[int, int] | None = None
    ) -> int:
        """The first offset whose message was stored at or after the time; the maximum if there is none.

        Args:
            group: reads some messages, and may read the topic.
            within: minimum and maximum of the queue, if they are known.
        """
        low, high = within or (await self.min_offset(queue), await self.max_offset(queue))
        if low >= high:
            return high
        guess = await self.search_offset(queue, timestamp_ms)

        async def look(offset: int) -> StoredAt | None:
            return await self.first_stored(queue, offset, group)

        return await first_offset_since(timestamp_ms, guess, low, high, look)

    async def first_stored(self, queue: MessageQueue, offset: int, group: str) -> StoredAt | None:
        """The first readable message at or after an offset; None if there is none."""
        api, timeout_s = self.instance.api, self.instance.options.api_timeout
        for _ in range(GAPS_MAX):
            _, address = await self.instance.find_reader(queue, MASTER_ID)
            pulled = await api.pull_stored(address, _pull_of_one(queue, offset, group), timeout_s)
            head = pulled.body[:RECORD_HEAD_MAX]
            if pulled.status is PullStatus.FOUND and (time_ms := store_timestamp_of(head)) is not None:
                return StoredAt(queue_offset_of(head), time_ms)
            if pulled.next_begin_offset <= offset:
                return None
            offset = pulled.next_begin_offset
        return None

    async def member_ids(self, group: str, topic: str) -> list[str]:
        address = self.instance.vip(await self.instance.any_broker_of(topic))
        return await self.instance.api.consumer_ids(address, group, self.instance.options.api_timeout)

    async def send_message_back(
        self, group: str, message: ReceivedMessage, delay_level: int, reconsume_times_max: int
    ) -> None:
        """Sent to the broker of the message, which finds it by its commit log offset."""
        address = self.instance.send_address(message.queue.broker_name)
        if address is None:
            raise ClientError(f"broker {message.queue.broker_name} has no master", code=ClientCode.BROKER_NOT_EXIST)
        await self.instance.api.send_message_back(
            address, group, message, delay_level, reconsume_times_max, SEND_BACK_TIMEOUT_S
        )

    async def lock(self, group: str, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Lock queues on their masters. Returns: the queues that are locked now; none of unreachable brokers."""
        locked: set[MessageQueue] = set()
        for broker_name, some in by_broker(queues).items():
            if address := self.instance.send_address(broker_name):
                locked |= await self.instance.api.lock_queues(
                    address, group, self.instance.client_id, some, LOCK_TIMEOUT_S
                )
        return locked

    async def unlock(self, group: str, queues: Collection[MessageQueue]) -> None:
        for broker_name, some in by_broker(queues).items():
            if address := self.instance.send_address(broker_name):
                await self.instance.api.unlock_queues(address, group, self.instance.client_id, some, LOCK_TIMEOUT_S)


def _pull_of_one(queue: MessageQueue, offset: int, group: str) -> PullMessageRequestHeader:
    """A pull that answers at once and changes nothing on the broker."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        subscription="*",
        broker_name=queue.broker_name,
    )


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    groups: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        groups[queue.broker_name].append(queue)
    return dict(groups)
