"""Due messages of a level are delivered by the send worker, many at once; what needs a decision, by the manager."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rocketpy.broker.delays import schedule
from rocketpy.broker.delays.earlier_deliveries import EarlierDeliveries
from rocketpy.remoting.fast_path import Delivered, NotDelivered
from tests.support.slow_path import NOW_MS, SlowPathRig
from tests.unit.broker.delays.test_schedule import LEVEL, SCHEDULE, delayed, deliver

ALL = None
UNUSUAL, NOT_IN_MEMORY = NotDelivered.UNUSUAL, NotDelivered.NOT_IN_MEMORY
GROUP = f"{SCHEDULE}@SCHEDULE_CONSUMER"


def rig_of(tmp_path: Path, messages: int, *answers: tuple[int, NotDelivered | None]) -> SlowPathRig:
    rig = SlowPathRig(tmp_path)
    delayed(rig, *[NOW_MS] * messages)
    rig.fast_path.delivered = [Delivered(*answer) for answer in answers]
    return rig


def asked(rig: SlowPathRig) -> list[tuple[int, list[int]]]:
    """(offset of the first, positions in the log) of each row that the send worker was to deliver."""
    assert {due.level for due in rig.fast_path.due} <= {LEVEL}
    return [(due.queue_offset, [at for at, _ in due.places]) for due in rig.fast_path.due]


def progress(rig: SlowPathRig) -> dict[str, dict[int, int]]:
    document: dict[str, dict[int, int]] = rig.services.schedule.document()
    return document


def test_all_that_is_due_is_delivered_at_once_and_counted(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, 3, (3, ALL))
    assert deliver(rig) is True
    assert asked(rig) == [(0, [1000, 1001, 1002])] and rig.fast_path.puts == []
    assert progress(rig) == {"offsetTable": {LEVEL: 3}}
    for name, value in (("GROUP_GET_NUMS", 3), ("GROUP_GET_SIZE", 300)):
        counted = rig.services.stats.item(name, GROUP)
        assert counted is not None and counted.value == value


def test_what_is_not_due_is_not_asked_for(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS)  # the last one waits for the one before it
    rig.fast_path.delivered = [Delivered(2, ALL)]
    assert deliver(rig) is False
    assert asked(rig) == [(0, [1000, 1001])] and progress(rig) == {"offsetTable": {LEVEL: 2}}


def test_the_manager_delivers_the_one_that_stops_and_the_send_worker_those_after_it(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, 4, (1, UNUSUAL), (2, ALL))
    assert deliver(rig) is True
    assert asked(rig) == [(0, [1000, 1001, 1002, 1003]), (2, [1002, 1003])]
    assert [put.reconsume_times for put in rig.fast_path.puts] == [1]
    assert progress(rig) == {"offsetTable": {LEVEL: 4}}


def test_what_cannot_be_stored_now_waits_where_it_is(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, 3, (1, UNUSUAL))
    rig.fast_path.put_code = 14
    assert deliver(rig) is False
    assert progress(rig) == {"offsetTable": {LEVEL: 1}}
    rig.fast_path.put_code = 0
    rig.fast_path.delivered = [Delivered(2, ALL)]
    assert deliver(rig) is True and asked(rig)[-1] == (1, [1001, 1002])


def test_records_that_are_not_in_memory_are_read_once_and_tried_again(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, 3, (1, NOT_IN_MEMORY), (1, NOT_IN_MEMORY))
    read: list[int] = []
    look = rig.store.look_message_by_offset
    rig.store.look_message_by_offset = lambda at: read.append(at) or look(at)  # type: ignore[method-assign]
    assert deliver(rig) is True
    assert asked(rig)[:2] == [(0, [1000, 1001, 1002]), (1, [1001, 1002])]
    assert read == [1001, 1002, 1002], "both at once, and the last by its own delivery"
    assert [put.reconsume_times for put in rig.fast_path.puts] == [2]
    assert progress(rig) == {"offsetTable": {LEVEL: 3}}


def test_no_more_is_read_from_the_disk_than_is_delivered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 records of 4 MiB would push everything else out of memory."""
    monkeypatch.setattr(schedule, "BYTES_PER_DELIVERY", 250)
    rig = rig_of(tmp_path, 5, (0, NOT_IN_MEMORY), (2, ALL), (0, NOT_IN_MEMORY), (2, ALL), (1, ALL))
    read: list[int] = []
    rig.store.look_message_by_offset = read.append  # type: ignore[assignment,method-assign]
    assert deliver(rig) is True
    assert read == [1000, 1001, 1002, 1003] and rig.fast_path.puts == []


def test_a_manager_that_stops_begins_no_more_deliveries(tmp_path: Path) -> None:
    """It leaves when no put is under way: with a backlog of due messages it would never."""
    rig = rig_of(tmp_path, 5, (2, UNUSUAL))
    advance = rig.services.schedule._advance

    def stop_after_two(level: int, offset: int) -> None:
        advance(level, offset)
        if offset == 2:
            rig.services.schedule.finish()

    rig.services.schedule._advance = stop_after_two  # type: ignore[method-assign]
    assert deliver(rig) is False and progress(rig) == {"offsetTable": {LEVEL: 3}}
    assert deliver(rig) is False and len(asked(rig)) == 1


def test_after_many_deliveries_the_progress_is_saved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search after the death of the whole broker finds only so many."""
    monkeypatch.setattr(schedule, "SAVE_AFTER", 3)
    rig = rig_of(tmp_path, 3, (3, ALL))
    service = rig.services.schedule

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.run)
            with trio.fail_after(60):
                while not service.file.path.exists():  # noqa: ASYNC110 - a thread writes it
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.05))


def test_large_messages_are_delivered_in_several_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "BYTES_PER_DELIVERY", 250)
    rig = rig_of(tmp_path, 5, (2, ALL), (2, ALL), (1, ALL))
    assert deliver(rig) is True
    assert asked(rig) == [(0, [1000, 1001]), (2, [1002, 1003]), (4, [1004])]
    monkeypatch.setattr(schedule, "BYTES_PER_DELIVERY", 10)
    rig = rig_of(tmp_path / "single", 2, (1, ALL), (1, ALL))
    assert deliver(rig) is True and asked(rig) == [(0, [1000]), (1, [1001])]


@pytest.mark.parametrize(("position", "size"), [(-1, 100), (1000, -5)])
def test_a_damaged_unit_stops_no_level(tmp_path: Path, position: int, size: int) -> None:
    rig = rig_of(tmp_path, 2)
    unit, stored_ms = rig.store.queues[SCHEDULE, LEVEL - 1][0]
    rig.store.queues[SCHEDULE, LEVEL - 1][0] = (attrs.evolve(unit, phy_offset=position, size=size), stored_ms)
    assert deliver(rig) is True
    assert rig.fast_path.due[0].places[0] == (max(0, position), max(0, size))
    assert progress(rig) == {"offsetTable": {LEVEL: 2}}


def test_while_earlier_deliveries_are_looked_for_each_message_is_a_put(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, 2, (1, ALL))
    rig.services.schedule._earlier = EarlierDeliveries(rig.store, [LEVEL], 0)
    assert deliver(rig) is True
    assert len(rig.fast_path.puts) == 1 and asked(rig) == [(1, [1001])], "the first one was not found: search over"
