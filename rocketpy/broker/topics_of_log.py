"""Completes the table of topics after a kill: restores topics that messages of a master's log name and the table lacks,
keeps the position of the table, and ends deletions of topics that the last manager or master had begun.

The table of a master lacks such a topic if

- it is a copy of the last master's, which created the topic and acknowledged messages for it after the copy, or
- the manager or the broker died after it had announced the topic to the send worker, and before topics.json was saved.

Plain messages bring their topic back with their queue (adopt_queues). Messages with a delay level or a timer, and half
messages, have no queue of it yet: without their topic they would become dead letters, or be discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio

from rocketpy.errors import RocketError
from rocketpy.transport.duties import rest
from rocketpy.transport.steps import Steps, finished

from .services import BrokerServices

logger = logging.getLogger(__name__)

KEEP_S = 0.05  # a start after a kill reads at most the log of this time, 15 MiB at full load
REST_S = 1.0  # while the log does not grow; at most the first 300 MiB after a rest are read again
PIECE_BYTES = 16 << 20  # of the log, between two saves of the position: less than a second
SCAN_BYTES_MAX = 4 << 30  # about a minute; more can lie there if a Java broker has used the store


class TopicsOfLog:
    """The topics that only the log has. One per manager. A slave takes topics from its master alone: here it keeps
    its position."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._topics, self._store = services.topics, services.store
        self._known: frozenset[str] | None = None  # topics at the start; None: there is nothing (more) to compare
        self.on_piece: Callable[[], None] = lambda: None
        """Called after each piece of the log that was read before the broker serves."""

    async def adopt(self) -> None:
        """After the tables are loaded and before the broker serves: on a master, restore the topics that the log names
        from the position on. A topic that was deleted before stays deleted.

        Raises:
            StoreError: the log cannot be read.
        """
        if self._services.settings.is_slave:
            return
        await self._adopt_until(self._store.log_end())
        self._known = frozenset(self._topics.topics)

    async def forget_others(self) -> None:
        """Before the end of the tables: a send worker that outlived the last manager is to drop the topics that the
        last one knew and this one does not. Each has entries of its queues in the control block."""
        if self._services.settings.is_slave:
            return
        steps, told = Steps(), set[str]()
        for queue in self._store.queue_states():
            if queue.topic not in told and self._topics.select(queue.topic) is None:
                told.add(queue.topic)
                self._services.fast_path.topic_removed(queue.topic)
            await steps.did()

    async def run(self) -> None:
        """Keep the position until cancelled; less often while the log does not grow."""
        while True:
            if await self.keep():
                await trio.sleep(KEEP_S)
            else:
                await rest(REST_S)

    async def keep(self) -> bool:
        """Write the position, and return True if it has moved; first compare the table with the messages that a send
        worker has stored by the tables of the last manager."""
        if self._known is not None:
            await self._adopt_until(await self._services.fast_path.position())
            self._known = None
            self._topics.position.log_end = self._store.log_end
        return await self._topics.position.keep()

    async def _adopt_until(self, end: int) -> None:
        position = self._topics.position
        at = self._begin(position.below, end)
        while at < end:
            found = await finished(self._store.topics_in_log(at, end, PIECE_BYTES))
            adopt(self._services, {topic: count for topic, count in found.used.items() if not self._is_passed(topic)})
            at = found.until
            position.know(at)
            await self._topics.file.save()
            await position.keep()
            self.on_piece()
        position.know(end)

    def _is_passed(self, topic: str) -> bool:
        """Return True if the topic was known at the start: if it is not now, it was deleted since."""
        return topic in (self._known or ()) or topic in self._services.fast_path.recent_deletions

    @staticmethod
    def _begin(below: int, end: int) -> int:
        """Return the position at which the scan begins: the table's; the end of the log if the table has none."""
        if below < 0:
            return end
        if end - below > SCAN_BYTES_MAX:
            logger.warning(
                "topics.json knows the topics of the log up to %d, which ends at %d: looking for new topics in the "
                "last %d MiB only",
                below,
                end,
                SCAN_BYTES_MAX >> 20,
            )
        elif end - below > PIECE_BYTES:
            logger.info("looking for new topics in %d MiB of the log, up to %d", (end - below) >> 20, end)
        return max(below, end - SCAN_BYTES_MAX)  # not the begin of a record: the rest of its file is passed over


def adopt_queues(services: BrokerServices) -> None:
    """Restore topics whose queues hold messages but which topics.json does not have.

    A topic is announced a moment before topics.json is saved. If the manager dies in between, messages that were
    acknowledged must stay visible.
    """
    adopt(services, services.store.used_topics())


def adopt(services: BrokerServices, used_topics: Mapping[str, int]) -> None:
    """Restore the topics among these that the table lacks; each with its number of used queues."""
    topics = services.topics
    largest = topics.largest_template()
    for topic, used in used_topics.items():
        if topics.select(topic) is not None:
            continue
        try:
            count = topics.adopt(topic, used, largest).read_queue_nums
        except RocketError as exc:  # the other topics are served
            logger.error("the log names topic %s, which topics.json lacks, and it is not restored: %s", topic, exc)
            continue
        logger.warning("the log names topic %s, which topics.json lacks: restored it with %d queues", topic, count)


def finish_deletions(services: BrokerServices) -> None:
    """Complete deletions of topics.

    On a slave the log may have brought messages of a topic of the same name since then: they stay.
    """
    for topic, has_messages in services.store.deleted_topics().items():
        if services.topics.select(topic) is not None:
            continue
        if has_messages:
            below = services.store.deletion_bound(topic) if services.settings.is_slave else None
            services.fast_path.delete_queues(topic, below)
        else:
            services.fast_path.topic_removed(topic)
