"""The saved progress of transactions follows the log, on a master and on its slave."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.consumer_offset import ConsumerOffsetManager
from rocketpy.broker.transactions.transaction_progress import TransactionProgress, mark_of, progress_in
from rocketpy.message.names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.support.fake_store import FakeStore
from tests.support.slow_path import SlowPathRig


class Rig:
    def __init__(self, root: Path, *, published: int = 1000, kept: int = 0) -> None:
        self.store = FakeStore(lambda: 0)
        self.store.end, self.store.durable = published, kept
        self.offsets = ConsumerOffsetManager(root / "consumerOffset.json", entries_max=lambda: self.entries_max)
        self.entries_max = 10
        self.progress = TransactionProgress(root, self.store, self.offsets)
        self.progress.load()

    @property
    def for_java(self) -> list[int]:
        return [self.offsets.query(TRANS_GROUP, topic, 0) for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)]


def test_a_java_broker_sees_what_the_log_cannot_lose(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.progress.propose(5, 4)
    rig.store.end, rig.store.durable = 2000, 999
    rig.progress.propose(9, 8)
    assert rig.progress.newest == mark_of(9, 8, 2000) and rig.for_java == [-1, -1]
    rig.store.durable = 1000
    rig.progress.propose(9, 8)
    assert rig.for_java == [5, 4]
    rig.store.durable = 2000
    rig.progress.propose(9, 8)
    assert rig.for_java == [9, 8]


def test_marks_are_saved_with_the_position_that_they_presume(tmp_path: Path) -> None:
    rig = Rig(tmp_path, kept=1000)
    rig.progress.propose(5, None)
    rig.store.end = 2000
    rig.progress.propose(7, 6)
    rig.store.end = 3000
    rig.progress.propose(7, 6)
    trio.run(rig.progress.file.save)
    assert progress_in(rig.progress.file.path) == 7
    after = Rig(tmp_path, published=3000, kept=3000)
    assert after.progress.newest == mark_of(7, 6, 2000), "nothing has changed since"
    after.progress.propose(8, None)
    assert after.progress.newest == mark_of(8, 6, 3000)


def test_a_slave_waits_for_its_own_log(tmp_path: Path) -> None:
    master, slave = Rig(tmp_path / "master", kept=1000), Rig(tmp_path / "slave", published=999, kept=999)
    assert master.progress.text == ""
    master.progress.propose(5, 4)
    slave.progress.follow(master.progress.text, 1)
    assert slave.progress.newest is None and slave.for_java == [-1, -1]
    slave.store.end = 1000
    slave.progress.follow(master.progress.text, 1)
    assert slave.progress.newest == mark_of(5, 4, 1000) and slave.for_java == [-1, -1]
    slave.store.durable = 1000
    slave.progress.follow(master.progress.text, 1)
    assert slave.for_java == [5, 4]


def test_a_mark_of_another_connection_does_not_wait(tmp_path: Path) -> None:
    """The master was away, and may have lost the end of its log, where the ends of transactions were."""
    slave = Rig(tmp_path, published=999)
    slave.progress.follow("5:4:1000", ("master", 1))
    slave.store.end = 1000
    slave.progress.follow("", ("master", 2))
    assert slave.progress.newest is None


@pytest.mark.parametrize("text", ["", "5", "5:4", "5:4:-1", "a:b:c", "1:2:3:4", "٣:2:1", f"1:1:{1 << 63}"])
def test_what_no_master_of_ours_says_is_ignored(tmp_path: Path, text: str) -> None:
    rig = Rig(tmp_path, kept=1 << 40, published=1 << 40)
    rig.progress.follow(text, 1)
    assert rig.progress.newest is None


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert progress_in(tmp_path / "none.json") == 0


def test_a_full_table_of_offsets_keeps_no_mark_from_being_saved(tmp_path: Path) -> None:
    rig = Rig(tmp_path, kept=1000)
    rig.entries_max = 0
    rig.progress.propose(5, 4)
    assert rig.progress.newest == mark_of(5, 4, 1000) and rig.for_java == [-1, -1]


def test_no_client_moves_the_progress(tmp_path: Path) -> None:
    """Holds: trap, progress of transactions and delays in ordinary tables."""
    rig = SlowPathRig(tmp_path)
    rig.services.transactions.progress.propose(0, None)

    async def main() -> None:
        fields = {"consumerGroup": TRANS_GROUP, "topic": TRANS_HALF_TOPIC, "queueId": "0", "commitOffset": "77"}
        await rig.ask(15, fields)

    trio.run(main)
    rig.broker.commit_offset(TRANS_GROUP, TRANS_HALF_TOPIC, 0, 78, rig.clock.monotonic_ms() + 5)
    assert rig.services.offsets.query_all(TRANS_GROUP, TRANS_HALF_TOPIC) == {0: 0}
