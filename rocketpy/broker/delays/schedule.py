"""Delayed messages: kept in SCHEDULE_TOPIC_XXXX, one queue per level, and stored again when their time has come.

A check every 100 ms finds the levels with due messages; one task per level delivers them in queue order. The delivery
time is the unit's third field. A delivered message keeps its DELAY, REAL_TOPIC and REAL_QID properties, as in the
reference. It is an internal put, and those are not delayed again.

A message that can never be delivered (its topic is gone, it does not fit a log file) goes to %DLQ%SCHEDULE_TOPIC_XXXX
with its properties, and the level continues. After an error that may pass (a full disk, a busy broker) the delivery is
tried again. A delivery that crashed the send worker three times is refused (csrc/store/timers/delivery_marks.h), also
as a dead letter: the message stays where it is.

Time is the broker's clock, which store timestamps follow. When the system clock is set back, it advances at half speed,
so that a delay keeps its length (docs/adr/0090).

The send worker delivers the due messages of a level together, up to the first one that needs a decision, which is
delivered here. Each delivery names its delayed message, and the send worker stores it once, even if it is put several
times (docs/adr/0090). So a restart of a worker neither repeats nor loses a message. Progress is saved every 10 s, after
SAVE_AFTER deliveries and at stop, with the log position that it presumes (levels.py). After the death of the whole
broker, or of another master, messages that were delivered since that position are looked up (earlier_deliveries.py).

Source: RocketMQ 4.9 `ScheduleMessageService`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RecordCorrupt, RocketError
from rocketpy.message.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, dlq_topic
from rocketpy.message.numbers import PhyOffset, int_or
from rocketpy.message.properties import REAL_QID, REAL_TOPIC
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting.bodies.offset import LogMark
from rocketpy.remoting.fast_path import (
    Delivered,
    Delivery,
    DueMessages,
    FastPath,
    MessageToPut,
    NotDelivered,
    PutResult,
)
from rocketpy.transport.duties import rest
from rocketpy.transport.steps import Steps

from ..current_settings import CurrentSettings
from ..managers.config_file import ConfigFile
from ..managers.topic_config import TopicConfigManager
from ..property_edits import text_property
from ..store_api import ConsumeQueueUnit, Store
from .earlier_deliveries import UNITS_MAX, EarlierDeliveries
from .last_delivery import LastDelivery
from .levels import DelayLevels, DelayProgress

logger = logging.getLogger(__name__)

FIRST_LOOK_S = 1.0
LEVELS_MAX = 100  # of any messageDelayLevel
LOOK_INTERVAL_S = 0.1  # while messages wait
REST_MAX_S = 1.0  # while none waits
AFTER_ERROR_S = 10.0
RETRY_S = 1.0
FIND_S = 10.0  # to look for the last deliveries of all levels, before the first delivery
TRIES_MAX = 3  # of a message whose delivery raises an unexpected error
UNITS_PER_READ = 256
BYTES_PER_DELIVERY = 1 << 20  # of records that are delivered together, or one message
READS_PER_STEP = 16
SAVE_AFTER = UNITS_MAX // 2  # deliveries; after the death of the broker those since the last save are looked up
DEAD_LETTERS = dlq_topic(SCHEDULE_TOPIC)


class ScheduleService:
    """Delivers messages with a delay level when their time has come. One per broker."""

    def __init__(
        self,
        levels: DelayLevels,
        progress: DelayProgress,
        settings: CurrentSettings,
        store: Store,
        fast_path: FastPath,
        topics: TopicConfigManager,
    ) -> None:
        self.levels = levels
        self._is_automatic = settings.store.is_automatic
        self._earlier: EarlierDeliveries | None = None
        self._unknown: set[int] = set()  # levels without saved progress, in a log that is longer than the file presumes
        self._store = store
        self._fast_path = fast_path
        self._topics = topics
        self._progress = progress
        self._busy: set[int] = set()
        self._rest_until: dict[int, float] = {}  # level -> when to look again: after an error, or nothing due before
        self._failed: dict[int, tuple[Delivery, int]] = {}  # level -> the delivery that failed last, how often
        self._is_clock_slowed = False
        self._is_finishing = False
        self._unsaved = 0  # deliveries
        self.on_delivered: Callable[[int, int, int], None] = lambda level, messages, size: None  # level, number, bytes
        self._ahead_ms: dict[int, int] = {}  # level -> how far its messages' store times are ahead of our clock

    @property
    def file(self) -> ConfigFile:
        """The file of the progress."""
        return self._progress.file

    def load(self) -> None:
        """Read the saved progress. Raises: ConfigError."""
        self._progress.load()
        known = self._progress.follow_deliveries(self._fast_path.last_delivery)
        levels = set(range(1, self.levels.level_max + 1)) - known
        since = self._progress.loaded.phy_offset
        if since < self._store.log_end() if since >= 0 else self._is_automatic:
            self._earlier = EarlierDeliveries(self._store, levels, since)
            self._unknown = levels - self._progress.offsets.keys() if since >= 0 else set()

    def follow(self, mark: LogMark) -> None:
        """Take over the progress of the master of this slave; nothing is delivered here meanwhile."""
        self._progress.follow(mark)

    def follow_without_progress(self) -> None:
        """The master has told no progress yet whose messages are in the log of this slave."""
        self._progress.follow_without_progress()

    def mark(self) -> LogMark:
        """The progress, with the log position that it presumes."""
        return self._progress.mark()

    def finish(self) -> None:
        """Begin no more deliveries, because the manager stops: the last save says how far those under way have come."""
        self._is_finishing = True

    def end(self) -> None:
        """Before the last save."""
        self._progress.end()

    def document(self) -> dict[str, Any]:
        """`{"offsetTable":{level: offset}}`, the body of code 45."""
        return self._progress.document()

    def progress(self) -> dict[int, tuple[int, int]]:
        """level -> (next queue offset to deliver, end of the queue), for levels that were ever used."""
        return {level: (offset, self._bounds(level)[1]) for level, offset in sorted(self._progress.offsets.items())}

    async def run(self) -> None:
        """Deliver until cancelled."""
        await trio.sleep(FIRST_LOOK_S)
        self._warn_of_missing_levels()
        if self._earlier is not None:
            await self._earlier.begin()
            await self._find_progress()
        async with trio.open_nursery() as nursery:
            while True:
                self._watch_clock()
                if self._unsaved >= SAVE_AFTER:
                    self._unsaved = 0
                    nursery.start_soon(self._save)
                waiting = [level for level in range(1, self.levels.level_max + 1) if self._has_messages(level)]
                for level in waiting:
                    if level not in self._busy and trio.current_time() >= self._rest_until.get(level, 0.0):
                        self._busy.add(level)
                        nursery.start_soon(self._work_off, level)
                if waiting:
                    await trio.sleep(LOOK_INTERVAL_S)
                else:
                    await rest(self._rest_s())

    def _warn_of_missing_levels(self) -> None:
        """Tell the operator of messages that nothing delivers, because messageDelayLevel has become shorter."""
        levels = range(self.levels.level_max + 1, LEVELS_MAX + 1)
        waiting = {level: self._waiting(level) for level in levels if self._has_messages(level)}
        if waiting:
            logger.warning(
                "messageDelayLevel has %d levels now: %d delayed messages of level %s are not delivered, and are "
                "deleted with their log files; give it these levels again",
                self.levels.level_max,
                sum(waiting.values()),
                ", ".join(map(str, waiting)),
            )

    async def _find_progress(self) -> None:
        """Begin each level without progress after its last delivered message in the log."""
        until_s = trio.current_time() + FIND_S
        while self._unknown:
            level = self._unknown.pop()
            low, high = self._bounds(level)
            try:
                offset = await LastDelivery(self._store, level, self.levels.delay_ms(level), until_s).after(low, high)
            except Exception:  # the level begins at its first message, which repeats some
                logger.exception("cannot look for the last delivery of delay level %d", level)
                continue
            if offset > self._progress.offsets.get(level, low):
                logger.info("delay level %d: continues at offset %d, by its last delivery in the log", level, offset)
                self._advance(level, offset)

    def _watch_clock(self) -> None:
        """Tell the operator when the system clock was set back, once."""
        was_slowed, self._is_clock_slowed = self._is_clock_slowed, self._store.clock_slowed_from_ms() is not None
        if self._is_clock_slowed and not was_slowed:
            logger.warning(
                "the system clock was set back: store timestamps advance at half speed until it has caught up; delayed "
                "messages keep their delay"
            )

    def _has_messages(self, level: int) -> bool:
        return self._waiting(level) > 0

    def _waiting(self, level: int) -> int:
        low, high = self._bounds(level)
        return high - max(self._progress.offsets.get(level, low), low)

    def _rest_s(self) -> float:
        """Return the seconds in which no message becomes due if none waits: the shortest delay."""
        return min(REST_MAX_S, max(LOOK_INTERVAL_S, min(self.levels.delays_ms, default=0) / 1000))

    async def _save(self) -> None:
        try:
            await self.file.save()
        except Exception:
            logger.exception("cannot save the progress of delay levels; trying again later")

    async def _work_off(self, level: int) -> None:
        try:
            while await self.deliver_due(level):
                pass
        except Exception:  # the level continues later, the other levels at once
            logger.exception("cannot deliver messages of delay level %d; trying again in %.0f s", level, AFTER_ERROR_S)
            self._rest_until[level] = trio.current_time() + AFTER_ERROR_S
        finally:
            self._busy.discard(level)

    async def deliver_due(self, level: int) -> bool:
        """Deliver the due messages of one read of the level's queue. Returns True if more may be due now."""
        low, _ = self._bounds(level)
        offset = max(low, self._progress.offsets.get(level, low))
        units = self._store.consume_queue_units(SCHEDULE_TOPIC, level - 1, offset, UNITS_PER_READ)
        if not units:
            return self._pass_damage(level, offset)
        due = deque(self._due_of(level, offset, units))
        has_more, read_to = len(due) == len(units), offset
        while due and not self._is_finishing:
            delivered = await self._deliver_together(level, offset, due)
            offset += delivered.count
            if delivered.stopped_by is None:
                continue
            if delivered.stopped_by == NotDelivered.NOT_IN_MEMORY and offset >= read_to:
                read_to = offset + await self._read(_together(due))
                continue
            if not await self._try(Delivery(level, due[0].phy_offset, offset)):
                self._rest_until[level] = trio.current_time() + RETRY_S
                return False
            due.popleft()
            offset += 1
            self._unsaved += 1
            self._advance(level, offset)
        return has_more and not self._is_finishing

    def _due_of(self, level: int, offset: int, units: Sequence[ConsumeQueueUnit]) -> Iterator[ConsumeQueueUnit]:
        """The units from the first on, at `offset`, whose messages are due."""
        for index, unit in enumerate(units):
            if not self._is_due(level, offset + index, unit.tags_code):
                return
            yield unit

    async def _deliver_together(self, level: int, offset: int, due: deque[ConsumeQueueUnit]) -> Delivered:
        """Have the send worker deliver messages, of BYTES_PER_DELIVERY at most, and take those out of `due`."""
        if self._earlier is not None and self._earlier.is_searching(level):
            return Delivered(0, NotDelivered.UNUSUAL)
        places = [(max(0, unit.phy_offset), max(0, unit.size)) for unit in _together(due)]  # less than 0: damaged
        delivered = await self._fast_path.deliver(DueMessages(level, offset, places))
        if delivered.count:
            self._unsaved += delivered.count
            self.on_delivered(level, delivered.count, sum(due.popleft().size for _ in range(delivered.count)))
            self._advance(level, offset + delivered.count)
        return delivered

    async def _read(self, units: Iterable[ConsumeQueueUnit]) -> int:
        """Bring records into memory: the send worker, which serves clients, does not wait for the disk. Returns their
        number."""
        steps, number = Steps(READS_PER_STEP), 0
        for unit in units:
            self._store.look_message_by_offset(PhyOffset(unit.phy_offset))
            number += 1
            await steps.did()
        return number

    def _pass_damage(self, level: int, offset: int) -> bool:
        """Skip units that cannot be read, as pulls do. Returns False if there are none before the end of the queue."""
        low, high = self._bounds(level)
        if offset >= high:
            return False
        reached = low if offset < low else min(self._store.next_queue_file(offset), high)  # below it was cleaned now
        if offset >= low:
            logger.error(
                "delay level %d: cannot read the consume queue of topic %s, queue %d, at offset %d: skipped "
                "delayed messages %d to %d; they are in the CommitLog: stop the broker, remove consumequeue and "
                "control, start it",
                level,
                SCHEDULE_TOPIC,
                level - 1,
                offset,
                offset,
                reached - 1,
            )
        self._advance(level, reached)
        return True

    def _is_due(self, level: int, offset: int, deliver_time_ms: int) -> bool:
        now_ms, slowed_from_ms = self._store.clock_ms(), self._store.clock_slowed_from_ms()
        if deliver_time_ms <= now_ms:
            return True
        if slowed_from_ms is None and deliver_time_ms <= now_ms + self.levels.delay_ms(level):
            return False
        stored_ms = self._stored_ms(level, offset, now_ms)
        return due_time_ms(stored_ms, deliver_time_ms, self.levels.delay_ms(level), slowed_from_ms) <= now_ms

    def _stored_ms(self, level: int, offset: int, now_ms: int) -> int:
        """The store time of a message. If it is ahead of our clock (another broker wrote the log), the message counts
        as stored when it is first looked at, and later ones keep their distance to it."""
        stored_ms = self._store.message_store_timestamp(SCHEDULE_TOPIC, level - 1, offset)
        if stored_ms <= now_ms:
            return stored_ms
        self._ahead_ms[level] = max(self._ahead_ms.get(level, 0), stored_ms - now_ms)
        return stored_ms - self._ahead_ms[level]

    async def _try(self, delivery: Delivery) -> bool:
        """Deliver one message. Returns True to continue with the next one. Raises: what the delivery raises, at most
        TRIES_MAX times.

        Then the message is skipped, unless the error may pass: of the store or of the disk.
        """
        try:
            return await self._deliver(delivery)
        except (RocketError, OSError):
            raise
        except Exception:
            last, tries = self._failed.get(delivery.level, (delivery, 0))
            tries = tries + 1 if last == delivery else 1
            self._failed[delivery.level] = (delivery, tries)
            if tries < TRIES_MAX:
                raise
            logger.exception(
                "skipped the delayed message at log offset %d after %d failures; it stays in %s until its file expires",
                delivery.phy_offset,
                tries,
                SCHEDULE_TOPIC,
            )
            return True

    async def _deliver(self, delivery: Delivery) -> bool:
        """Store one message in its real topic, or as a dead letter if that is impossible. Returns False to try
        again."""
        record = self._look_up(PhyOffset(delivery.phy_offset))
        if record is None:
            return True
        message = self._addressed(record)
        if isinstance(message, MessageToPut):
            if self._earlier and await self._earlier.has(delivery.level, record, message.topic, message.queue_id):
                return True
            result = await self._fast_path.put(attrs.evolve(message, delivery=delivery))
            if not result.is_final_refusal:
                is_stored = self._is_stored(record, result)
                if is_stored:
                    self.on_delivered(delivery.level, 1, record.size)
                return is_stored
            message = f"topic {message.topic}, queue {message.queue_id} refuses it permanently, code {result.code}"
        return await self._to_dead_letters(record, delivery, reason=message)

    async def _to_dead_letters(self, record: StoredRecord, delivery: Delivery, reason: str) -> bool:
        """Store a message that cannot be delivered as a dead letter. Returns False to try again."""
        if self._earlier and await self._earlier.has(delivery.level, record, DEAD_LETTERS, 0):
            return True
        topic = self._topics.create_if_missing(DEAD_LETTERS, queue_nums=1)
        await self._topics.file.save()
        message = message_from(record, topic=topic.topic_name, queue_id=0, properties=record.properties)
        result = await self._fast_path.put(attrs.evolve(message, delivery=delivery))
        if result.code == ResponseCode.MESSAGE_ILLEGAL:
            logger.error(
                "cannot deliver the delayed message at log offset %d: %s; %s refuses it as well: it stays in %s until "
                "its log file expires",
                record.phy_offset,
                reason,
                DEAD_LETTERS,
                SCHEDULE_TOPIC,
            )
            return True
        if self._is_stored(record, result):
            logger.warning(
                "cannot deliver the delayed message at log offset %d: %s; moved it to %s",
                record.phy_offset,
                reason,
                DEAD_LETTERS,
            )
            return True
        return False

    @staticmethod
    def _is_stored(record: StoredRecord, result: PutResult) -> bool:
        if not result.is_stored:
            logger.warning(
                "cannot store the delayed message at log offset %d: code %d; trying again in %.0f s",
                record.phy_offset,
                result.code,
                RETRY_S,
            )
        return result.is_stored

    def _look_up(self, phy_offset: PhyOffset) -> StoredRecord | None:
        """Read the delayed message. Returns None, and logs why, if it cannot be delivered."""
        image = self._store.look_message_by_offset(phy_offset)
        if image is None:
            logger.warning("skipped the delayed message at log offset %d: cannot read it", phy_offset)
            return None
        try:
            record = decode_record(memoryview(image), phy_offset, check_crc=False)
        except RecordCorrupt as exc:
            logger.error("skipped a delayed message that is damaged: %s", exc)
            return None
        if record is not None and record.topic != SCHEDULE_TOPIC:
            logger.error(
                "skipped a delayed message: its consume queue unit is damaged and points to log offset %d, a message "
                "of topic %s",
                phy_offset,
                record.topic,
            )
            return None
        return record

    def _addressed(self, record: StoredRecord) -> MessageToPut | str:
        """The message for its real topic, or the reason why it cannot be delivered."""
        topic = text_property(record.properties, REAL_TOPIC)
        text = text_property(record.properties, REAL_QID) or "0"
        queue_id = int_or(text, -1)
        if topic is None or topic == TRANS_HALF_TOPIC or queue_id < 0:
            return f"its real topic is {(topic or 'missing')[:200]}, queue {text[:40]}"
        target = self._target_queue(topic, queue_id)
        if target is None:
            return f"its topic {topic} does not exist"
        return message_from(record, topic=topic, queue_id=target, properties=record.properties)

    def _target_queue(self, topic: str, queue_id: int) -> int | None:
        """The queue to deliver to: another one if the topic has fewer queues now, None if the topic was deleted."""
        config = self._topics.select(topic)
        queue_nums = max(config.read_queue_nums, config.write_queue_nums) if config is not None else 0
        return queue_id % queue_nums if queue_nums > 0 else None

    def _advance(self, level: int, offset: int) -> None:
        self._progress.advance(level, offset)

    def _bounds(self, level: int) -> tuple[int, int]:
        return self._progress.bounds(level)


