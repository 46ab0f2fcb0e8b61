"""Cancels and moves pending timers (docs/adr/0110).

A message with TIMER_DEL_UNIQKEY or TIMER_MOVE_UNIQKEY names a timer by its unique key. It is not delivered itself. The
index finds the timer. The send worker stores what ends it only if it is still pending, in one published step: a
cancellation, or the same timer again with another time. So a timer is delivered or cancelled, never both.
"""

from __future__ import annotations

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import NumberInvalid, RequestRefused
from rocketpy.message import properties as p
from rocketpy.message.names import TIMER_TOPIC
from rocketpy.message.numbers import parse_long
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.message.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketpy.remoting.answers import OVERLOAD
from rocketpy.remoting.fast_path import FastPath, MessageToPut, PutResult, SendRequest, TimerState
from rocketpy.transport.steps import BODY_SIZE_MAX, finished

from ..current_settings import CurrentSettings
from ..property_edits import text_property, with_values
from ..store_api import Store

TIMERS_MAX = 32  # with one key: a send that was repeated after a timeout is stored several times
TIME_END_MS = 1 << 62
PUT_S, RETRY_S = 10.0, 0.05  # while the send worker is restarted
DISPATCH_TRIES, DISPATCH_S = 400, 0.005
LOOKS_MAX = 4  # a timer is renewed once in days


@attrs.frozen
class TimerChange:
    """A message's request to move or cancel the timers of a topic that have a unique key."""

    topic: str
    key: str
    wait_store: bool
    is_move: bool
    properties: bytes  # which hold the new time


def timer_change_of(request: SendRequest) -> TimerChange | None:
    """The change that a message asks for; None: it asks for none."""
    for name, is_move in ((p.TIMER_CANCEL, False), (p.TIMER_MOVE, True)):
        key = text_property(request.properties, name)
        if key:
            return TimerChange(request.topic, key, request.wait_store, is_move, request.properties)
    return None


def due_of(properties: bytes, now_ms: int) -> int | None:
    """The time (ms) that the properties of a timer ask for; None: none, or no number. The send worker reads the same
    (csrc/workers/send/send_timer.c)."""
    for name in p.TIMER_PROPERTIES:
        text = text_property(properties, name)
        if text is None:
            continue
        try:
            number = parse_long(text)
        except NumberInvalid:
            return None
        if name in (p.TIMER_DELAY_SEC, p.TIMER_DELAY_MS):
            return max(1, now_ms + number * (1000 if name == p.TIMER_DELAY_SEC else 1))
        return max(1, number) if number >= 0 else None
    return None


