"""A broker passes over the delayed messages that were delivered since its progress was saved, and no others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.delays import earlier_deliveries
from rocketpy.broker.files import json_file
from rocketpy.config import HaMode
from rocketpy.message.record import decode_record
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.fake_store import Unit
from tests.support.slow_path import NOW_MS, SlowPathRig, record

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVEL = 3


def properties_of(key: str) -> bytes:
    unique = f"UNIQ_KEY\x01{key}\x02" if key else ""
    return f"DELAY\x013\x02REAL_TOPIC\x01T\x02{unique}REAL_QID\x011".encode()


def rig_with(
    root: Path, delayed: list[str], stored: Mapping[int, str], *, mode: HaMode = HaMode.AUTOMATIC
) -> SlowPathRig:
    """A broker that has just become master, with these delayed messages from log offset 1000 on, all due, and these
    messages by log offset in queue 1 of T."""
    rig = SlowPathRig(root, ha_mode=mode)
    rig.store.behind_bytes = 0
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    for topic, queue_id, messages in ((SCHEDULE, LEVEL - 1, dict(enumerate(delayed, 1000))), ("T", 1, stored)):
        for offset, key in messages.items():
            rig.store.records[offset] = record(offset, topic=topic, properties=properties_of(key))
        rig.store.queues[topic, queue_id] = [(Unit(offset, 100, NOW_MS), NOW_MS) for offset in messages]
    return rig


def delivered(rig: SlowPathRig) -> list[str]:
    """The keys of what it stores again in its first five seconds."""

    async def run() -> None:
        rig.services.schedule.load()
        with trio.move_on_after(5):
            await rig.services.schedule.run()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    return [put.properties.partition(b"UNIQ_KEY\x01")[2].partition(b"\x02")[0].decode() for put in rig.fast_path.puts]


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        ({}, "abc"),
        ({2000: "a"}, "bc"),
        ({2000: "a", 2001: "b", 2002: "c"}, ""),
        ({2000: "b"}, "abc"),  # in order: b was not delivered before a, so this is another message
        ({900: "a", 2000: "x"}, "abc"),  # before the delayed message
    ],
)
def test_what_was_delivered_is_passed_over(tmp_path: Path, stored: dict[int, str], missing: str) -> None:
    """Fault: Delayed messages delivered in a master's last second were delivered again by its successor."""
    rig = rig_with(tmp_path, ["a", "b", "c"], stored)
    assert delivered(rig) == list(missing)
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 3}}


@pytest.mark.parametrize(("stored", "missing"), [({2000: "a"}, "a"), ({2000: "a", 2001: "a"}, "")])
def test_a_copy_answers_for_one_of_two_messages_with_the_same_key(
    tmp_path: Path, stored: dict[int, str], missing: str
) -> None:
    """A producer that sends one object twice within a millisecond has two acknowledgements and one key.
    Fault: After a failover the copy of one delayed message hid a second one with the same key."""
    assert delivered(rig_with(tmp_path, ["a", "a"], stored)) == list(missing)


def test_without_failover_the_file_decides(tmp_path: Path) -> None:
    """An operator who sets it back wants messages to be delivered again."""
    assert delivered(rig_with(tmp_path, ["a"], {2000: "a"}, mode=HaMode.PLAIN)) == ["a"]


@pytest.mark.parametrize(("saved_at", "missing"), [(4095, "bc"), (4096, "abc")])
def test_since_an_unclean_stop_copies_are_looked_up(tmp_path: Path, saved_at: int, missing: str) -> None:
    """The file presumes less than the log has. After a clean stop it presumes all of it, and the file decides."""
    rig = rig_with(tmp_path, ["a", "b", "c"], {2000: "a"}, mode=HaMode.PLAIN)
    json_file.save(rig.services.schedule.file.path, [b'{"offsetTable":{},"phyOffset":%d}' % saved_at])
    assert delivered(rig) == list(missing)


