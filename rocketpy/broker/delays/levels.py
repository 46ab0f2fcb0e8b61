"""Delay levels: `1s 5s 10s ...` are levels 1, 2, 3, ...; and the progress of each, the next queue offset to deliver, in
`delayOffset.json`.

A delivered copy is not on the disk when the progress moves on, and a slave gets it over another connection than the
progress. So the progress is kept with the log position that it presumes (log_marks.py): after a power failure or a
change of master it is lowered to what the log has, and deliveries since then are looked up (earlier_deliveries.py).

Source: RocketMQ 4.9 `ScheduleMessageService`, `#parseDelayLevel`; `delayOffset.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.names import SCHEDULE_TOPIC
from rocketpy.message.numbers import int_or
from rocketpy.message.properties import DELAY
from rocketpy.remoting.bodies.offset import LogMark, MarkedOffsets
from rocketpy.remoting.fast_path import Delivery
from rocketpy.remoting.json_writer import pretty_pieces
from rocketpy.store.formats.unit import parse_delay_levels

from ..files import json_file
from ..files.log_marks import LogMarks
from ..managers.config_file import ConfigFile
from ..property_edits import text_property
from ..store_api import Store


@attrs.frozen
class DelayLevels:
    """The delay levels of messageDelayLevel, as the broker started with them."""

    delays_ms: tuple[int, ...]  # of level 1, 2, ...

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `messageDelayLevel`. Raises: ConfigError."""
        delays = parse_delay_levels(text)
        if not delays:
            raise ConfigError("at least one delay is needed", key="messageDelayLevel")
        return cls(tuple(delays))

    @property
    def level_max(self) -> int:
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """A level above the highest means the highest; zero and less mean no delay."""
        return max(0, min(level, self.level_max))

    def delay_ms(self, level: int) -> int:
        return self.delays_ms[level - 1]


def delay_level_of(properties: bytes) -> int:
    """The DELAY property; 0 when it is absent or no int."""
    return int_or(text_property(properties, DELAY), 0)


class DelayProgress:
    """Next offsets of all levels, and their file. `epoch`: served as master of a group with failover; -1: none."""

    def __init__(self, path: Path, level_max: int, store: Store, epoch: int = -1) -> None:
        self._level_max = level_max
        self._store = store
        self._epoch = epoch
        self._marks = LogMarks()
        self._is_ending = self._is_behind = False
        self.offsets: dict[int, int] = {}
        """Level -> next queue offset to deliver."""
        self.loaded = LogMark()
        """The mark that the progress begins with; its position is -1 if there is no file, or one of a Java broker."""
        self.file = ConfigFile(path, self._begin_save)
        self.file.on_saved = lambda changes: self._saved()

    def load(self) -> None:
        """Read the saved progress and limit it to the offsets that the queues have.

        The start has held a progress with a position to the log. Dispatch may still be behind it, so it is limited to
        the messages that are in the log, dispatched or not: otherwise they would be delivered again. Levels that
        messageDelayLevel lacks now keep theirs.

        Raises: ConfigError.
        """
        self._marks = LogMarks.of(json_file.load_as(self.file.path, MarkedOffsets))
        self.loaded = self._marks.newest or LogMark()
        for level, offset in self.loaded.offset_table.items():
            if level >= 1:
                low, high = self.bounds(level)
                if self.loaded.phy_offset >= 0:
                    high = max(high, self._store.log_end_of(SCHEDULE_TOPIC, level - 1) or 0)
                if level <= self._level_max or high:
                    self.offsets[level] = max(low, min(offset, high))

    def follow_deliveries(self, last_delivery: Callable[[int], Delivery | None]) -> set[int]:
        """Continue after messages that a previous manager has delivered since the file was saved. Returns the levels
        whose last delivery is known."""
        known = set()
        for level in range(1, self._level_max + 1):
            last = last_delivery(level)
            if last is None:
                continue
            if last.queue_offset < self.offsets.get(level, 0):
                known.add(level)  # the file is newer
                continue
            units = self._store.consume_queue_units(SCHEDULE_TOPIC, level - 1, last.queue_offset, 1)
            if units and units[0].phy_offset == last.phy_offset:  # else the queue was rebuilt: the file is right
                self.advance(level, last.queue_offset + 1)
                known.add(level)
        return known

    def follow(self, mark: LogMark) -> None:
        """Take over the progress of the master of this slave, whose own log has what it presumes."""
        self._marks.add(mark)
        if mark.offset_table != self.offsets:
            self.offsets = dict(mark.offset_table)
            self.file.changed()

    def follow_without_progress(self) -> None:
        """Save that this slave knows no progress: its log is not yet as far as any that the master has told. So a
        promotion looks for deliveries in the whole log (last_delivery.py)."""
        if self._marks.newest is None and not self.offsets:
            self._marks.add(LogMark(phy_offset=0))
            self.file.changed()

    def mark(self) -> LogMark:
        """The progress as it is now, with the position that it presumes."""
        return LogMark(epoch=self._epoch, offset_table=dict(self.offsets), phy_offset=self._store.log_end())

    def advance(self, level: int, offset: int) -> None:
        self.offsets[level] = offset
        self.file.changed()

    def bounds(self, level: int) -> tuple[int, int]:
        """The first offset of the level's queue, and its end as far as it is dispatched: the progress may be beyond."""
        low, high = self._store.bounds(SCHEDULE_TOPIC, level - 1)
        return max(0, low), max(0, low, high)

    def document(self) -> dict[str, Any]:
        """`{"offsetTable":{level: offset}}`, the body of code 45."""
        return {"offsetTable": dict(sorted(self.offsets.items()))}

    def end(self) -> None:
        """Let the last save, before the log is flushed and closed, say how far deliveries are."""
        self._is_ending = True

    def _begin_save(self) -> Iterable[str]:
        mark = self.mark()
        self._marks.add(mark)
        saved = self._marks.to_save(mark.phy_offset if self._is_ending else self._store.durable_end())
        self._is_behind = saved.offset_table != mark.offset_table
        return pretty_pieces(saved)

    def _saved(self) -> None:
        """Save once more when the disk has the log: until then the table that a Java broker reads is an older one."""
        if self._is_behind:
            self.file.changed()
