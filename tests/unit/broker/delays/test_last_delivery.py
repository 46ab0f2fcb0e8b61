"""A slave that is promoted before it has any progress of delay levels continues after the last delivery in its log."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.delays import last_delivery
from rocketpy.broker.delays.last_delivery import LastDelivery
from rocketpy.errors import StoreError
from rocketpy.remoting.bodies.offset import LogMark
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.copied_tables import Pair
from tests.support.fake_store import Unit
from tests.support.slow_path import NOW_MS, SlowPathRig, record

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVEL = 3
COPIES = 100_000  # log offset of the first copy


def properties_of(number: int, level: int = LEVEL) -> bytes:
    return f"DELAY\x01{level}\x02REAL_TOPIC\x01T\x02UNIQ_KEY\x01k{number}\x02REAL_QID\x011".encode()


def fill(rig: SlowPathRig, delayed: int, copies: list[int], level: int = LEVEL) -> None:
    """`delayed` messages, all due, and copies of those with these numbers."""
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    rig.store.behind_bytes = 0
    for number in range(delayed):
        rig.store.records[1000 + number] = record(1000 + number, topic=SCHEDULE, properties=properties_of(number))
    for number in copies:
        at = COPIES + number
        rig.store.records[at] = record(at, properties=properties_of(number, level))
    rig.store.queues[SCHEDULE, LEVEL - 1] = [(Unit(1000 + number, 100, NOW_MS), NOW_MS) for number in range(delayed)]
    rig.store.queues["T", 1] = [(Unit(COPIES + number, 100, 0), NOW_MS) for number in copies]


def after(rig: SlowPathRig, low: int, high: int) -> int:
    return trio.run(LastDelivery(rig.store, LEVEL, 10_000, float("inf")).after, low, high)


@pytest.mark.parametrize("delivered", [0, 1, 2, 99, 250, 299, 300])
def test_the_level_continues_after_its_last_copy(tmp_path: Path, delivered: int) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, 300, list(range(delivered)))
    assert after(rig, 0, 300) == delivered


@pytest.mark.parametrize("missing", range(43))
def test_a_message_without_a_copy_does_not_hide_the_ones_around_it(tmp_path: Path, missing: int) -> None:
    """It became a dead letter, for example."""
    rig = SlowPathRig(tmp_path)
    fill(rig, 90, [number for number in range(45) if number != missing])
    assert after(rig, 0, 90) == 45


def test_a_message_that_is_only_overdue_is_not_skipped(tmp_path: Path) -> None:
    """The master was down while it became due, and its log went on before it was delivered."""
    rig = SlowPathRig(tmp_path)
    fill(rig, 10, [0, 1, 2])
    rig.store.records[200_000] = record(200_000)
    rig.store.queues["T", 1].append((Unit(200_000, 100, 0), NOW_MS + 3_600_000))
    assert after(rig, 0, 10) == 3


@pytest.mark.parametrize(("numbers", "delivered"), [((0, 1, 0), 1), ((0, 1, 0, 1), 2), ((0, 1, 2, 3, 0), 3)])
def test_one_copy_does_not_answer_for_two_messages(tmp_path: Path, numbers: tuple[int, ...], delivered: int) -> None:
    """An object that is sent twice within a millisecond has the same identity; what lies between was not delivered.
    Fault: One copy answered for two delayed messages, and messages between them were skipped."""
    rig = SlowPathRig(tmp_path)
    fill(rig, len(numbers), list(range(delivered)))
    for place, number in enumerate(numbers):
        rig.store.records[1000 + place] = record(1000 + place, topic=SCHEDULE, properties=properties_of(number))
    assert after(rig, 0, len(numbers)) <= delivered


def test_a_level_that_cannot_be_searched_does_not_stop_the_others(tmp_path: Path) -> None:
    """Fault: An unreadable record ended the search of last deliveries for all levels."""
    rig = SlowPathRig(tmp_path)
    fill(rig, 10, [])
    read = rig.store.look_message_by_offset

    def failing(phy_offset: int, size_max: int | None = None) -> bytes | None:
        if searching:
            raise StoreError("input/output error")
        return read(phy_offset, size_max)

    searching = True
    rig.store.look_message_by_offset = failing  # type: ignore[method-assign]
    schedule = rig.services.schedule
    schedule._unknown = {LEVEL}

    async def run() -> None:
        nonlocal searching
        await schedule._find_progress()
        searching = False
        with trio.move_on_after(5):
            await schedule.run()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(rig.fast_path.puts) == 10


def test_a_copy_of_another_level_proves_nothing(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, 10, [0, 1, 2], level=LEVEL + 1)
    assert after(rig, 0, 10) == 0


def test_records_that_cannot_be_read_prove_nothing(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, 10, [0, 1, 2])
    rig.store.records[1001] = b"\x00\x00\x00\x10damaged record"
    del rig.store.records[1002], rig.store.records[COPIES]
    assert after(rig, 0, 10) == 0


def test_the_search_ends_after_its_time(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, 300, list(range(200)))
    assert trio.run(LastDelivery(rig.store, LEVEL, 10_000, float("-inf")).after, 0, 300) == 0


def test_a_long_level_needs_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, 5_000, list(range(400)))
    looks, look = 0, last_delivery.LastDelivery._has_copy

    async def counted(self: LastDelivery, offset: int) -> bool:
        nonlocal looks
        looks += 1
        return await look(self, offset)

    monkeypatch.setattr(last_delivery.LastDelivery, "_has_copy", counted)
    assert after(rig, 0, 5_000) == 400
    assert looks <= 160


def test_a_slave_that_is_promoted_while_it_copies_repeats_nothing(tmp_path: Path) -> None:
    """The master's progress presumes more than the slave's log has, so the slave has taken none of it.
    Fault: A slave promoted while it copied an older log delivered all retained delayed messages again."""
    pair = Pair(tmp_path)
    pair.master.store.end = 10_000_000
    pair.master.services.schedule.follow(LogMark(offset_table={LEVEL: 60}))
    pair.slave.store.end = pair.slave.store.durable = 200_000
    pair.run()
    trio.run(pair.slave.services.schedule.file.save)
    promoted = SlowPathRig(tmp_path / "slave")  # opened again, as master
    promoted.store.end = promoted.store.durable = 200_000
    fill(promoted, 60, list(range(50)))

    async def run() -> None:
        promoted.services.schedule.load()
        with trio.move_on_after(5):
            await promoted.services.schedule.run()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    found = [put.properties.partition(b"UNIQ_KEY\x01")[2] for put in promoted.fast_path.puts]
    keys = [text.partition(b"\x02")[0].decode() for text in found]
    assert keys == [f"k{number}" for number in range(50, 60)]


def test_a_slave_with_progress_keeps_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.master.store.end = pair.slave.store.end = 4096
    pair.master.services.schedule.follow(LogMark(offset_table={LEVEL: 6}))
    pair.run()
    pair.master.store.end = 10_000_000
    pair.master.services.schedule.follow(LogMark(offset_table={LEVEL: 60}))
    pair.run()
    assert pair.slave.services.schedule.document() == {"offsetTable": {LEVEL: 6}}