def test_copies_before_the_position_do_not_answer_for_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two delayed sends of one object have one key, and the progress lies between the two."""
    monkeypatch.setattr(earlier_deliveries, "UNDER_WAY_BYTES", 10)
    rig = rig_with(tmp_path, ["a", "a", "b"], {2000: "a", 2009: "x", 2010: "y"})
    json_file.save(rig.services.schedule.file.path, [b'{"offsetTable":{%d:1},"phyOffset":2020}' % LEVEL])
    assert delivered(rig) == ["a", "b"]


def test_the_search_goes_on_from_the_position_within_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_deliveries, "UNITS_MAX", 50)
    stored = {1990 + number: f"x{number}" for number in range(10)} | {2000: "a", 2001: "b"}
    rig = rig_with(tmp_path, ["a", "b", "c"], stored | {2100 + number: f"y{number}" for number in range(100)})
    json_file.save(rig.services.schedule.file.path, [b'{"offsetTable":{},"phyOffset":1990}'])
    assert delivered(rig) == ["c"]


def test_many_small_messages_before_the_position_do_not_use_up_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: After the death of a broker all delayed messages since its last save were delivered again."""
    monkeypatch.setattr(earlier_deliveries, "UNITS_MAX", 50)
    monkeypatch.setattr(earlier_deliveries, "UNDER_WAY_UNITS", 5)
    stored = {1800 + number: f"x{number}" for number in range(195)} | {1995: "a", 2000: "b"}
    rig = rig_with(tmp_path, ["a", "b", "c"], stored)
    json_file.save(rig.services.schedule.file.path, [b'{"offsetTable":{},"phyOffset":1999}'])
    assert delivered(rig) == ["c"]


def test_a_message_without_a_key_is_delivered(tmp_path: Path) -> None:
    assert len(delivered(rig_with(tmp_path, [""], {2000: ""}))) == 1


def test_the_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_deliveries, "UNITS_PER_QUEUE", 3)
    stored = {2000: "a"} | {2001 + number: f"x{number}" for number in range(3)}
    assert delivered(rig_with(tmp_path, ["a"], stored)) == ["a"]


def test_it_waits_until_the_queues_have_what_the_last_master_wrote(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, ["a"], {})
    rig.store.behind_bytes = 1

    def dispatch() -> None:
        rig.store.behind_bytes = 0
        rig.store.records[2000] = record(2000, properties=properties_of("a"))
        rig.store.queues["T", 1] = [(Unit(2000, 100, 0), NOW_MS)]

    async def run() -> None:
        rig.services.schedule.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            await trio.sleep(3)
            assert rig.services.schedule.document() == {"offsetTable": {}}
            dispatch()
            await trio.sleep(2)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert rig.fast_path.puts == [] and rig.services.schedule.document() == {"offsetTable": {LEVEL: 1}}


def test_messages_below_the_progress_are_not_delivered_when_their_queue_is_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress was held to the log, of which the queue has a part only. The copies are long before its position.
    Fault: A new master lowered the progress of delay levels to the dispatched queue and delivered messages again."""
    monkeypatch.setattr(earlier_deliveries, "UNDER_WAY_BYTES", 10)
    rig = rig_with(tmp_path, ["a", "b", "c"], {2000: "a", 2001: "b"})
    json_file.save(rig.services.schedule.file.path, [b'{"offsetTable":{"%d":2},"phyOffset":3000}' % LEVEL])
    queue = SCHEDULE, LEVEL - 1
    units = rig.store.queues[queue]
    rig.store.queues[queue] = units[:1]
    monkeypatch.setattr(rig.store, "log_end_of", lambda topic, queue_id: len(units) if topic == SCHEDULE else None)

    async def run() -> None:
        rig.services.schedule.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            for count in (1, 2):
                rig.store.queues[queue] = units[:count]
                await trio.sleep(3)
                assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 2}}
            rig.store.queues[queue] = units
            await trio.sleep(3)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [put.properties.partition(b"UNIQ_KEY\x01")[2][:1] for put in rig.fast_path.puts] == [b"c"]


def test_an_end_of_the_queue_that_dispatch_has_passed_takes_no_progress_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch goes on between the look at the end of the queue and the read of its units."""
    rig = rig_with(tmp_path, ["a", "b", "c"], {})
    json_file.save(rig.services.schedule.file.path, [b'{"offsetTable":{"%d":2},"phyOffset":4096}' % LEVEL])
    rig.services.schedule.load()
    monkeypatch.setattr(rig.store, "max_offset", lambda topic, queue_id: 1)
    trio.run(rig.services.schedule.deliver_due, LEVEL)
    assert [put.properties.partition(b"UNIQ_KEY\x01")[2][:1] for put in rig.fast_path.puts] == [b"c"]


