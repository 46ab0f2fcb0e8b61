"""A master restores the topics that its log names after the position of its table."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker import topics_of_log
from rocketpy.broker.managers.topics_position import saved_position
from rocketpy.config import BrokerRole
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.copied_tables import at_once
from tests.support.slow_path import SlowPathRig


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio.to_thread.run_sync", at_once)


def table(root: Path, position: int = 1000, **topics: object) -> None:
    """As a broker has saved it: it knows all topics of the messages below the position."""
    path = root / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    names = {name: {"topicName": name} for name in topics}
    path.write_text(json.dumps({"topicConfigTable": names, "phyOffset": position}).replace(" ", ""))


def opened(root: Path, *named: tuple[int, str, int], role: BrokerRole = BrokerRole.ASYNC_MASTER) -> SlowPathRig:
    rig = SlowPathRig(root, broker_role=role, broker_id=int(role is BrokerRole.SLAVE))
    rig.store.named = list(named)
    rig.broker.load()
    trio.run(rig.broker.topics_of_log.adopt)
    return rig


def test_a_new_master_has_the_topics_that_its_log_names_after_its_table(tmp_path: Path) -> None:
    """A topic that the table lacks, though it knows all topics of the messages there, was deleted."""
    table(tmp_path, Known=1)
    named = [(999, "Deleted", 1), (1000, "Delayed", 20), (1500, "Known", 30), (1500, "%RETRY%G", 1)]
    topics = opened(tmp_path, *named).services.topics
    assert topics.select("Deleted") is None
    delayed, known, retry = topics.select("Delayed"), topics.select("Known"), topics.select("%RETRY%G")
    assert delayed is not None and (delayed.read_queue_nums, delayed.write_queue_nums, delayed.perm) == (20, 20, 6)
    assert known is not None and known.read_queue_nums == 16
    assert retry is not None and retry.read_queue_nums == 1
    again = opened(tmp_path, (2000, "Below", 1)).services.topics
    assert again.select("Delayed") is not None
    assert again.select("Below") is None, "the position has passed it"


def test_a_topic_whose_save_was_under_way_when_the_broker_died(tmp_path: Path) -> None:
    """The send worker knows it at once, and has acknowledged a timer for it.
    Fault: A timer for a topic still being saved became a dead letter when the broker died."""
    rig = opened(tmp_path)

    async def announced() -> None:
        await rig.broker.topics_of_log.keep()
        rig.services.topics.update(TopicConfig(topic_name="T"))  # told to the workers; its save does not come
        rig.store.end = 5000
        await rig.broker.topics_of_log.keep()

    trio.run(announced)
    assert rig.fast_path.named("topic_changed") and not (tmp_path / "config" / "topics.json").exists()
    rig = SlowPathRig(tmp_path)
    rig.store.named, rig.store.end = [(4500, "T", 3)], 5000
    rig.broker.load()
    assert rig.services.topics.select("T") is None
    trio.run(rig.broker.topics_of_log.adopt)
    assert rig.services.topics.select("T") is not None


def test_a_look_that_is_cut_short_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: An interrupted look for new topics in the log began again from the start."""
    monkeypatch.setattr(topics_of_log, "PIECE_BYTES", 1_000)
    table(tmp_path, 500)
    rig = SlowPathRig(tmp_path)
    rig.store.named = [(600, "First", 1), (1700, "Second", 1), (3600, "Third", 1)]
    rig.broker.load()
    pieces: list[int | None] = []

    class Killed(BaseException): ...

    def piece() -> None:
        pieces.append(saved_position(tmp_path / "config" / "topics.json")[1])
        if len(pieces) == 2:
            raise Killed

    rig.broker.topics_of_log.on_piece = piece
    with pytest.raises(Killed):
        trio.run(rig.broker.topics_of_log.adopt)
    assert pieces == [1500, 2500]
    again = opened(tmp_path, (1700, "Read again", 1), (3600, "Third", 1)).services.topics
    assert all(again.select(name) for name in ("First", "Second", "Third")) and again.select("Read again") is None
    assert again.position.below == 4096


