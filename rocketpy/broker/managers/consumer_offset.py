"""Where each group goes on in each queue: `consumerOffset.json`, saved every 5 s and at stop.

A stored offset is the next one to consume. A smaller one is accepted: that is how offsets are reset.

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
            del self._offsets[_key(topic, group)]
            self.file.changed()

    def remove_topic(self, topic: str) -> None:
        for group in self.groups_of(topic):
            del self._offsets[_key(topic, group)]
            self.file.changed()

    def document(self) -> dict[str, Any]:
        """The table as files and bodies carry it."""
        return {"offsetTable": {key: dict(queues) for key, queues in self._offsets.items()}}

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = (key.split("@", 1) for key in self._offsets)
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