def test_a_message_that_is_consumed_again_is_another_one(tmp_path: Path) -> None:
    """A retry keeps the key of its message, with one more attempt."""
    rig = rig_with(tmp_path, ["a"], {2000: "a"})
    rig.store.records[1000] = record(1000, topic=SCHEDULE, properties=properties_of("a"), reconsume_times=1)
    assert delivered(rig) == ["a"]


@pytest.mark.parametrize("image", [None, b"\x00\x00\x00\x10damaged record", bytes(200)], ids=["gone", "damaged", "end"])
def test_a_record_that_cannot_be_read_answers_for_no_message(tmp_path: Path, image: bytes | None) -> None:
    rig = rig_with(tmp_path, ["a", "b"], {1999: "x", 2000: "a"})
    if image is None:
        del rig.store.records[1999]
    else:
        rig.store.records[1999] = image
    assert delivered(rig) == ["b"]


def test_queues_that_never_have_all_of_the_log_stop_no_delivery(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, ["a"], {})
    rig.store.behind_bytes = 1
    rig.services.schedule.load()

    async def run() -> None:
        with trio.move_on_after(20):
            await rig.services.schedule.run()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(rig.fast_path.puts) == 1


def searched(rig: SlowPathRig, asked: list[tuple[int, str]], pause_s: float = 0.0, *, since: int = -1) -> list[bool]:
    """The answers of a search in level LEVEL and the one after it, for the key of a message of a level each."""

    async def run() -> list[bool]:
        earlier = earlier_deliveries.EarlierDeliveries(rig.store, [LEVEL, LEVEL + 1], since)
        await earlier.begin()
        answers = []
        for level, key in asked:
            delayed = decode_record(record(1000, properties=properties_of(key)))
            assert delayed is not None
            answers.append(await earlier.has(level, delayed, "T", 1))
            await trio.sleep(pause_s)
        return answers

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(("since", "first"), [(2010, 0), (2011, 0), (2012, 1), (2013, 2), (2014, 3), (2015, 4)])
def test_a_queue_is_read_from_its_first_message_since_the_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, first: int
) -> None:
    monkeypatch.setattr(earlier_deliveries, "UNDER_WAY_BYTES", 10)
    rig = rig_with(tmp_path, [], {2001: "a", 2002: "b", 2003: "c", 2004: "d"})
    for number, key in enumerate("abcd"):
        assert searched(rig, [(LEVEL, key)], since=since) == [number >= first]


def test_a_delivery_that_was_under_way_when_the_progress_was_saved_is_found(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, [], {2000: "a"})
    assert searched(rig, [(LEVEL, "a")], since=2000 + (1 << 20)) == [True]


@pytest.mark.parametrize(("since", "is_found"), [(-1, False), (0, True)])
def test_only_without_a_position_the_search_begins_near_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, is_found: bool
) -> None:
    """Position 0 is that of a log that was empty."""
    monkeypatch.setattr(earlier_deliveries, "UNITS_PER_QUEUE", 1)
    rig = rig_with(tmp_path, [], {2000: "a", 2001: "b"})
    assert searched(rig, [(LEVEL, "a")], since=since) == [is_found]


def test_the_search_begins_behind_deleted_messages(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, [], {2000: "x", 2001: "a"})
    rig.store.low["T", 1] = 1
    assert searched(rig, [(LEVEL, "a")]) == [True]