def test_other_tasks_run_between_the_steps(tmp_path: Path) -> None:
    """Fault: A new master read its log for new topics in one step of up to 8 s."""
    table(tmp_path, 500)
    rig = SlowPathRig(tmp_path)
    rig.broker.load()
    turns: list[int] = []

    async def beside(work: Callable[[], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_count, turns)
            await work()
            nursery.cancel_scope.cancel()

    trio.run(beside, rig.broker.topics_of_log.adopt)
    assert len(turns) > 1


async def _count(turns: list[int]) -> None:
    while True:
        turns.append(1)
        await trio.lowlevel.checkpoint()


def test_a_new_master_that_dies_before_its_table_is_saved_looks_again(tmp_path: Path) -> None:
    table(tmp_path)
    for _ in range(2):
        rig = SlowPathRig(tmp_path)
        rig.store.named = [(1000, "Delayed", 1)]
        rig.broker.load()
        rig.services.topics.file.save = at_no_time  # type: ignore[method-assign,assignment]  # the disk is slow
        trio.run(rig.broker.topics_of_log.adopt)
        assert rig.services.topics.select("Delayed") is not None


async def at_no_time(*, last: bool = False) -> None: ...


def test_a_slave_takes_topics_from_its_master_alone(tmp_path: Path) -> None:
    table(tmp_path)
    rig = opened(tmp_path, (1000, "Delayed", 1), role=BrokerRole.SLAVE)
    trio.run(rig.broker.topics_of_log.keep)
    assert rig.services.topics.select("Delayed") is None
    assert rig.services.topics.position.below == 1000 == saved_position(tmp_path / "config" / "topics.json")[1]


def test_a_master_without_a_position_begins_at_the_end(tmp_path: Path) -> None:
    topics = opened(tmp_path, (100, "Old", 1)).services.topics
    assert topics.select("Old") is None and topics.position.below == 4096


def test_of_a_log_that_another_broker_has_written_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topics_of_log, "SCAN_BYTES_MAX", 2_000)
    table(tmp_path, 500)
    topics = opened(tmp_path, (1000, "Far", 1), (3000, "Near", 1)).services.topics
    assert topics.select("Far") is None and topics.select("Near") is not None
    assert "knows the topics of the log up to 500, which ends at 4096" in caplog.text


def test_a_send_worker_that_outlives_the_manager_forgets_its_topics(tmp_path: Path) -> None:
    """And what it has stored for them until then is found."""
    table(tmp_path, 4096, Known=1)
    rig = opened(tmp_path)
    for name in ("Known", "Only the last manager knew", "Only the last manager knew"):
        rig.store.fill(name, len(rig.store.queues), 0)
    trio.run(rig.broker.topics_of_log.forget_others)
    assert rig.fast_path.named("topic_removed") == ["Only the last manager knew"]
    rig.fast_path.end = rig.store.end = 6000
    rig.store.named = [(5000, "Only the last manager knew", 2), (5000, "Known", 1), (6000, "Later", 1)]
    assert rig.services.topics.delete("Known")
    trio.run(rig.broker.topics_of_log.keep)
    topics = rig.services.topics
    assert topics.select("Only the last manager knew") is not None
    assert topics.select("Known") is None, "it was deleted meanwhile"
    assert topics.select("Later") is None
    rig.store.end = 7000
    trio.run(rig.broker.topics_of_log.keep)
    assert topics.position.below == 7000


def test_a_deletion_is_answered_when_the_position_has_passed_the_messages(tmp_path: Path) -> None:
    """The send worker takes messages for the topic until it is told of the deletion, which is after the save began.
    Fault: A deletion was answered before the saved position had passed the topic's messages, so a restart found the
    topic again."""
    rig = opened(tmp_path)
    trio.run(rig.broker.topics_of_log.keep)
    rig.services.topics.update(TopicConfig(topic_name="T"))

    async def main() -> None:
        deletion = rig.fast_path.delete_queues("T")
        rig.fast_path.delete_queues = lambda topic, below=None: deletion  # type: ignore[method-assign]
        save = rig.services.topics.file.save

        async def saved(*, last: bool = False) -> None:
            await save(last=last)
            rig.store.end = 4500

        rig.services.topics.file.save = saved  # type: ignore[method-assign]
        assert (await rig.ask(215, {"topic": "T"})).code == 0

    trio.run(main)
    assert opened(tmp_path, (4400, "T", 1)).services.topics.select("T") is None


@pytest.mark.parametrize(("role", "repeated"), [(BrokerRole.SLAVE, ("Gone", 700)), (BrokerRole.ASYNC_MASTER, "Gone")])
def test_a_slave_repeats_a_deletion_with_the_bound_that_it_had(
    tmp_path: Path, role: BrokerRole, repeated: object
) -> None:
    """Above it lies what the master may have stored for a topic of the same name since then.
    Fault: A slave's repeated removal of a topic removed messages of the recreated topic."""
    rig = SlowPathRig(tmp_path, broker_role=role)
    rig.store.deleted, rig.store.deletion_bounds = {"Gone": True, "Empty": False}, {"Gone": 700}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            assert rig.fast_path.named("delete_queues") == [repeated]
            await rig.broker.stop()

    trio.run(main)


def test_the_position_follows_a_growing_log_closely_and_rests_with_it(tmp_path: Path) -> None:
    rig = opened(tmp_path)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker.topics_of_log.run)
            await trio.sleep(10)
            for end, within_s in ((5000, topics_of_log.REST_S), (6000, topics_of_log.KEEP_S)):
                rig.store.end = end
                begun_s = trio.current_time()
                while saved_position(tmp_path / "config" / "topics.json")[1] != end:
                    await trio.sleep(0.001)
                    assert trio.current_time() - begun_s < within_s + 0.01
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
