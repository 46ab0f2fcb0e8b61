"""The fast path as a broker's slow path sees it, played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio

from rocketpy.remoting.fast_path import (
    Delivered,
    Delivery,
    DueMessages,
    EndTransaction,
    MessageToPut,
    NotDelivered,
    PutResult,
)

STORED_MS = 1_700_000_000_000


class FakeHalfStates:
    """States of half messages without shared memory: they are open unless the test, or an end, says otherwise."""

    def __init__(self) -> None:
        self.base = 0
        self.ended: set[int] = set()

    def move_base(self, base: int) -> None:
        self.base = max(base, self.base)

    def is_open(self, offset: int) -> bool:
        return offset >= self.base and offset not in self.ended

    def next_open(self, start: int, end: int) -> int:
        return next((offset for offset in range(start, end) if self.is_open(offset)), end)

    def count_open(self, start: int, end: int) -> int:
        return sum(self.is_open(offset) for offset in range(start, end))


@attrs.frozen(eq=False)
class FakePut:
    fast_path: FakeFastPath
    result: PutResult

    async def wait(self) -> PutResult:
        await trio.lowlevel.checkpoint()
        if self.fast_path.put_gate is not None:
            await self.fast_path.put_gate.wait()
        return self.result


class FakeFastPath:
    """Remembers every call, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.puts: list[MessageToPut] = []
        self.put_code = 0
        self.is_fenced = False  # what is answered 14 is stored all the same
        self.put_codes: dict[str, int] = {}  # of topics that differ
        self.put_gate: trio.Event | None = None
        self.is_store_away = False
        self.recent_deletions: dict[str, int] = {}
        self.last_deliveries: dict[int, Delivery] = {}
        self.half_states = FakeHalfStates()
        self.ends: list[EndTransaction] = []
        self.end_code = 0
        self.due: list[DueMessages] = []
        self.delivered: list[Delivered] = []  # the next answers to `deliver`
        self.end = 4096  # of the log

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in {
            "topic_changed",
            "topic_removed",
            "delete_messages",
            "group_changed",
            "group_removed",
            "subscription_changed",
            "filter_changed",
            "filter_removed",
            "subscription_removed",
            "broker_changed",
            "store_settings_changed",
            "tables_end",
            "resend",
            "complete",
            "repull",
        }:
            raise AttributeError(name)

        def record(*args: Any, **kwargs: Any) -> None:
            self.calls.append((name, (*args, kwargs) if kwargs else args[0] if len(args) == 1 else args))

        return record

    def delete_queues(self, topic: str, below: int | None = None) -> trio.Event:
        self.calls.append(("delete_queues", topic if below is None else (topic, below)))
        done = trio.Event()
        if not self.is_store_away:
            done.set()
        return done

    async def position(self) -> int:
        return self.end

    async def clean_expired_queues(self) -> None:
        self.calls.append(("clean_expired_queues", ()))
        await trio.lowlevel.checkpoint()

    async def deliver(self, due: DueMessages) -> Delivered:
        """As the test says; without that nothing is delivered together, and each message is a put."""
        self.due.append(due)
        await trio.lowlevel.checkpoint()
        return self.delivered.pop(0) if self.delivered else Delivered(0, NotDelivered.UNUSUAL)

    async def end_transaction(self, end: EndTransaction) -> PutResult:
        self.ends.append(end)
        await trio.lowlevel.checkpoint()
        if self.end_code == 0:
            self.half_states.ended.add(end.queue_offset)
        return PutResult(self.end_code)

    def last_delivery(self, level: int) -> Delivery | None:
        return self.last_deliveries.get(level)

    def begin_put(self, message: MessageToPut) -> FakePut:
        self.puts.append(message)
        code = self.put_codes.get(message.topic, self.put_code)
        result = PutResult(
            code=code,
            phy_offset=900,
            queue_id=message.queue_id,
            queue_offset=len(self.puts) + 6,
            size=0 if code == 14 and not self.is_fenced else 100,
            store_timestamp_ms=STORED_MS,
            message_id="7F00000100002A9F0000000000000384",
        )
        return FakePut(self, result)

    async def put(self, message: MessageToPut) -> PutResult:
        return await self.begin_put(message).wait()

    def named(self, name: str) -> list[Any]:
        return [args for call, args in self.calls if call == name]