def test_a_message_that_is_stored_during_the_search_answers_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one that this broker delivers."""
    rig = rig_with(tmp_path, [], {2000: "a", 2001: "b"})
    monkeypatch.setattr(rig.store, "max_offset", lambda topic, queue_id: 1)
    assert searched(rig, [(LEVEL, "a"), (LEVEL, "b")]) == [True, False]


def test_the_search_ends_after_its_time(tmp_path: Path) -> None:
    """What becomes due later was not delivered by another broker, whatever has the same key."""
    rig = rig_with(tmp_path, [], {2000: "a", 2001: "b", 2002: "c"})
    asked = [(LEVEL, "a"), (LEVEL, "b"), (LEVEL, "c")]
    assert searched(rig, asked, earlier_deliveries.SEARCH_S / 2) == [True, True, False]


def test_each_level_is_searched_to_its_first_message_that_is_not_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rig = rig_with(tmp_path, [], {2000: "a", 2001: "b", 2002: "c"})
    asked = [(LEVEL, "a"), (LEVEL, "b"), (LEVEL, "x"), (LEVEL, "c"), (LEVEL + 1, "c"), (LEVEL + 2, "c")]
    assert searched(rig, asked) == [True, True, False, False, True, False]
    assert f"delay level {LEVEL}: 2 messages more" in caplog.text


def test_a_copy_that_answered_for_one_level_answers_for_no_other(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, [], {2000: "a", 2001: "b"})
    asked = [(LEVEL, "a"), (LEVEL, "x"), (LEVEL + 1, "b"), (LEVEL + 1, "a")]
    assert searched(rig, asked) == [True, False, True, False]


def test_what_was_found_is_forgotten_after_the_last_level(tmp_path: Path) -> None:
    """It may be of 65 536 messages, and the broker runs on for months."""
    rig = rig_with(tmp_path, [], {2000: "a"})
    delayed = decode_record(record(1000, properties=properties_of("x")))
    assert delayed is not None

    async def run() -> None:
        earlier = earlier_deliveries.EarlierDeliveries(rig.store, [LEVEL, LEVEL + 1], -1)
        await earlier.begin()
        held = []
        for level in (LEVEL, LEVEL + 1):
            assert not await earlier.has(level, delayed, "T", 1)
            held.append(len(earlier._copies))
        assert held == [1, 0]

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_level_without_earlier_deliveries_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, earlier_deliveries.logger.name)
    assert searched(rig_with(tmp_path, [], {2000: "a"}), [(LEVEL, "x")]) == [False]
    assert not caplog.messages


def test_all_queues_together_are_read_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_deliveries, "UNITS_MAX", 2 * earlier_deliveries.RECORDS_PER_STEP)
    stored = {2000 + number: f"x{number}" for number in range(2 * earlier_deliveries.RECORDS_PER_STEP)}
    rig = rig_with(tmp_path, [], stored | {9000: "a"})
    assert searched(rig, [(LEVEL, "x99"), (LEVEL, "a")]) == [True, False]


@pytest.mark.parametrize("since", [-1, 2000])
def test_units_that_are_gone_end_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int) -> None:
    """Cleaning has removed them meanwhile."""
    rig = rig_with(tmp_path, [], {2000: "a"})
    monkeypatch.setattr(rig.store, "consume_queue_units", lambda *_: [])
    assert searched(rig, [(LEVEL, "a")], since=since) == [False]


def test_others_have_their_turn_while_a_queue_is_read(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, [], {2000 + number: f"x{number}" for number in range(500)})
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def run() -> None:
        earlier = earlier_deliveries.EarlierDeliveries(rig.store, [LEVEL], -1)
        await earlier.begin()
        delayed = decode_record(record(1000, properties=properties_of("x499")))
        assert delayed is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            assert await earlier.has(LEVEL, delayed, "T", 1)
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert turns >= 500 // earlier_deliveries.RECORDS_PER_STEP // 2
