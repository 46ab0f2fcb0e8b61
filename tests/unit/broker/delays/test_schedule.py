"""Delayed delivery: what is due and what is not, failures, and the progress file."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.delays.levels import DelayLevels
from rocketpy.broker.delays.schedule import due_time_ms
from rocketpy.errors import ConfigError, StoreError
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.fast_path import Delivery, MessageToPut
from tests.support.fake_fast_path import FakePut
from tests.support.fake_store import Unit
from tests.support.slow_path import NOW_MS, SlowPathRig, record

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVEL = 3  # 10 s


def delayed(rig: SlowPathRig, *due_ms: int, topic: str = "T", queue_id: int = 1) -> None:
    """Messages of level 3 that are due at these times."""
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    entries = []
    for index, due in enumerate(due_ms):
        offset = 1000 + index
        properties = b"DELAY\x013\x02REAL_TOPIC\x01%s\x02REAL_QID\x01%d" % (topic.encode(), queue_id)
        rig.store.records[offset] = record(offset, topic=SCHEDULE, properties=properties, reconsume_times=index)
        entries.append((Unit(offset, 100, due), NOW_MS))
    rig.store.queues[SCHEDULE, LEVEL - 1] = entries


def deliver(rig: SlowPathRig) -> bool:
    return trio.run(rig.services.schedule.deliver_due, LEVEL)


def test_due_messages_are_stored_as_they_were_and_later_ones_wait(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS - 5, NOW_MS, NOW_MS + 1)
    assert deliver(rig) is False
    assert [(m.topic, m.queue_id, m.reconsume_times) for m in rig.fast_path.puts] == [("T", 1, 0), ("T", 1, 1)]
    assert rig.fast_path.puts[0].properties == b"DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x011"
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 2}}
    assert rig.services.schedule.progress() == {LEVEL: (2, 3)}
    rig.clock.advance(1)
    assert deliver(rig) is True
    assert len(rig.fast_path.puts) == 3


def test_after_the_delay_of_a_level_was_lowered_no_message_waits_longer_than_that(tmp_path: Path) -> None:
    """Its unit still has the time of the old table. It was stored at NOW_MS."""
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS + 7_200_000)
    rig.clock.advance(9_999)
    assert deliver(rig) is False and rig.fast_path.puts == []
    rig.clock.advance(1)
    assert deliver(rig) is True and len(rig.fast_path.puts) == 1


def test_messages_from_ahead_of_our_clock_wait_their_delay_from_the_first_look_on(tmp_path: Path) -> None:
    """Another broker wrote them, a day ahead; the second one 500 ms later than the first."""
    rig = SlowPathRig(tmp_path)
    stored = [NOW_MS + 86_400_000, NOW_MS + 86_400_500]
    delayed(rig, *(at + 10_000 for at in stored))
    units = [unit for unit, _ in rig.store.queues[SCHEDULE, LEVEL - 1]]
    rig.store.queues[SCHEDULE, LEVEL - 1] = list(zip(units, stored, strict=True))
    for wait_ms, delivered in ((0, 0), (9_999, 0), (1, 1), (499, 1), (1, 2)):
        rig.clock.advance(wait_ms)
        deliver(rig)
        assert len(rig.fast_path.puts) == delivered


def test_while_the_clock_goes_at_half_speed_a_delay_is_half_as_long_by_it(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.slowed_from_ms = NOW_MS - 1
    delayed(rig, NOW_MS + 10_000)
    rig.clock.advance(4_999)
    assert deliver(rig) is False and rig.fast_path.puts == []
    rig.clock.advance(1)
    assert deliver(rig) is True and len(rig.fast_path.puts) == 1


@pytest.mark.parametrize(
    ("slowed_from", "due"),
    [
        (None, 10_000),
        (-5, 5_000),  # stored when the clock went slower already
        (0, 5_000),
        (4_000, 7_000),  # 4 s at full speed, the other 6 s at half
        (10_000, 10_000),
        (12_000, 10_000),  # it was due before
    ],
)
def test_due_time(slowed_from: int | None, due: int) -> None:
    slowed_from_ms = None if slowed_from is None else NOW_MS + slowed_from
    assert due_time_ms(NOW_MS, NOW_MS + 10_000, 10_000, slowed_from_ms) == NOW_MS + due
    assert due_time_ms(NOW_MS, NOW_MS + 10_000, 30_000, slowed_from_ms) == NOW_MS + due  # the level is longer now


@pytest.mark.parametrize("code", [1, 2, 14])
def test_a_put_that_failed_for_now_is_tried_again(tmp_path: Path, code: int) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    rig.fast_path.put_code = code
    assert deliver(rig) is False and rig.services.schedule.document() == {"offsetTable": {}}
    rig.fast_path.put_code = 0
    deliver(rig)
    assert [m.reconsume_times for m in rig.fast_path.puts] == [0, 0, 1]


DEAD_LETTERS = "%DLQ%SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize("topic", ["gone", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_what_has_no_topic_becomes_a_dead_letter(tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A delayed message whose topic was gone was dropped."""
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, topic=topic)
    deliver(rig)
    (letter,) = rig.fast_path.puts
    assert (letter.topic, letter.queue_id) == (DEAD_LETTERS, 0)
    assert letter.properties == b"DELAY\x013\x02REAL_TOPIC\x01%s\x02REAL_QID\x011" % topic.encode()
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 1}}
    assert DEAD_LETTERS in caplog.text and topic in caplog.text and "1000" in caplog.text
    assert DEAD_LETTERS in (tmp_path / "config" / "topics.json").read_text()  # before it has a message


