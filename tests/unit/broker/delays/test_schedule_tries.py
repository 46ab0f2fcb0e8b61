"""Delayed delivery when something does not work at once: tries, pauses, what is skipped, and what a slave follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.delays.schedule import RETRY_S, TRIES_MAX
from rocketpy.message.names import TRANS_HALF_TOPIC
from rocketpy.remoting.bodies.offset import LogMark
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import NOW_MS, SlowPathRig, record
from tests.unit.broker.delays.test_schedule import DEAD_LETTERS, LEVEL, SCHEDULE, delayed, deliver


def run_beside(rig: SlowPathRig, act: Callable[[], Awaitable[None]]) -> None:
    """Run the service until `act` returns."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            await act()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_slow_disk_does_not_begin_a_second_delivery(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    rig.fast_path.put_gate = trio.Event()

    async def act() -> None:
        await trio.sleep(5)
        assert len(rig.fast_path.puts) == 1
        assert rig.fast_path.put_gate is not None
        rig.fast_path.put_gate.set()
        await trio.sleep(1)
        assert [put.reconsume_times for put in rig.fast_path.puts] == [0, 1]

    run_beside(rig, act)


def test_a_message_that_cannot_be_stored_now_is_tried_once_a_second(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS)
    rig.fast_path.put_code = 14

    async def act() -> None:
        await trio.sleep(10.5)
        assert 9 <= len(rig.fast_path.puts) <= 10 / RETRY_S
        counted = rig.services.stats.item("QUEUE_GET_NUMS", f"{SCHEDULE}@{LEVEL - 1}@SCHEDULE_CONSUMER")
        assert counted is None or counted.value == 0, "statistics count what was delivered"

    run_beside(rig, act)


@pytest.mark.parametrize("failures", [1, TRIES_MAX - 1, TRIES_MAX])
def test_a_message_is_skipped_after_some_unexpected_errors_only(
    tmp_path: Path, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    look, left = rig.store.look_message_by_offset, failures

    def failing(phy_offset: int) -> bytes | None:
        nonlocal left
        if phy_offset == 1000 and left:
            left -= 1
            raise RuntimeError("a bug")
        return look(phy_offset)

    rig.store.look_message_by_offset = failing  # type: ignore[method-assign]  # the fault of this test
    for _ in range(min(failures, TRIES_MAX - 1)):
        with pytest.raises(RuntimeError):
            deliver(rig)
    assert deliver(rig) is True
    is_skipped = failures == TRIES_MAX
    assert [put.reconsume_times for put in rig.fast_path.puts] == ([1] if is_skipped else [0, 1])
    assert (f"skipped the delayed message at log offset 1000 after {TRIES_MAX} failures" in caplog.text) is is_skipped


@pytest.mark.parametrize(
    "properties",
    [
        b"REAL_QID\x011",
        b"REAL_TOPIC\x01T\x02REAL_QID\x01-1",
        b"REAL_TOPIC\x01T\x02REAL_QID\x01x",
        b"REAL_TOPIC\x01%s\x02REAL_QID\x010" % TRANS_HALF_TOPIC.encode(),
    ],
)
def test_an_impossible_address_is_a_dead_letter(tmp_path: Path, properties: bytes) -> None:
    """A client can name the topic of half messages, where its message would be asked about."""
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS)
    rig.services.topics.update(TopicConfig(topic_name=TRANS_HALF_TOPIC, read_queue_nums=1, write_queue_nums=1))
    rig.store.records[1000] = record(1000, topic=SCHEDULE, properties=properties)
    assert deliver(rig) is True
    assert [put.topic for put in rig.fast_path.puts] == [DEAD_LETTERS]


def test_messages_that_expire_meanwhile_are_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, *[NOW_MS] * 4)

    def clean(*_: object) -> list[object]:
        rig.store.low[SCHEDULE, LEVEL - 1] = 2
        return []

    look, rig.store.consume_queue_units = rig.store.consume_queue_units, clean  # type: ignore[assignment]
    assert deliver(rig) is True and caplog.messages == []
    rig.store.consume_queue_units = look  # type: ignore[method-assign]
    deliver(rig)
    assert [put.reconsume_times for put in rig.fast_path.puts] == [2, 3]


def test_a_clock_that_is_slow_at_the_start_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.slowed_from_ms = NOW_MS

    async def act() -> None:
        await trio.sleep(2)
        assert caplog.text.count("system clock was set back") == 1

    run_beside(rig, act)


def test_a_slave_saves_the_progress_of_its_master(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    schedule = rig.services.schedule
    schedule.follow(LogMark(offset_table={1: 90, LEVEL: 2}))
    assert schedule.document() == {"offsetTable": {1: 90, LEVEL: 2}} and schedule.file.is_dirty
    trio.run(schedule.file.save)
    schedule.follow(LogMark(offset_table={1: 90, LEVEL: 2}))
    assert not schedule.file.is_dirty, "nothing has changed"
