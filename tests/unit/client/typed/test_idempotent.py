"""Handlers that work once: what is seen is skipped, what failed is not, and the store stays within its bounds."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import START_FIRST, ConsumeResult, ReceivedMessage
from rocketpy.client.typed import SqliteSeenIds, TypedTopic, idempotent, once, sqlite_ids
from tests.support import loops
from tests.support.clients import message, push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.push_consumers import Seen, store


@pytest.fixture
def ids(tmp_path: Path) -> Iterator[SqliteSeenIds]:
    with SqliteSeenIds(tmp_path / "seen.db") as opened:
        yield opened


def call(handler: Any, *arguments: Any) -> Any:
    """Call a handler as a consumer does."""

    async def main() -> Any:
        result = handler(*arguments)
        return await result if hasattr(result, "__await__") else result

    return loops.run(main)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_message_that_came_again_is_skipped(kind: str, ids: SqliteSeenIds) -> None:
    handled: list[bytes] = []
    results: list[Any] = [ValueError("boom"), ConsumeResult.retry(), None]

    def work(message: ReceivedMessage) -> ConsumeResult | None:
        handled.append(message.body)
        result = results.pop(0) if results else None
        if isinstance(result, Exception):
            raise result
        return result

    async def work_async(message: ReceivedMessage) -> ConsumeResult | None:
        return work(message)

    handler = idempotent(ids)(work_async if kind == "async" else work)
    with pytest.raises(ValueError, match="boom"):
        call(handler, message(0))
    assert call(handler, message(0)) == ConsumeResult.retry()
    for _ in range(3):
        assert call(handler, message(0)) is None
    call(handler, message(1))
    assert len(handled) == 4


@pytest.mark.usefixtures("backend")
def test_duplicates_of_a_producer_are_handled_once(ids: SqliteSeenIds) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        for _ in range(3):
            broker.store("T", 0, b"1", b"UNIQ_KEY\x01same")
        store(broker, b"2")
        seen = Seen()
        async with push_consumer(cluster, idempotent(ids)(seen), start=START_FIRST, concurrency=1):
            while broker.offsets.get(("cg", "T", 0)) != 4:
                await aio.sleep(1)
        assert seen.bodies == [b"1", b"2"]

    run(scenario)


def test_other_keys_and_typed_handlers(ids: SqliteSeenIds) -> None:
    got: list[Any] = []

    @idempotent(ids, key=lambda message: message.keys[0])
    def handle(value: Any, message: ReceivedMessage) -> None:
        got.append(value)

    handler: Any = TypedTopic[Any]("T").handler(handle)
    for offset, body in enumerate((b"1", b"2")):
        handler(message(offset, body, properties={"KEYS": "order-7"}))
    assert got == [1]


def test_the_effect_and_the_mark_are_one_transaction(ids: SqliteSeenIds, tmp_path: Path) -> None:
    with ids.transaction("schema") as database:
        assert database is not None
        database.execute("CREATE TABLE booked (number INTEGER)")
    results: list[Any] = [ValueError("after the effect"), ConsumeResult.retry(3), None]

    @once(ids)
    def book(database: sqlite3.Connection, message: ReceivedMessage) -> ConsumeResult | None:
        database.execute("INSERT INTO booked VALUES (7)")
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    def booked() -> int:
        with sqlite3.connect(tmp_path / "seen.db") as other:
            count = other.execute("SELECT count(*) FROM booked").fetchone()[0]
        other.close()
        return int(count)

    with pytest.raises(ValueError, match="after the effect"):
        book(message(0))
    assert (booked(), ids.has("id-0")) == (0, False)
    assert book(message(0)) == ConsumeResult.retry(3)
    assert (booked(), ids.has("id-0")) == (0, False)
    assert book(message(0)) is None and book(message(0)) is None
    assert (booked(), ids.has("id-0"), results) == (1, True, [])


def test_a_commit_that_fails_is_rolled_back(ids: SqliteSeenIds) -> None:
    """Fault: The transaction stayed open, and every later message failed with it."""
    with ids.transaction("schema") as database:
        assert database is not None
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.execute("CREATE TABLE paid (number REFERENCES orders DEFERRABLE INITIALLY DEFERRED)")
    database.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError), ids.transaction("a"):
        database.execute("INSERT INTO paid VALUES (7)")
    ids.add("b")
    assert (ids.has("a"), ids.has("b"), database.in_transaction) == (False, True, False)


def test_the_error_that_ended_a_transaction_is_the_one_that_is_raised(ids: SqliteSeenIds) -> None:
    """SQLite itself rolls back at a full disk, say; here the handler did."""
    with pytest.raises(ValueError, match="full"), ids.transaction("a") as database:
        assert database is not None
        database.rollback()
        raise ValueError("full")
    assert not ids.has("a")


def test_two_threads_with_one_message_run_its_handler_once(ids: SqliteSeenIds) -> None:
    calls: list[int] = []
    both = threading.Barrier(2)

    @once(ids)
    def work(database: sqlite3.Connection, message: ReceivedMessage) -> None:
        calls.append(1)

    def consume() -> None:
        both.wait()
        work(message(0))

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_a_plain_handler_may_return_what_the_consumer_awaits(ids: SqliteSeenIds) -> None:
    """Fault: Such a message was never marked; and `once` had rolled back before the handler ran."""
    ran: list[int] = []

    async def bill(message: ReceivedMessage, result: ConsumeResult | None = None) -> ConsumeResult | None:
        ran.append(message.queue_offset)
        return result

    for result in (ConsumeResult.retry(), None, None):
        assert call(idempotent(ids)(lambda message: bill(message, result)), message(0)) == result  # noqa: B023
    assert ran == [0, 0]
    unawaited = bill(message(1))
    with pytest.raises(TypeError, match="plain function"):
        once(ids)(lambda database, message: unawaited)(message(1))
    unawaited.close()
    assert (ran, ids.has("id-1")) == ([0, 0], False)


def test_once_refuses_async_handlers(ids: SqliteSeenIds) -> None:
    with pytest.raises(TypeError, match="takes a plain function"):

        @once(ids)
        async def work(database: sqlite3.Connection, message: ReceivedMessage) -> None: ...


def test_ids_outlive_the_process_and_groups_have_their_own(tmp_path: Path) -> None:
    with SqliteSeenIds(tmp_path / "seen.db", "billing") as billing:
        billing.add("1")
    with SqliteSeenIds(tmp_path / "seen.db", "billing") as again, SqliteSeenIds(tmp_path / "seen.db", "stock") as stock:
        again.add("1")
        assert again.has("1") and not stock.has("1")


def test_a_file_that_is_no_database_is_refused_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    path.write_text("no database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteSeenIds(path)
    assert not any(Path(entry.path).resolve() == path for entry in os.scandir("/proc/self/fd"))


def test_ids_are_bounded_by_age_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_ids, "TRIM_EVERY", 1)
    now_s = [0.0]
    with SqliteSeenIds(":memory:", max_age=10, max_count=3, now_s=lambda: now_s[0]) as ids:
        for number in range(5):
            now_s[0] = number
            ids.add(str(number))
        assert [ids.has(str(number)) for number in range(5)] == [False, False, True, True, True]
        now_s[0] = 13.5
        assert not ids.has("3") and ids.has("4")
        ids.add("3")
        assert ids.has("3")
        assert ids._database.execute("SELECT count(*) FROM rocketpy_seen").fetchone() == (2,)