@pytest.mark.parametrize("number", ["x", "-1", "\u0661", "\u00b2", "9" * 5000])
def test_a_queue_number_of_any_form_holds_nothing_up(tmp_path: Path, number: str) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    properties = b"DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x01%s" % number.encode()
    rig.store.records[1000] = record(1000, topic=SCHEDULE, properties=properties)
    assert deliver(rig) is True
    assert len(rig.fast_path.puts) == 2 and rig.fast_path.puts[1].topic == "T"


@pytest.mark.parametrize("code", [13, 17])
def test_what_is_refused_for_good_becomes_a_dead_letter_and_the_level_goes_on(tmp_path: Path, code: int) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    rig.fast_path.put_codes["T"] = code
    assert deliver(rig) is True
    assert [m.topic for m in rig.fast_path.puts] == ["T", DEAD_LETTERS] * 2
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 2}}


@pytest.mark.parametrize("code", [1, 2, 14, 17])
def test_a_dead_letter_that_is_not_stored_now_is_tried_again(tmp_path: Path, code: int) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, topic="gone")
    rig.fast_path.put_codes[DEAD_LETTERS] = code
    assert deliver(rig) is False and rig.services.schedule.document() == {"offsetTable": {}}
    rig.fast_path.put_codes.clear()
    assert deliver(rig) is True and rig.services.schedule.document() == {"offsetTable": {LEVEL: 1}}


def test_a_dead_letter_that_fits_nowhere_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS)
    rig.fast_path.put_code = 13
    assert deliver(rig) is True and rig.services.schedule.document() == {"offsetTable": {LEVEL: 1}}
    assert [entry.levelname for entry in caplog.records if "1000" in entry.message] == ["ERROR"]


def test_unreadable_records_are_skipped(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS, NOW_MS)
    del rig.store.records[1000]
    rig.store.records[1001] = b"\x01" * 100
    deliver(rig)
    assert [m.reconsume_times for m in rig.fast_path.puts] == [2]


def test_a_topic_that_has_shrunk_still_gets_its_messages(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, queue_id=9)
    deliver(rig)
    assert rig.fast_path.puts[0].queue_id == 1


def test_progress_is_read_within_the_queue_and_written_as_java_does(tmp_path: Path) -> None:
    path = tmp_path / "config" / "delayOffset.json"
    path.parent.mkdir()
    path.write_text('{"offsetTable":{1:7,3:99,18:0,77:5}}')
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS + 5, NOW_MS + 6)
    rig.store.fill(SCHEDULE, 17, 9, low=4)
    rig.broker.load()
    assert rig.services.schedule.document() == {"offsetTable": {1: 0, 3: 2, 18: 4}}
    rig.services.schedule.file.changed()
    trio.run(rig.services.schedule.file.save)
    saved = '{\n\t"epoch":-1,\n\t"marks":[{"epoch":-1,"offsetTable":{1:7,3:99,18:0,77:5},"phyOffset":-1}],\n\t'
    assert path.read_text() == saved + '"offsetTable":{1:0,3:2,18:4\n\t},\n\t"phyOffset":4096\n}'


