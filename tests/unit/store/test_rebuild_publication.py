"""The publication of a rebuild: the next start uses its files, whatever step it died at, and deletions stay."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.record import decode_record
from rocketpy.store.files import DiskFiles
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import verify_store
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.rebuilding.publishing import publish
from rocketpy.store.rebuilding.rebuild import MANIFEST
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from rocketpy.store.services.queue_trim import QueueTrim
from tests.support.log_images import BORN_MS
from tests.support.rebuilds import files_of, run
from tests.support.store_writer import StoreWriter, small_config
from tests.unit.store.test_store_lock import HOLD


def full_store(config: MessageStoreConfig, count: int = 300) -> None:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for number in range(count):
            writer.put(
                f"T{number % 5}", number % 3, b"x" * (number % 90), b"KEYS\x01k%d\x02TAGS\x01a" % number,
                store_timestamp_ms=BORN_MS + number,
            )  # fmt: skip
    close_store(opened, clean=True)


def states(config: MessageStoreConfig) -> list[tuple[str, int, int]]:
    opened = open_store(config)
    store = MessageStore(config, opened.control)
    found = [(state.topic, state.queue_id, state.max_offset) for state in store.queue_states()]
    store.close()
    close_store(opened, clean=True)
    return sorted(found)


def test_published_files_serve_the_next_start(tmp_path: Path) -> None:
    config = small_config(tmp_path / "s")
    full_store(config)
    before, expected = states(config), files_of(tmp_path / "s")
    shutil.rmtree(tmp_path / "s/consumequeue/T1")
    run(tmp_path / "s", tmp_path / "t", config, split_bytes=4000)
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    assert files_of(tmp_path / "s") == expected
    assert verify_store(StoreReader(tmp_path / "s")).problems == []
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")  # again: nothing is left to do
    assert states(config) == before and files_of(tmp_path / "s") == expected


class Died(Exception):
    """The process ended here."""


@attrs.define
class MortalFiles(DiskFiles):
    """Ends the process at its `lives`-th sync."""

    lives: int = 0

    def sync_directory(self, path: Path) -> None:
        if self.lives == 0:
            raise Died
        self.lives -= 1
        super().sync_directory(path)


def quiet_store(config: MessageStoreConfig) -> None:
    """The records of one queue, and the log files that held them, are gone."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for topic, count in (("Quiet", 120), ("Busy", 200)):
            for _ in range(count):
                writer.put(topic, 0, b"x" * 200, b"KEYS\x01k\x02")
    close_store(opened, clean=True)
    for path in sorted((Path(config.store_path_root_dir) / "commitlog").iterdir())[:3]:
        path.unlink()


def test_a_publication_may_die_at_any_step(tmp_path: Path) -> None:
    config = small_config(tmp_path / "s", max_index_num=4000)
    quiet_store(config)
    expected, lives = states(config), 0
    assert ("Quiet", 0, 120) in expected
    run(tmp_path / "s", tmp_path / "t", config)
    while True:
        for name in "ot":
            shutil.rmtree(tmp_path / f"{name}-copy", ignore_errors=True)
        shutil.copytree(tmp_path / "s", tmp_path / "o-copy")
        shutil.copytree(tmp_path / "t", tmp_path / "t-copy")
        copy = attrs.evolve(config, store_path_root_dir=str(tmp_path / "o-copy"))
        files = MortalFiles(lives=lives)
        try:
            publish(StoreReader(tmp_path / "o-copy", files=files), tmp_path / "t-copy")
        except Died:
            assert states(copy) == expected, f"a broker that starts after step {lives}"
            publish(StoreReader(tmp_path / "o-copy"), tmp_path / "t-copy")
        assert states(copy) == expected
        assert verify_store(StoreReader(tmp_path / "o-copy")).problems == []
        assert (tmp_path / "t-copy/replaced/consumequeue/Busy").exists()
        if files.lives:
            break
        lives += 1
    assert lives > 10


def test_a_second_publication_changes_nothing(tmp_path: Path) -> None:
    """By then the broker may have written extension units, to which its queues point."""
    config = small_config(tmp_path / "s")
    full_store(config)
    run(tmp_path / "s", tmp_path / "t", config)
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    (tmp_path / "s/consumequeue_ext/T1/0").mkdir(parents=True)
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    assert (tmp_path / "s/consumequeue_ext/T1/0").exists()


def test_all_files_of_a_newer_queue_are_kept(tmp_path: Path) -> None:
    """Fault: `pipeline rebuild --publish` could move away the first files of newer queues."""
    config = small_config(tmp_path / "s")
    full_store(config)
    run(tmp_path / "s", tmp_path / "t", config)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for _ in range(900):
            writer.put("New", 0, b"x")
    close_store(opened, clean=True)
    assert len(list((tmp_path / "s/consumequeue/New/0").iterdir())) > 1
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    opened = open_store(config)
    assert [(q.min_offset, q.max_offset) for q in opened.control.queues() if q.topic == "New"] == [(0, 900)]
    close_store(opened, clean=True)
    assert verify_store(StoreReader(tmp_path / "s")).problems == []


