"""Members of a group, and its offsets: committed ones, and those of queues that it has not consumed yet."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.support.slow_path import FakeChannel, SlowPathRig, body_of

QUEUE = {"consumerGroup": "G", "topic": "T", "queueId": "0"}


def test_members_are_listed_as_soon_as_their_heartbeat_is_answered(tmp_path: Path) -> None:
    """Holds: broker, members of a group; answer, offsets and members (14, 15, 38)."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        nobody = await rig.ask(38, {"consumerGroup": "G"})
        assert (nobody.code, nobody.remark) == (1, "no consumer for this group, G")
        await rig.heartbeat("a", group="G", topics={"T": "*"})
        await rig.heartbeat("b", group="G", topics={"T": "*"}, channel=FakeChannel(2))
        assert body_of(await rig.ask(38, {"consumerGroup": "G"})) == {"consumerIdList": ["a", "b"]}

    trio.run(main)


def test_offsets_are_stored_and_found(tmp_path: Path) -> None:
    """Holds: client, offsets on the broker and on the client; client, queries and commits of offsets; answer,
    offsets and members (14, 15, 38)."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        assert (await rig.ask(15, QUEUE | {"commitOffset": "10"})).code == 0
        assert (await rig.ask(14, QUEUE)).ext_fields == {"offset": "10"}
        await rig.ask(15, QUEUE | {"commitOffset": "4"})
        assert (await rig.ask(14, QUEUE)).ext_fields == {"offset": "4"}

    trio.run(main)
    rig.broker.commit_offset("G", "T", 0, 9, rig.clock.monotonic_ms() + 1)
    assert rig.services.offsets.query("G", "T", 0) == 9
    assert rig.services.stats.item("GROUP_GET_NUMS", "T@G") is None, "what a group commits, it need not have consumed"


@pytest.mark.parametrize(("queue_id", "code"), [("65535", 0), ("65536", 1), ("2147483647", 1), ("-1", 1)])
def test_no_offsets_of_queues_that_no_topic_can_have(tmp_path: Path, queue_id: str, code: int) -> None:
    rig = SlowPathRig(tmp_path)
    answer = trio.run(lambda: rig.ask(15, QUEUE | {"queueId": queue_id, "commitOffset": "10"}))
    assert answer.code == code and len(rig.services.offsets) == (code == 0)


def test_an_offset_that_rode_on_a_pull_does_not_undo_a_later_update(tmp_path: Path) -> None:
    """A consumer that leaves names its offset last; its pull, sent before, was gathered and comes after.
    Fault: An offset of a pull, held back for 5 ms, undid the later update of a leaving consumer."""
    rig = SlowPathRig(tmp_path)
    received_ms = rig.clock.monotonic_ms()
    rig.clock.advance(2)
    trio.run(lambda: rig.ask(15, QUEUE | {"commitOffset": "13"}))
    rig.broker.commit_offset("G", "T", 0, 4, received_ms)
    assert rig.services.offsets.query("G", "T", 0) == 13
    rig.broker.commit_offset("G", "T", 1, 4, received_ms)
    assert rig.services.offsets.query("G", "T", 1) == 4, "another queue was not named"
    rig.clock.advance(1)
    rig.broker.commit_offset("G", "T", 0, 12, rig.clock.monotonic_ms())
    assert rig.services.offsets.query("G", "T", 0) == 12, "a later pull may go back"


@pytest.mark.parametrize(
    ("count", "low", "begin", "on_disk_below", "code"),
    [
        (0, 0, 0, 0, 0),  # a queue that was never used
        (5, 0, 0, 0, 0),  # its first message is there, and in memory
        (5, 0, 0, 2000, 22),  # its first message is on disk
        (5, 3, 0, 0, 22),  # its first message is gone
        (5, 3, 3, 0, 0),  # the topic was deleted and created again: offsets go on
        (5, 3, 3, 2000, 22),
    ],
)
def test_a_new_group_starts_with_the_first_message_of_a_young_queue(
    tmp_path: Path, count: int, low: int, begin: int, on_disk_below: int, code: int
) -> None:
    """Holds: client, start of a new consumer; answer, offsets and members (14, 15, 38); trap, a new group begins at
    0 in a young queue."""
    rig = SlowPathRig(tmp_path)
    if count:
        rig.store.fill("T", 0, count, low=low)
        rig.store.begins["T", 0] = begin
    rig.store.on_disk_below = on_disk_below
    response = trio.run(lambda: rig.ask(14, QUEUE))
    assert response.code == code
    if code == 0:
        assert response.ext_fields == {"offset": str(low)}
    else:
        assert response.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def test_an_offset_beyond_its_queue_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that goes on over a failover has it from the last master, whose log had more."""
    rig = SlowPathRig(tmp_path)
    rig.store.fill("T", 0, 5)
    for offset, stored in (("5", 5), ("4", 4), ("6", 4)):
        assert trio.run(lambda offset=offset: rig.ask(15, QUEUE | {"commitOffset": offset})).code == 0  # type: ignore[misc]  # bound now
        assert rig.services.offsets.query("G", "T", 0) == stored
    rig.broker.commit_offset("G", "T", 0, 7, rig.clock.monotonic_ms() + 1)
    assert rig.services.offsets.query("G", "T", 0) == 4
    assert caplog.text.count("group G: dropped the offset 6 of topic T, queue 0, which ends at 5") == 1
    rig.store.fill("T", 0, 7)
    rig.broker.commit_offset("G", "T", 0, 7, rig.clock.monotonic_ms() + 1)
    assert rig.services.offsets.query("G", "T", 0) == 7


def test_a_header_that_is_none_is_refused(tmp_path: Path) -> None:
    assert trio.run(lambda: SlowPathRig(tmp_path).ask(14, {"topic": "T"})).code == 1
