"""A restarted process reads from its journal what the previous one wrote, wherever that died."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from rocketpy.broker.memory import journal as module
from rocketpy.broker.memory.journal import LAYOUT, Found, Journal, format_memory, owner_of

HALF = 4096
SIZE = 64 + 2 * HALF


class Death(BaseException):
    """kill -9."""


def fresh() -> memoryview:
    memory = memoryview(bytearray(SIZE))
    format_memory(memory)
    return memory


def opened(memory: memoryview, salts: Iterator[int] | None = None) -> Journal:
    salts = salts or itertools.count(1)
    return Journal("a test", memory, lambda: next(salts))


def left(memory: memoryview) -> dict[bytes, bytes]:
    journal = opened(memoryview(bytearray(memory)), itertools.count(10_000))
    assert journal.found is Found.WHOLE
    return dict(journal.entries)


@pytest.fixture
def die_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[float]]:
    """Stores stop after so many bytes: copies in the middle, cells before or after. Returns the bytes that are left."""
    store_cell, store_bytes = module._store_cell, module._store_bytes
    rest = [float("inf")]

    def dying_cell(cells: memoryview, index: int, value: int) -> None:
        if rest[0] < 1:
            raise Death
        rest[0] -= 1
        store_cell(cells, index, value)

    def dying_bytes(memory: memoryview, start: int, data: bytes) -> None:
        fitting = int(min(len(data), rest[0]))
        rest[0] -= fitting
        store_bytes(memory, start, data[:fitting])
        if fitting < len(data):
            raise Death

    monkeypatch.setattr(module, "_store_cell", dying_cell)
    monkeypatch.setattr(module, "_store_bytes", dying_bytes)

    def arm(bytes_: float) -> list[float]:
        rest[0] = bytes_
        return rest

    return arm


Operation = tuple[bytes, bytes | None]


def operations(seed: int, count: int) -> list[Operation]:
    choose = random.Random(seed)
    keys = [b"key-%d" % n for n in range(12)]
    return [
        (choose.choice(keys), None if choose.random() < 0.2 else choose.randbytes(choose.randrange(0, 90)))
        for _ in range(count)
    ]


def apply(journal: Journal, table: dict[bytes, bytes], operation: Operation) -> None:
    key, value = operation
    if value is None:
        journal.remove(key)
        table.pop(key, None)
    else:
        journal.put(key, value)
        table[key] = value


def run(memory: memoryview, todo: list[Operation]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The table before and after the operation in which the process died (the same one if it did not)."""
    journal, table = opened(memory), {}
    before: dict[bytes, bytes] = {}
    try:
        for operation in todo:
            before = dict(table)
            apply(journal, table, operation)
    except Death:
        key, value = operation
        return before, {name: v for name, v in {**before, key: value}.items() if v is not None}
    return table, table


@pytest.mark.parametrize("seed", range(3))
def test_a_death_at_any_byte_leaves_the_change_whole_or_not_at_all(
    seed: int, die_after: Callable[[float], list[float]]
) -> None:
    todo = operations(seed, 150)
    start = 1_000_000.0
    rest = die_after(start)
    run(fresh(), todo)
    total = int(start - rest[0])
    assert total > 2 * HALF, "both halves were used"
    choose = random.Random(seed)
    copying = set(range(HALF - 900, HALF + 600))  # around the first change of halves: every byte
    for point in sorted(copying | set(choose.sample(range(total), 500))):
        memory = fresh()
        die_after(point)
        before, after = run(memory, todo)
        die_after(float("inf"))
        found = left(memory)
        assert found in (before, after), f"seed {seed}, death after {point} bytes"


@pytest.mark.parametrize("seed", range(3))
def test_restarted_managers_go_on_from_wherever_the_last_one_died(
    seed: int, die_after: Callable[[float], list[float]]
) -> None:
    choose = random.Random(seed)
    memory, table, salts = fresh(), dict[bytes, bytes](), itertools.count(1)
    for life in range(120):
        die_after(float("inf"))
        journal = opened(memory, salts)
        assert journal.found is Found.WHOLE and journal.entries == table, f"seed {seed}, life {life}"
        die_after(choose.randrange(3000))
        for key, value in operations(seed * 1000 + life, 40):
            wanted = {name: v for name, v in {**table, key: value}.items() if v is not None}
            try:
                apply(journal, dict(table), (key, value))
            except Death:
                found = left_after_death(die_after, memory)
                assert found in (table, wanted)
                table = found
                break
            table = wanted