class TimerChanges:
    """Cancels and moves timers. One per broker."""

    def __init__(self, settings: CurrentSettings, store: Store, fast_path: FastPath) -> None:
        self._settings = settings
        self._store = store
        self._fast_path = fast_path
        self._under_way: set[int] = set()  # numbers of timers: one change of a timer at a time, or _put could be wrong

    async def apply(self, change: TimerChange) -> PutResult:
        """Cancel or move every pending timer with the key. Returns the result for the newest of them.

        Raises:
            RequestRefused: none is pending (QUERY_NOT_FOUND), the time is illegal, or the broker is busy.
        """
        due_ms = self._checked_due_ms(change) if change.is_move else None
        result = None
        for _ in range(LOOKS_MAX):
            await self._dispatched()
            is_renewed = False
            for timer in await self._timers(change):
                changed = await self._end(timer, replacement(change, timer, due_ms))
                is_renewed |= changed.timer_state is TimerState.RENEWED
                result = result or (changed if changed.timer_state is TimerState.PENDING else None)
            if not is_renewed:
                break
        else:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        if result is None:
            remark = f"no timer of topic[{change.topic}] with the unique key [{change.key}] is pending"
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND, f"{remark}: it was delivered, cancelled, or never stored"
            )
        return result

    def _checked_due_ms(self, change: TimerChange) -> int:
        now_ms, delay_max_ms = self._store.clock_ms(), self._settings.rocketpy.timer_max_delay_sec * 1000
        due_ms = due_of(change.properties, now_ms)
        if due_ms is None:
            fault = f"{p.TIMER_MOVE} needs the new time: a whole number in one of {', '.join(p.TIMER_PROPERTIES)}"
        elif due_ms - now_ms > delay_max_ms:
            fault = f"the delay time should not be bigger than the max delay {delay_max_ms}ms (timerMaxDelaySec)"
        else:
            return due_ms
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal, {fault}")

    async def _dispatched(self) -> None:
        """Wait until everything that is stored now is in the index."""
        end = self._store.statistics().published_phy_offset
        for _ in range(DISPATCH_TRIES):
            statistics = self._store.statistics()
            if statistics.published_phy_offset - statistics.dispatch_behind_bytes >= end:
                return
            await trio.sleep(DISPATCH_S)
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, "system busy, the index of messages is behind: try again later")

    async def _timers(self, change: TimerChange) -> list[StoredRecord]:
        """The timers with this key that were ever stored, newest first."""
        query = self._store.message_query(TIMER_TOPIC, change.key, TIMERS_MAX, 0, TIME_END_MS, BODY_SIZE_MAX)
        records = [decode_record(image) for image in (await finished(query)).records]
        return [record for record in reversed(records) if record is not None and _is_meant(change, record)]

    async def _end(self, timer: StoredRecord, message: MessageToPut) -> PutResult:
        """Store what ends the timer, if that is pending: the state of the result says so."""
        number = int(timer.queue_offset)
        if number in self._under_way:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "system busy, this timer is being changed: try again later")
        self._under_way.add(number)
        try:
            result = await self._put(message)
        finally:
            self._under_way.remove(number)
        if result.code == ResponseCode.SYSTEM_BUSY:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        is_cancelled = result.timer_state is TimerState.PENDING and _is_cancellation(message.sys_flag)
        return attrs.evolve(result, queue_offset=number) if is_cancelled else result

    async def _put(self, message: MessageToPut) -> PutResult:
        """Put it, again if the send worker was restarted. A timer that was changed at a second try was changed by the
        first one, whose result was lost."""
        end_s = trio.current_time() + PUT_S
        result = await self._fast_path.put(message)
        while result.code == ResponseCode.SYSTEM_BUSY and trio.current_time() < end_s:
            await trio.sleep(RETRY_S)
            result = await self._fast_path.put(message)
            if result.timer_state is TimerState.CHANGED:
                return PutResult(ResponseCode.SUCCESS)
        return result


def _is_meant(change: TimerChange, record: StoredRecord) -> bool:
    """Return True if the record is a timer of that topic with that key: the index knows hashes, and keys of all
    kinds."""
    names = (record.topic, text_property(record.properties, p.REAL_TOPIC), text_property(record.properties, p.UNIQ_KEY))
    return names == (TIMER_TOPIC, change.topic, change.key) and not _is_cancellation(record.sys_flag)


def _is_cancellation(sys_flag: int) -> bool:
    return sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK


def _place_field(timer: StoredRecord) -> int:
    """Return the field by which a record names the timer that it ends: its log offset plus 1; 0: none
    (csrc/store/log/timer_properties.h)."""
    return timer.phy_offset + 1


def replacement(change: TimerChange, timer: StoredRecord, due_ms: int | None) -> MessageToPut:
    """Return the message that replaces the timer: the same with another time, or a cancellation, which has no unit. It
    names the timer's log offset, so a scan of the log knows that the timer has ended."""
    if due_ms is None:
        cancelled = {p.TIMER_CANCEL: change.key, p.REAL_TOPIC: change.topic}
        return MessageToPut(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=b"",
            properties=p.encode_properties(cancelled).encode(),
            sys_flag=TRANSACTION_ROLLBACK,
            born_timestamp_ms=timer.born_timestamp_ms,
            wait_store=change.wait_store,
            prepared_transaction_offset=_place_field(timer),
            ends_timer=int(timer.queue_offset),
        )
    return MessageToPut(
        topic=TIMER_TOPIC,
        queue_id=0,
        body=timer.body,
        properties=with_values(timer.properties, **{p.TIMER_OUT_MS: str(due_ms)}),
        message_flag=timer.flag,
        sys_flag=timer.sys_flag,
        born_timestamp_ms=timer.born_timestamp_ms,
        born_host=timer.born_host,
        reconsume_times=timer.reconsume_times,
        wait_store=change.wait_store,
        prepared_transaction_offset=_place_field(timer),
        ends_timer=int(timer.queue_offset),
    )