@pytest.mark.parametrize("seed", range(8))
def test_no_record_holds_its_level_up_whatever_is_in_it(tmp_path: Path, seed: int) -> None:
    """Fault: A damaged delayed message was retried for ever and kept the manager from stopping."""
    worker_messages = pytest.importorskip("rocketpy.reactor.worker_messages", exc_type=ImportError)
    choose = random.Random(seed)
    rig = SlowPathRig(tmp_path)
    delayed(rig, *[NOW_MS] * 60)
    values = (b"T", b"gone", b"\xff\xfe", b"", b"x" * 300, b"\xed\xa0\x80", b"1", b"-1", b"9" * 400)
    for offset in range(1000, 1060):
        names = (b"REAL_TOPIC", b"REAL_QID", b"DELAY", b"KEYS")
        properties = b"\x02".join(choose.choice(names) + b"\x01" + choose.choice(values) for _ in range(5))
        image = bytearray(record(offset, topic=SCHEDULE, properties=properties, reconsume_times=choose.getrandbits(31)))
        for _ in range(choose.choice((0, 0, 3))):
            image[choose.randrange(4, len(image))] = choose.choice((0, 255, choose.getrandbits(8)))
        rig.store.records[offset] = bytes(image)
    begin_put = rig.fast_path.begin_put

    def encode_and_put(message: MessageToPut) -> FakePut:
        worker_messages.encode_put(message, 1, 1)
        return begin_put(message)

    rig.fast_path.begin_put = encode_and_put  # type: ignore[method-assign]  # what the rings take
    for _ in range(60 * 3):
        with contextlib.suppress(OverflowError):
            deliver(rig)
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 60}}


@pytest.mark.parametrize("fault", [OSError("disk"), StoreError("store")])
def test_a_fault_that_may_pass_has_no_message_skipped(tmp_path: Path, fault: Exception) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS)
    look, faults = rig.store.look_message_by_offset, [fault] * 10

    def failing(phy_offset: int) -> bytes | None:
        if faults:
            raise faults.pop()
        return look(phy_offset)

    rig.store.look_message_by_offset = failing  # type: ignore[method-assign]  # the fault of this test
    for _ in range(10):
        with pytest.raises(type(fault)):
            deliver(rig)
    deliver(rig)
    assert len(rig.fast_path.puts) == 1


def test_each_delivery_names_its_delayed_message(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    rig.store.records[1001] = record(1001, topic=SCHEDULE, properties=b"REAL_TOPIC\x01gone")
    deliver(rig)
    assert [(put.topic, put.delivery) for put in rig.fast_path.puts] == [
        ("T", Delivery(LEVEL, 1000, 0)),
        (DEAD_LETTERS, Delivery(LEVEL, 1001, 1)),
    ]
    counted = rig.services.stats.item("QUEUE_GET_NUMS", f"{SCHEDULE}@{LEVEL - 1}@SCHEDULE_CONSUMER")
    assert counted is not None and counted.value == 1, "statistics count what was delivered"


@pytest.mark.parametrize(
    ("last", "begin"),
    [
        (None, 1),
        (Delivery(LEVEL, 1002, 2), 3),
        (Delivery(LEVEL, 1000, 0), 1),  # the file is newer
        (Delivery(LEVEL, 5555, 2), 1),  # another message stands there now: the queue was made anew
        (Delivery(LEVEL, 1009, 9), 1),  # the queue ends before
    ],
)
def test_a_restarted_manager_goes_on_behind_what_was_delivered_since_the_file_was_written(
    tmp_path: Path, last: Delivery | None, begin: int
) -> None:
    path = tmp_path / "config" / "delayOffset.json"
    path.parent.mkdir()
    path.write_text('{"offsetTable":{3:1}}')
    rig = SlowPathRig(tmp_path)
    delayed(rig, *[NOW_MS] * 4)
    if last is not None:
        rig.fast_path.last_deliveries[LEVEL] = last
    rig.broker.load()
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: begin}}
    deliver(rig)
    assert [put.reconsume_times for put in rig.fast_path.puts] == list(range(begin, 4))