def test_a_rebuild_from_before_a_deletion_is_refused(tmp_path: Path) -> None:
    config = small_config(tmp_path / "s")
    full_store(config)
    run(tmp_path / "s", tmp_path / "t", config)
    opened = open_store(config)
    opened.control.add_queue(b"T1", 0).deleted_below = opened.control.published_phy_offset
    close_store(opened, clean=True)
    with pytest.raises(StoreError, match=r"topics were deleted since .* was rebuilt: rebuild again"):
        publish(StoreReader(tmp_path / "s"), tmp_path / "t")


def test_what_was_stored_since_is_dispatched_at_the_start(tmp_path: Path) -> None:
    config = small_config(tmp_path / "s")
    full_store(config)
    run(tmp_path / "s", tmp_path / "t", config)
    full_store(config, 50)
    expected = states(config)
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    assert states(config) == expected
    assert verify_store(StoreReader(tmp_path / "s")).problems == []


def test_queues_without_records_keep_their_offsets(tmp_path: Path) -> None:
    """Their records were deleted with old files of the log; their consumers' offsets must not lie beyond their end.
    Fault: `pipeline rebuild --publish` could move away queues without records after a kill."""
    config = small_config(tmp_path / "s", max_index_num=4000)
    quiet_store(config)
    run(tmp_path / "s", tmp_path / "t", config)
    assert not (tmp_path / "t/consumequeue/Quiet").exists()
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    assert ("Quiet", 0, 120) in states(config)


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("is_cut_short", [False, True])
def test_a_deleted_topic_stays_away_after_a_publication(
    tmp_path: Path, is_created_again: bool, is_cut_short: bool
) -> None:
    """A start that finds messages of a topic that topics.json does not have restores it, with these messages.
    Fault: After `pipeline rebuild --publish` the next start could restore a deleted topic with all its messages."""
    config = small_config(tmp_path / "s", max_index_num=4000)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for number in range(100):
            writer.put("Gone", 0, b"x" * 200)
            writer.put("Kept", 0, b"%d" % number)
        opened.control.delete_queues("Gone")
        opened.control.delete_units("Gone", opened.control.published_phy_offset)
        [gone] = opened.control.entries_of("Gone")
        writer.dispatch.expire_queue(gone)
        if is_created_again:
            assert writer.put("Gone", 0, b"new").queue_offset == 100
    close_store(opened, clean=not is_cut_short)
    run(tmp_path / "s", tmp_path / "t", config)
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    publish(StoreReader(tmp_path / "s"), tmp_path / "t")
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert set(opened.control.used_topics()) == ({"Gone", "Kept"} if is_created_again else {"Kept"})
    [gone] = opened.control.entries_of("Gone")
    trim = QueueTrim(config, opened.control, opened.files)
    if gone.max_phy_offset > gone.deleted_below:
        trim.trim(gone, gone.deleted_below)  # as the store worker does when it begins
    trim.close()
    assert (gone.min_offset, gone.max_offset) == (100, 100 + is_created_again)
    with StoreWriter(config, opened.control) as writer:
        assert writer.put("Gone", 0, b"newer").queue_offset == 100 + is_created_again, "no offset is given twice"
        assert writer.put("Kept", 0, b"newer").queue_offset == 100
    store = MessageStore(config, opened.control)
    found = store.get_message("Gone", 0, 100, 32).records
    bodies = [one.body for image in found if (one := decode_record(image)) is not None]
    assert bodies == [b"new", b"newer"][not is_created_again :]
    store.close()
    close_store(opened, clean=True)
    assert open_and_close(config) is RecoveryKind.TRUSTED


def open_and_close(config: MessageStoreConfig) -> RecoveryKind:
    opened = open_store(config)
    close_store(opened, clean=True)
    return opened.report.kind


def test_a_broker_that_uses_the_store_is_not_disturbed(tmp_path: Path) -> None:
    config = small_config(tmp_path / "s")
    full_store(config)
    run(tmp_path / "s", tmp_path / "t", config)
    expected = files_of(tmp_path / "s")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "s/lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match="the store is in use"):
            publish(StoreReader(tmp_path / "s"), tmp_path / "t")
        holder.stdin.close()
        holder.wait()
    assert files_of(tmp_path / "s") == expected and (tmp_path / "t/consumequeue").exists()


def test_a_rebuild_of_another_store_is_refused(tmp_path: Path) -> None:
    config, other = small_config(tmp_path / "s"), small_config(tmp_path / "o")
    full_store(config)
    full_store(other, 20)
    run(tmp_path / "s", tmp_path / "t", config)
    with pytest.raises(StoreError, match="was not rebuilt from"):
        publish(StoreReader(tmp_path / "o"), tmp_path / "t")
    shutil.rmtree(tmp_path / "t/consumequeue")
    (tmp_path / "t" / MANIFEST).unlink()
    with pytest.raises(StoreError, match=f"cannot read .*{MANIFEST}"):
        publish(StoreReader(tmp_path / "s"), tmp_path / "t")
