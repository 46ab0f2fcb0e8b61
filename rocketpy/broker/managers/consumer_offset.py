"""Where each group goes on in each queue: `consumerOffset.json`, saved every 5 s and at stop.

A stored offset is the next one to consume. A smaller one is accepted: that is how offsets are reset.

Offsets come by UPDATE_CONSUMER_OFFSET and on pulls. Those on pulls are gathered for some milliseconds, so one of them
can arrive after an update that its client sent later, as a leaving consumer does. It must not undo that update: each
update is remembered with its time, and an offset from a pull that had arrived before is dropped.

The table may hold a million offsets, so nothing here goes through all of it in one step: it is kept by group, with an
index by topic, and written entry by entry.

Source: RocketMQ 4.9 `ConsumerOffsetManager`. The reference writes integer keys without quotes; both forms are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketpy.remoting.json_writer import Members, pretty_pieces
from rocketpy.transport.steps import Steps

from .. import persist
from .config_file import ConfigFile

log = logging.getLogger(__name__)

Queues = dict[int, int]


class ConsumerOffsetManager:
    def __init__(self, path: Path) -> None:
        self._offsets: dict[str, dict[str, Queues]] = {}  # group -> topic -> queue id -> next offset
        self._groups_of: dict[str, set[str]] = {}  # topic -> its groups; some may have been removed meanwhile
        self._told_ms: dict[str, dict[str, Queues]] = {}  # the same keys: the last update, on the monotonic clock
        self.file = ConfigFile(path, lambda: pretty_pieces(self.document()))

    def load(self) -> None:
        """Raises: ConfigError."""
        saved = persist.load_as(self.file.path, ConsumerOffsetSerializeWrapper)
        for key, queues in saved.offset_table.items() if saved else ():
            topic, at, group = key.partition("@")
            if at:
                self._put(group, topic, queues)
            else:
                log.warning("%s: %r is not topic@group; left out", self.file.path, key)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Store unconditionally; returns what was stored before, -1 for nothing."""
        queues = self._queues(group, topic)
        if queues is None:
            queues = self._put(group, topic, {})
        before = queues.get(queue_id, -1)
        if before != offset:
            queues[queue_id] = offset
            self.file.changed()
        if offset < before:
            log.warning("%s: offset of %s queue %d goes back from %d to %d", group, topic, queue_id, before, offset)
        return before

    def told(self, group: str, topic: str, queue_id: int, now_ms: int) -> None:
        """A client has named this queue's offset by itself."""
        self._told_ms.setdefault(group, {}).setdefault(topic, {})[queue_id] = now_ms

    def was_told_since(self, group: str, topic: str, queue_id: int, received_ms: int) -> bool:
        """Whether what was received at `received_ms` is older than the last update. Within one ms it counts as older:
        dropping an offset that rides on a pull costs nothing, the client names it again in five seconds."""
        told_ms = self._told_ms.get(group, {}).get(topic, {}).get(queue_id)
        return told_ms is not None and received_ms <= told_ms

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """-1 when the group never committed in this queue."""
        queues = self._queues(group, topic)
        return -1 if queues is None else queues.get(queue_id, -1)

    def query_all(self, group: str, topic: str) -> Queues:
        return dict(self._queues(group, topic) or {})

    def topics_of(self, group: str) -> set[str]:
        return set(self._offsets.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in the topic."""
        return {group for group in self._groups_of.get(topic, ()) if topic in self._offsets.get(group, ())}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy what `source` committed for the topic to `target`."""
        queues = self._queues(source, topic)
        if queues is not None:
            self._put(target, topic, dict(queues))
            self.file.changed()

    async def remove_group(self, group: str) -> None:
        """Forget all offsets of the group: at once, while the index by topic follows in steps."""
        topics = self._offsets.pop(group, None)
        self._told_ms.pop(group, None)
        if topics is None:
            return
        self.file.changed()
        steps = Steps()
        while topics:
            topic, _ = topics.popitem()
            if topic not in self._offsets.get(group, ()):  # committed again meanwhile
                self._leave_index(topic, group)
            await steps.did()

    async def remove_topic(self, topic: str) -> None:
        """Forget all offsets in the topic."""
        steps = Steps()
        for group in self.groups_of(topic):
            topics = self._offsets.get(group, {})
            if topics.pop(topic, None) is not None:
                self.file.changed()
            if not topics:
                self._offsets.pop(group, None)
            self._told_ms.get(group, {}).pop(topic, None)
            self._leave_index(topic, group)
            await steps.did()

    def document(self) -> Members:
        """The table as files and bodies carry it; each entry is looked up while it is written."""
        return Members(lambda: [("offsetTable", Members(self._entries))])

    def _entries(self) -> Iterator[tuple[str, Queues]]:
        for group in list(self._offsets):
            for topic in list(self._offsets.get(group, ())):
                queues = self._queues(group, topic)
                if queues is not None:
                    yield f"{topic}@{group}", dict(queues)

    def _queues(self, group: str, topic: str) -> Queues | None:
        topics = self._offsets.get(group)
        return None if topics is None else topics.get(topic)

    def _put(self, group: str, topic: str, queues: Queues) -> Queues:
        self._offsets.setdefault(group, {})[topic] = queues
        self._groups_of.setdefault(topic, set()).add(group)
        return queues

    def _leave_index(self, topic: str, group: str) -> None:
        groups = self._groups_of.get(topic)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[topic]