def test_the_service_looks_ten_times_a_second(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS + 200)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            await trio.sleep(1.05)
            assert rig.fast_path.puts == []
            rig.clock.advance(200)
            await trio.sleep(0.1)
            assert len(rig.fast_path.puts) == 1
            await trio.sleep(10)
            assert len(rig.fast_path.puts) == 1
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_while_no_message_waits_the_service_rests_for_the_shortest_delay(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, message_delay_level="1s 5s 10s")
    looks: list[float] = []
    schedule = rig.services.schedule
    watch = schedule._watch_clock

    def look() -> None:
        looks.append(trio.current_time())
        watch()

    schedule._watch_clock = look  # type: ignore[method-assign]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(schedule.run)
            await trio.sleep(5.05)
            assert looks == [1.0, 2.0, 3.0, 4.0, 5.0]
            delayed(rig, NOW_MS + 1000)
            await trio.sleep(1.0)
            assert not rig.fast_path.puts
            rig.clock.advance(1000)
            await trio.sleep(0.11)
            assert len(rig.fast_path.puts) == 1
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_operator_is_told_when_the_clock_goes_at_half_speed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            for slowed_from_ms, lines in ((None, 0), (NOW_MS, 1), (NOW_MS, 1), (None, 1), (NOW_MS, 2)):
                rig.store.slowed_from_ms = slowed_from_ms
                await trio.sleep(2)
                assert caplog.text.count("system clock was set back") == lines
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_operator_is_told_of_messages_whose_level_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: After messageDelayLevel was shortened, messages of the other levels waited unnoticed until their log files
    were deleted."""
    path = tmp_path / "config" / "delayOffset.json"
    path.parent.mkdir()
    path.write_text('{"offsetTable":{3:1}}')
    rig = SlowPathRig(tmp_path, message_delay_level="1s 5s")
    delayed(rig, NOW_MS, NOW_MS, NOW_MS)
    rig.services.schedule.load()

    async def main() -> None:
        with trio.move_on_after(2):
            await rig.services.schedule.run()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert "has 2 levels now: 2 delayed messages of level 3 are not delivered" in caplog.text
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 1}} and not rig.fast_path.puts


def test_a_level_that_fails_rests_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS)
    rig.store.queues[SCHEDULE, 0] = list(rig.store.queues[SCHEDULE, LEVEL - 1])
    look = rig.store.consume_queue_units
    broken = True

    def units(topic: str, queue_id: int, index: int, count: int) -> list[Unit]:
        if queue_id == 0 and broken:
            raise RuntimeError("a bug")
        return look(topic, queue_id, index, count)

    rig.store.consume_queue_units = units  # type: ignore[method-assign]  # the fault of this test

    async def main() -> None:
        nonlocal broken
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            await trio.sleep(5)
            assert len(rig.fast_path.puts) == 1 and len(caplog.records) == 1
            broken = False
            await trio.sleep(7)
            assert len(rig.fast_path.puts) == 2
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_level_goes_on_past_units_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A delay level stood still if a file of its queue was missing."""
    rig = SlowPathRig(tmp_path)
    delayed(rig, *[NOW_MS] * 20)
    look = rig.store.consume_queue_units

    def units(topic: str, queue_id: int, index: int, count: int) -> list[Unit]:
        return [] if 8 <= index < 16 else look(topic, queue_id, index, min(count, 8 - index % 8))

    rig.store.consume_queue_units = units  # type: ignore[method-assign]  # the fault of this test
    while deliver(rig):
        pass
    assert [m.reconsume_times for m in rig.fast_path.puts] == [*range(8), *range(16, 20)]
    assert rig.services.schedule.progress() == {LEVEL: (20, 20)}
    (line,) = caplog.messages
    assert "delay level 3" in line and "skipped delayed messages 8 to 15" in line
    caplog.clear()
    rig.store.queues[SCHEDULE, LEVEL - 1] *= 0
    assert deliver(rig) is False and caplog.messages == []


def test_damage_at_a_queues_end_holds_nothing_up_either(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    rig.store.consume_queue_units = lambda *_: []  # type: ignore[method-assign]  # the fault of this test
    assert deliver(rig) is True and deliver(rig) is False
    assert rig.services.schedule.progress() == {LEVEL: (2, 2)} and rig.fast_path.puts == []


def test_a_unit_that_names_another_topics_record_delivers_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A unit of zeros copied the first message of the log to the dead letters."""
    rig = SlowPathRig(tmp_path)
    delayed(rig, NOW_MS, NOW_MS)
    rig.store.records[0] = record(0, topic="Else")
    rig.store.queues[SCHEDULE, LEVEL - 1][0] = (Unit(0, 0, 0), NOW_MS)
    assert deliver(rig) is True
    assert [m.reconsume_times for m in rig.fast_path.puts] == [1]
    assert "a message of topic Else" in caplog.text


def test_levels() -> None:
    levels = DelayLevels.parse("1s 2m 3h 1d")
    assert levels.delays_ms == (1000, 120_000, 10_800_000, 86_400_000)
    assert [levels.clamp(level) for level in (-1, 0, 1, 4, 5)] == [0, 0, 1, 4, 4]
    for text in ("", "1x", "s", "1s,2s"):
        with pytest.raises(ConfigError):
            DelayLevels.parse(text)