def _together(units: Iterable[ConsumeQueueUnit]) -> Iterator[ConsumeQueueUnit]:
    """The units from the first on whose records are delivered together."""
    size = 0
    for index, unit in enumerate(units):
        size += unit.size
        if index and size > BYTES_PER_DELIVERY:
            return
        yield unit


def due_time_ms(stored_ms: int, deliver_time_ms: int, delay_ms: int, slowed_from_ms: int | None) -> int:
    """Time of the broker's clock at which a message has waited for its delay.

    Args:
        stored_ms: its store time.
        deliver_time_ms: store time plus delay, from the unit; the delay may come from an older messageDelayLevel.
        delay_ms: the current delay of its level; no message waits longer. slowed_from_ms: time at which the clock began
        to run at half speed; None if it does not.
    """
    due_ms = stored_ms + min(deliver_time_ms - stored_ms, delay_ms)
    if slowed_from_ms is None:
        return due_ms
    return due_ms - max(0, due_ms - max(stored_ms, slowed_from_ms)) // 2


def message_from(
    record: StoredRecord, *, topic: str, queue_id: int, properties: bytes, reconsume_times: int | None = None
) -> MessageToPut:
    """A copy of a stored message for another queue. Born host and born timestamp are kept."""
    return MessageToPut(
        topic=topic,
        queue_id=queue_id,
        body=bytes(record.body),
        properties=properties,
        message_flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times if reconsume_times is None else reconsume_times,
        wait_store=False,
    )
