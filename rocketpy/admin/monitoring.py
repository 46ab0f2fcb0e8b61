"""Watches groups: backlog, members that disagree, and queues that do not move.

Source: RocketMQ 4.9 `MonitorService`, which writes the same to its log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator

import attrs

from rocketpy.client.cluster.route import subscribe_queues
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import OFFSET_MOVED_EVENT
from rocketpy.remoting.bodies.client import ConsumerRunningInfo

from .admin import Admin
from .messages import read_queue
from .progress import all_groups, queue_complaints, same_subscriptions


@attrs.frozen
class Finding:
    """Something an operator may want to know. `kind` is backlog, subscriptions, queue, offset_moved or error."""

    kind: str
    group: str
    text: str


@attrs.define
class Monitor:
    """Looks at all groups, round by round. `seen`: how far the events of moved offsets were read."""

    admin: Admin
    seen: dict[MessageQueue, int] = attrs.field(factory=dict)

    async def round(self) -> AsyncGenerator[Finding, None]:
        """Yield the findings of one round. A group that cannot be examined is a finding, too."""
        for group in await all_groups(self.admin):
            try:
                found = await self._group(group)
            except RocketError as error:
                found = [Finding("error", group, str(error))]
            for finding in found:
                yield finding
        async for finding in self._moved_offsets():
            yield finding

    async def _group(self, group: str) -> list[Finding]:
        backlog: dict[str, list[int]] = defaultdict(list)
        for queue, offset in (await self.admin.consume_stats(group)).offset_table.items():
            backlog[queue.topic].append(offset.lag)
        found = [
            Finding("backlog", group, f"topic {topic}: {sum(undone)} messages not consumed, {max(undone)} in one queue")
            for topic, undone in sorted(backlog.items())
            if any(undone)
        ]
        infos = await self._members(group)
        now_ms = self.admin.instance.now_ms()
        if not same_subscriptions(infos, now_ms):
            found.append(Finding("subscriptions", group, "its members subscribe to different topics or expressions"))
        for client_id, info in sorted(infos.items()):
            found += [Finding("queue", group, text) for text in queue_complaints(client_id, info, now_ms)]
        return found

    async def _members(self, group: str) -> dict[str, ConsumerRunningInfo]:
        """Return the running info of each member that answers; none for a group that is offline."""
        infos: dict[str, ConsumerRunningInfo] = {}
        try:
            members = (await self.admin.consumer_connection(group)).connection_set
        except RocketError:
            return infos
        for member in members:
            try:
                infos[member.client_id] = await self.admin.running_info(group, member.client_id)
            except RocketError:
                continue  # gone since, or too slow
        return infos

    async def _moved_offsets(self) -> AsyncGenerator[Finding, None]:
        """Events that a broker stored since the first round because a consumer asked for an offset that is gone."""
        try:
            queues = subscribe_queues(OFFSET_MOVED_EVENT, await self.admin.route(OFFSET_MOVED_EVENT))
            for queue in queues:
                end = await self.admin.brokers.max_offset(queue)
                begin = self.seen.get(queue, end)
                self.seen[queue] = end
                async for message in read_queue(self.admin, queue, begin, end):
                    yield Finding("offset_moved", "", message.body.decode("utf-8", "replace"))
        except RocketError as error:
            yield Finding("error", "", f"{OFFSET_MOVED_EVENT}: {error}")
