"""A new master passes over the delayed messages that the last one has delivered, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker import earlier_deliveries
from rocketpy.config.failover_config import HaMode
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
    rig = rig_with(tmp_path, ["a", "b", "c"], stored)
    assert delivered(rig) == list(missing)
    assert rig.services.schedule.document() == {"offsetTable": {LEVEL: 3}}


@pytest.mark.parametrize(("stored", "missing"), [({2000: "a"}, "a"), ({2000: "a", 2001: "a"}, "")])
def test_a_copy_answers_for_one_of_two_messages_with_the_same_key(
    tmp_path: Path, stored: dict[int, str], missing: str
) -> None:
    """A producer that sends one object twice within a millisecond has two acknowledgements and one key."""
    assert delivered(rig_with(tmp_path, ["a", "a"], stored)) == list(missing)


def test_without_failover_the_file_decides(tmp_path: Path) -> None:
    """An operator who sets it back wants messages to be delivered again."""
    assert delivered(rig_with(tmp_path, ["a"], {2000: "a"}, mode=HaMode.PLAIN)) == ["a"]


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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.schedule.run)
            await trio.sleep(3)
            assert rig.services.schedule.document() == {"offsetTable": {}}
            dispatch()
            await trio.sleep(2)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert rig.fast_path.puts == [] and rig.services.schedule.document() == {"offsetTable": {LEVEL: 1}}
