"""The committed offset of each group in each queue: `consumerOffset.json`, saved every 5 s and at stop.

A stored offset is the next one to consume. A smaller one is accepted: that is how offsets are reset.

Offsets arrive by UPDATE_CONSUMER_OFFSET and with pulls. Those of pulls are collected for some milliseconds, so one of
them can arrive after an update that its client sent later, for example when a consumer stops. It must not undo that
update: the time of each update is stored, and an offset of an earlier pull is dropped.

Changes since the last completed save are in a journal, for a restarted manager. The times of updates are not in it, so
a restarted manager drops offsets of pulls that arrived before its start, or up to WAITED_MS after it: updates that
waited for the manager are older, and would undo them.

Nothing runs ahead of the log (log_marks.py). The file says, as its last member, the log position that its offsets
presume: the end of the log when the last of them was written. If the log is shorter when it is opened, the offsets that
lie beyond the end of their queues are lowered (processes/boot/table_check.py). A slave takes no such offset.

The table may hold a million offsets, so no step goes through all of it: it is kept by group, with an index by topic,
and is written entry by entry.

Source: RocketMQ 4.9 `ConsumerOffsetManager`. The reference writes integer keys without quotes; both forms are read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rocketpy.logs import LogLimit, and_more
from rocketpy.message.numbers import INT_MAX
from rocketpy.remoting.bodies.offset import PHY_OFFSET, ConsumerOffsetSerializeWrapper
from rocketpy.remoting.json_writer import Members, pretty_pieces
from rocketpy.remoting.limits import Limit
from rocketpy.transport.steps import Steps

from ..files import json_file
from ..memory.journal import Journal
from .config_file import ConfigFile

logger = logging.getLogger(__name__)

Queues = dict[int, int]
WAITED_MS = 1000  # until requests that waited for a restarted manager are answered; clients repeat offsets every 5 s


class ConsumerOffsetManager:
    """The table, and its index by topic.

    Args:
        journal: of the previous manager and of this one; None: not shared. started_ms: on the monotonic clock.
        entries_max: queues that may have an offset, over all groups and topics. now_s: clock of the rate limit of log
        lines about offsets that go back.
    """

    def __init__(
        self,
        path: Path,
        journal: Journal | None = None,
        *,
        started_ms: int = -1,
        entries_max: Callable[[], int] = lambda: INT_MAX,
        now_s: Callable[[], float] = time.monotonic,
        log_end: Callable[[], int] = lambda: -1,
    ) -> None:
        self.limit = Limit("offsets", "consumerOffsetsMax", entries_max)
        self._count = 0  # queues that have an offset
        self._offsets: dict[str, dict[str, Queues]] = {}  # group -> topic -> queue id -> next offset
        self._groups_of: dict[str, set[str]] = {}  # topic -> its groups, possibly also removed ones
        self._updated_ms: dict[str, dict[str, Queues]] = {}  # some of these keys -> time of the last update, monotonic
        self._journal = journal or Journal.private("committed offsets", is_saved=True)
        self._started_ms = started_ms
        self._gone_back, self._beyond = LogLimit(now_s=now_s), LogLimit(now_s=now_s)
        self._log_end = log_end
        self.file = ConfigFile(path, self._begin_save)
        self.file.on_saved = lambda changes: self._journal.end_save()

    def _begin_save(self) -> Iterable[str]:
        self._journal.begin_save()
        return pretty_pieces(Members(self._file_members))

    def _file_members(self) -> Iterator[tuple[str, object]]:
        yield "offsetTable", Members(self._entries)
        yield PHY_OFFSET, self._log_end()  # looked up when all entries are written

    def load(self) -> None:
        """Read the saved offsets. Raises: ConfigError: the file cannot be read."""
        saved = json_file.load_as(self.file.path, ConsumerOffsetSerializeWrapper)
        for key, queues in saved.offset_table.items() if saved else ():
            topic, at, group = key.partition("@")
            if at:
                self._put(group, topic, queues)
            else:
                logger.warning("ignored the offsets of key %r in %s: expected topic@group", key, self.file.path)
        self._restore()
        self._count = sum(len(queues) for topics in self._offsets.values() for queues in topics.values())

    def _restore(self) -> None:
        """Restore the changes that the previous manager had not saved."""
        entries = self._journal.entries
        for key, value in entries.items():
            queue_id, topic, group = key.decode("utf-8", "surrogatepass").split("@", 2)
            queues = self._queues(group, topic)
            if value:
                (self._put(group, topic, {}) if queues is None else queues)[int(queue_id)] = int(value)
            elif queues is not None:
                queues.pop(int(queue_id), None)
                if not queues:
                    self._drop(group, topic)
        if entries:
            self._started_ms += WAITED_MS
            logger.info("restored %d committed offsets that the previous manager had not saved", len(entries))
            self.file.changed()

    def _keep(self, group: str, topic: str, queue_id: int, offset: int | None) -> None:
        """Write a change to the journal; `offset` None: the entry was removed."""
        value = b"" if offset is None else b"%d" % offset
        self._journal.put(f"{queue_id}@{topic}@{group}".encode("utf-8", "surrogatepass"), value)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Store an offset. Returns the previous one, -1 if there was none.

        Raises:
            RequestRefused: the limit of offsets is reached.
        """
        queues = self._queues(group, topic)
        is_new = queues is None or queue_id not in queues
        if is_new:
            self.limit.check(self._count)
        if queues is None:
            queues = self._put(group, topic, {})
        before = queues.get(queue_id, -1)
        if is_new or before != offset:
            self._count += is_new
            queues[queue_id] = offset
            self._keep(group, topic, queue_id, offset)
            self.file.changed()
        if offset < before:
            told = self._gone_back.take()
            if told:
                logger.warning(
                    "group %s: the committed offset of topic %s, queue %d, went back from %d to %d%s",
                    group,
                    topic,
                    queue_id,
                    before,
                    offset,
                    and_more(told),
                )
        return before

    def drop(self, group: str, topic: str, queue_id: int, offset: int, end: int) -> None:
        """Tell the operator of an offset that is not stored, because its queue ends before it."""
        told = self._beyond.take()
        if told:
            text = "group %s: dropped the offset %d of topic %s, queue %d, which ends at %d: the log had more before%s"
            logger.warning(text, group, offset, topic, queue_id, end, and_more(told))

    def follow(self, group: str, topic: str, offsets: Queues, end_of: Callable[[str, int], int]) -> None:
        """Take over the offsets of a group and topic from the master of this slave; no limit of entries applies.

        `end_of`: the end of a queue here, beyond which no offset is taken: its messages are not here yet.
        """
        queues = self._queues(group, topic)
        if queues is None:
            queues = self._put(group, topic, {})
        for queue_id, theirs in offsets.items():
            before, offset = queues.get(queue_id), theirs
            if before != offset:
                offset = min(offset, end_of(topic, queue_id))
            if before != offset:
                self._count += before is None
                queues[queue_id] = offset
                self._keep(group, topic, queue_id, offset)
                self.file.changed()

    def note_update(self, group: str, topic: str, queue_id: int, now_ms: int) -> None:
        """Store the time of an UPDATE_CONSUMER_OFFSET for this queue, if it has an offset: the limit of offsets is also
        that of times."""
        if queue_id in (self._queues(group, topic) or ()):
            self._updated_ms.setdefault(group, {}).setdefault(topic, {})[queue_id] = now_ms

    def was_updated_since(self, group: str, topic: str, queue_id: int, received_ms: int) -> bool:
        """Return True if a pull received at `received_ms` is older than the last update. The same ms counts as older:
        dropping an offset of a pull does no harm, because the client repeats it within five seconds."""
        return received_ms <= self._updated_ms.get(group, {}).get(topic, {}).get(queue_id, self._started_ms)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset; -1 if the group never committed in this queue."""
        queues = self._queues(group, topic)
        return -1 if queues is None else queues.get(queue_id, -1)

    def query_all(self, group: str, topic: str) -> Queues:
        return dict(self._queues(group, topic) or {})

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has offsets. A group may have a million of them: sort them with `in_order`."""
        return list(self._offsets.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in the topic."""
        return {group for group in self._groups_of.get(topic, ()) if topic in self._offsets.get(group, ())}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of group `source` in the topic to group `target`."""
        queues = self._queues(source, topic)
        if queues is not None:
            kept = self.query_all(target, topic)
            self.limit.check(self._count, max(0, len(queues) - len(kept)))
            times = self._updated_ms.get(target, {}).get(topic, {})
            for queue_id in kept.keys() - queues.keys():
                self._keep(target, topic, queue_id, None)
                times.pop(queue_id, None)
            self._put(target, topic, dict(queues))
            for queue_id, offset in queues.items():
                self._keep(target, topic, queue_id, offset)
            self.file.changed()

    async def remove_group(self, group: str) -> None:
        """Remove all offsets of the group at once; the index by topic is updated in steps."""
        topics = self._offsets.pop(group, None)
        self._updated_ms.pop(group, None)
        if topics is None:
            return
        self.file.changed()
        steps = Steps()
        self._count -= sum(map(len, topics.values()))
        while topics:
            topic, queues = topics.popitem()
            again = self._queues(group, topic)  # committed during the steps
            if again is None:
                self._leave_index(topic, group)
            for queue_id in queues.keys() - (again or {}).keys():
                self._keep(group, topic, queue_id, None)
            await steps.did()

    def document(self) -> Members:
        """The table in the format of file and body; each entry is looked up when it is written."""
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

    def __len__(self) -> int:
        return self._count

    def _put(self, group: str, topic: str, queues: Queues) -> Queues:
        self._count += len(queues) - len(self._queues(group, topic) or ())
        self._offsets.setdefault(group, {})[topic] = queues
        self._groups_of.setdefault(topic, set()).add(group)
        return queues

    def _drop(self, group: str, topic: str) -> None:
        topics = self._offsets.get(group, {})
        self._count -= len(topics.pop(topic, ()))
        if not topics:
            self._offsets.pop(group, None)
        self._leave_index(topic, group)

    def _leave_index(self, topic: str, group: str) -> None:
        groups = self._groups_of.get(topic)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[topic]
