"""Where each group goes on in each queue: `consumerOffset.json`, saved every 5 s and at stop.

A stored offset is the next one to consume. A smaller one is accepted: that is how offsets are reset.

Offsets come by UPDATE_CONSUMER_OFFSET and on pulls. Those on pulls are gathered for some milliseconds, so one of them
can arrive after an update that its client sent later, as a leaving consumer does. It must not undo that update: each
update is remembered with its time, and an offset from a pull that had arrived before is dropped.

Source: RocketMQ 4.9 `ConsumerOffsetManager`. The reference writes integer keys without quotes; both forms are read.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from .. import persist
from .config_file import ConfigFile

log = logging.getLogger(__name__)


def _key(topic: str, group: str) -> str:
    return f"{topic}@{group}"


class ConsumerOffsetManager:
    def __init__(self, path: Path) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self._told_ms: dict[str, dict[int, int]] = {}  # by key and queue: the last update, on the monotonic clock
        self.file = ConfigFile(path, lambda: persist.pretty(self.document()))

    def load(self) -> None:
        """Raises: ConfigError."""
        document = self.file.load() or {}
        for key, queues in (document.get("offsetTable") or {}).items():
            self._offsets[key] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Store unconditionally; returns what was stored before, -1 for nothing."""
        queues = self._offsets.setdefault(_key(topic, group), {})
        before = queues.get(queue_id, -1)
        if before != offset:
            queues[queue_id] = offset
            self.file.changed()
        if offset < before:
            log.warning("%s: offset of %s queue %d goes back from %d to %d", group, topic, queue_id, before, offset)
        return before

    def told(self, group: str, topic: str, queue_id: int, now_ms: int) -> None:
        """A client has named this queue's offset by itself."""
        self._told_ms.setdefault(_key(topic, group), {})[queue_id] = now_ms

    def was_told_since(self, group: str, topic: str, queue_id: int, received_ms: int) -> bool:
        """Whether what was received at `received_ms` is older than the last update. Within one ms it counts as older:
        dropping an offset that rides on a pull costs nothing, the client names it again in five seconds."""
        told_ms = self._told_ms.get(_key(topic, group), {}).get(queue_id)
        return told_ms is not None and received_ms <= told_ms

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """-1 when the group never committed in this queue."""
        return self._offsets.get(_key(topic, group), {}).get(queue_id, -1)

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._offsets.get(_key(topic, group), {}))

    def topics_of(self, group: str) -> set[str]:
        return {topic for topic, owner in self._pairs() if owner == group}

    def groups_of(self, topic: str) -> set[str]:
        return {group for name, group in self._pairs() if name == topic}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy what `source` committed for the topic to `target`."""
        queues = self._offsets.get(_key(topic, source))
        if queues is not None:
            self._offsets[_key(topic, target)] = dict(queues)
            self.file.changed()

    def remove_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            self._forget(_key(topic, group))

    def remove_topic(self, topic: str) -> None:
        for group in self.groups_of(topic):
            self._forget(_key(topic, group))

    def _forget(self, key: str) -> None:
        del self._offsets[key]
        self._told_ms.pop(key, None)
        self.file.changed()

    def document(self) -> dict[str, Any]:
        """The table as files and bodies carry it."""
        return {"offsetTable": {key: dict(queues) for key, queues in self._offsets.items()}}

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = (key.split("@", 1) for key in self._offsets)
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
