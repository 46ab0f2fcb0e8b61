"""A topic whose queues hold messages is restored, even if topics.json does not have it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.config_file import evolved
from rocketpy.errors import StoreError
from rocketpy.message.names import TRANS_HALF_TOPIC
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import SlowPathRig


def test_a_topic_that_was_lost_before_it_was_saved_comes_back_with_its_queues(tmp_path: Path) -> None:
    """Fault: Messages of a new topic were out of reach if the manager died before saving topics.json."""
    rig = SlowPathRig(tmp_path)
    rig.store.fill("lost", 2, 3)
    rig.broker.load()
    config = rig.services.topics.select("lost")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (16, 16, 6)  # the cluster's template


def test_it_has_at_least_the_queues_that_hold_messages(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.fill("lost", 20, 1)
    rig.store.fill("%RETRY%group", 0, 1)
    rig.broker.load()
    lost, retry = rig.services.topics.select("lost"), rig.services.topics.select("%RETRY%group")
    assert lost is not None and lost.read_queue_nums == 21
    assert retry is not None and retry.read_queue_nums == 1


def test_a_topic_without_room_keeps_no_master_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: One topic without room for its queues kept a new master from starting."""
    rig = SlowPathRig(tmp_path)
    rig.store.fill("full", 2, 3)
    rig.store.fill("lost", 2, 3)
    adopt = rig.services.topics.adopt

    def without_room(topic: str, used: int, largest: int) -> TopicConfig:
        if topic == "full":
            raise StoreError("no room for its queues")
        return adopt(topic, used, largest)

    monkeypatch.setattr(rig.services.topics, "adopt", without_room)
    rig.broker.load()
    assert rig.services.topics.select("lost") is not None and rig.services.topics.select("full") is None
    assert "the log names topic full, which topics.json lacks, and it is not restored: no room" in caplog.text


def test_it_needs_no_template(tmp_path: Path) -> None:
    topics = SlowPathRig(tmp_path).services.topics
    for config in topics.topics.values():
        topics.update(evolved(config, perm=6))
    assert topics.adopt("lost", 3, 0).read_queue_nums == 3


def test_topics_that_a_broker_makes_have_the_queues_that_are_used(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.fill(TRANS_HALF_TOPIC, 0, 1)
    rig.broker.load()
    half = rig.services.topics.select(TRANS_HALF_TOPIC)
    assert half is not None and half.read_queue_nums == 1


def test_a_deletion_that_the_previous_manager_began_is_finished(tmp_path: Path) -> None:
    """The fast path may still know the topic, and its queues may hold messages.
    Fault: A manager that died during a deletion left the topic with the send worker, and sends became unreadable."""
    rig = SlowPathRig(tmp_path)
    rig.services.topics.update(TopicConfig(topic_name="created again"))
    rig.store.deleted = {"full": True, "empty": False, "created again": True}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            await rig.broker.stop()

    trio.run(main)
    assert rig.fast_path.named("delete_queues") == ["full"]
    assert rig.fast_path.named("topic_removed") == ["empty"]