def left_after_death(die_after: Callable[[float], list[float]], memory: memoryview) -> dict[bytes, bytes]:
    die_after(float("inf"))
    return left(memory)


def test_a_full_table_is_lost_as_a_whole_and_comes_back_when_it_has_shrunk(caplog: pytest.LogCaptureFixture) -> None:
    memory = fresh()
    journal = opened(memory)
    for n in range(40):
        journal.put(b"%d" % n, bytes(100))
    assert journal.is_lost and "raise sharedMemoryMax" in caplog.text
    assert opened(memoryview(bytearray(memory))).found is Found.LOST, "never a part of a table"
    for n in range(40):
        journal.remove(b"%d" % n) if n % 4 else journal.put(b"%d" % n, b"kept")
    for n in range(8):
        journal.put(b"new %d" % n, b"")
    assert not journal.is_lost
    assert left(memory) == journal.entries and len(journal.entries) == 18


def test_a_record_larger_than_the_rest_of_a_half_changes_halves_at_once() -> None:
    memory = fresh()
    journal = opened(memory)
    for n in range(60):
        journal.put(b"large", bytes([n]) * 2500)
        journal.put(b"small", b"%d" % n)
        assert left(memory) == {b"large": bytes([n]) * 2500, b"small": b"%d" % n}


def test_many_small_changes_copy_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fresh()
    journal = opened(memory)
    for n in range(20):
        journal.put(b"stays %d" % n, bytes(80))
    written, store = [0], module._store_bytes

    def counting(memory: memoryview, start: int, data: bytes) -> None:
        written[0] += len(data)
        store(memory, start, data)

    monkeypatch.setattr(module, "_store_bytes", counting)
    most = 0
    for n in range(2000):
        written[0] = 0
        journal.put(b"k", b"%d" % n)
        most = max(most, written[0])
    assert most < 800, "an append copies at most some sixteen times its size"
    assert left(memory) == journal.entries


def test_saved_entries_are_dropped_and_those_put_meanwhile_stay() -> None:
    memory = fresh()
    journal = opened(memory)
    journal.put(b"a", b"1")
    journal.put(b"b", b"1")
    journal.begin_save()
    journal.put(b"b", b"2")
    assert journal.entries == {b"a": b"1", b"b": b"2"}
    journal.begin_save()  # the first one failed
    journal.put(b"c", b"3")
    journal.end_save()
    assert journal.entries == {b"b": b"2", b"c": b"3"}
    for n in range(400):
        journal.put(b"c", b"%d" % n)
    assert left(memory) == {b"b": b"2", b"c": b"399"}, "what was saved is not copied"


@pytest.mark.parametrize("cell", [0, 1])
def test_another_magic_version_or_size_is_not_read(cell: int) -> None:
    memory = fresh()
    opened(memory).put(b"a", b"1")
    cells = memory[:64].cast("Q")
    cells[cell] = (LAYOUT + 1) << 32 | HALF if cell else 1
    journal = opened(memory)
    assert journal.found is Found.LOST and journal.entries == {}
    journal.put(b"b", b"2")
    assert left(memory) == {b"b": b"2"}, "and it is usable again"


def test_any_damaged_byte_loses_the_table_or_nothing() -> None:
    memory = fresh()
    journal = opened(memory)
    for n in range(30):
        journal.put(b"key %d" % (n % 7), b"value %d" % n)
    end = 64 + 32 + struct.unpack_from("=Q", memory, 64 + 24)[0]
    for place in range(64, end):
        damaged = memoryview(bytearray(memory))
        damaged[place] ^= 0x10
        again = opened(damaged)
        assert again.found is Found.LOST and again.entries == {}, f"byte {place}"


def test_the_owner_is_kept() -> None:
    memory = memoryview(bytearray(SIZE))
    format_memory(memory, owner=b"0123456789abcdef")
    opened(memory)
    assert owner_of(memory) == b"0123456789abcdef"
