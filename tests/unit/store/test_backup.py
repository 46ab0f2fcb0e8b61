"""A copy of a store in use has all that was acknowledged before it began; later ones share the full log files."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.store.backup import backup, log
from rocketpy.store.backup.backup import back_up, complete_copies
from rocketpy.store.files import file_name
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import VerifyReport, verify_store
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter

FILE = 16_384  # bytes of a log file
COUNT = 300


@attrs.define
class At:
    """Does something when a phase begins."""

    phase: str
    act: Callable[[], object]

    def begin(self, what: str, total: int, unit: str) -> None:
        if what == self.phase:
            self.phase = ""
            self.act()

    def reached(self, done: int) -> None:
        pass


def put(writer: StoreWriter, count: int, *, keys: bool = True) -> None:
    for number in range(count):
        writer.put("T", number % 2, b"body %d" % number, b"KEYS\x01k%d\x02" % number if keys else b"")


@pytest.fixture
def root(writer: StoreWriter, opened: OpenedStore) -> Path:
    """A store in use, with several log files and a table."""
    put(writer, COUNT)
    (opened.paths.root / "config").mkdir()
    (opened.paths.root / "config" / "topics.json").write_text("{}")
    for name in ("queuelocks", "incarnation"):
        (opened.paths.root / name).write_text("of this store")
    return opened.paths.root


def bodies(root: Path) -> list[bytes]:
    return [bytes(record.body) for record in StoreReader(root).records(check_crc=True)]


def log_names(copy: Path) -> list[str]:
    return sorted(path.name for path in (copy / "commitlog").iterdir())


def test_a_copy_of_a_store_in_use_opens_with_all_messages(
    root: Path, config: MessageStoreConfig, opened: OpenedStore, tmp_path: Path
) -> None:
    made = back_up(root, tmp_path / "copies")
    assert made.is_complete and made.report.records == COUNT
    assert made.report.log_end == opened.control.published_phy_offset
    assert complete_copies(tmp_path / "copies") == [made.path]
    assert bodies(made.path) == bodies(root)
    names = {path.name for path in made.path.iterdir()}
    assert {"abort", "config", "commitlog", "consumequeue", "index"} <= names
    assert not names & {"control", "lock", "queuelocks", "incarnation"}, "they name the store in use"
    copied = attrs.evolve(config, store_path_root_dir=str(made.path))
    again = open_store(copied)
    assert again.control.published_phy_offset == opened.control.published_phy_offset
    close_store(again, clean=True)
    assert back_up(made.path, tmp_path / "of_the_copy").report.records == COUNT


def test_a_later_copy_shares_the_full_log_files(root: Path, writer: StoreWriter, tmp_path: Path) -> None:
    first = back_up(root, tmp_path / "copies")
    put(writer, COUNT)
    second = back_up(root, tmp_path / "copies")
    assert second.report.records == 2 * COUNT
    full = log_names(first.path)[:-1]
    assert second.linked_bytes == len(full) * FILE > 0
    for name in log_names(first.path):
        is_shared = os.path.samefile(first.path / "commitlog" / name, second.path / "commitlog" / name)
        assert is_shared == (name in full), "the file that the log ended in has grown since"
    assert bodies(first.path) == bodies(root)[:COUNT]


def test_files_of_another_store_are_not_shared(root: Path, config: MessageStoreConfig, tmp_path: Path) -> None:
    other = attrs.evolve(config, store_path_root_dir=str(tmp_path / "other"))
    opened = open_store(other)
    with StoreWriter(other, opened.control) as writer:
        put(writer, COUNT, keys=False)
    close_store(opened, clean=True)
    back_up(tmp_path / "other", tmp_path / "copies")
    made = back_up(root, tmp_path / "copies")
    assert made.linked_bytes == 0 and bodies(made.path) == bodies(root)


def test_an_interrupted_copy_is_continued(
    root: Path, writer: StoreWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted where it hurts: at the check, when the file that the log ends in has its name already."""

    def interrupted(*args: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backup, "verify_store", interrupted)
    with pytest.raises(KeyboardInterrupt):
        back_up(root, tmp_path / "copies")
    monkeypatch.undo()
    assert complete_copies(tmp_path / "copies") == []
    (part,) = (tmp_path / "copies").iterdir()
    full = log_names(part)[:-1]
    inodes = {name: (part / "commitlog" / name).stat().st_ino for name in full}
    put(writer, COUNT)
    made = back_up(root, tmp_path / "copies")
    assert [made.path] == list((tmp_path / "copies").iterdir())
    assert bodies(made.path) == bodies(root)
    assert inodes == {name: (made.path / "commitlog" / name).stat().st_ino for name in full}, "copied once"


def test_a_file_that_expires_before_its_turn(
    root: Path, writer: StoreWriter, opened: OpenedStore, tmp_path: Path
) -> None:
    """What its broker has stored again at the end of the log before it deleted the file is in the copy."""

    def expire() -> None:
        put(writer, 1)
        (opened.paths.commitlog / file_name(0)).unlink()

    made = back_up(root, tmp_path / "copies", listener=At("log", expire))
    assert made.report.log_begin == FILE
    assert made.report.log_end == opened.control.published_phy_offset
    assert bodies(made.path)[-1] == b"body 0"


def test_a_gap_ends_the_copied_files_before_it(root: Path, opened: OpenedStore, tmp_path: Path) -> None:
    """The broker overtakes the copy: the first file is copied, the second is gone before its turn."""
    first, second = (opened.paths.commitlog / file_name(number * FILE) for number in (0, 1))
    directory = tmp_path / "copies"

    class Overtake(At):
        def reached(self, done: int) -> None:
            if self.phase == "" and second.exists() and list(directory.glob("*.part/commitlog/*")):
                first.unlink()
                second.unlink()

    made = back_up(root, directory, listener=Overtake("log", lambda: None))
    assert made.report.log_begin == 2 * FILE and not made.report.problems


def test_keep_removes_the_oldest(root: Path, tmp_path: Path) -> None:
    copies = []
    for _ in range(3):
        copies.append(back_up(root, tmp_path / "copies", keep=2).path)
    assert sorted((tmp_path / "copies").iterdir()) == copies[1:]


def test_a_clock_that_was_set_back_makes_no_old_copy(root: Path, tmp_path: Path, writer: StoreWriter) -> None:
    """Fault: After the clock was set back, `--keep` removed each new copy right after it was made."""
    future = back_up(root, tmp_path / "copies").path
    future.rename(future.with_name("20991231T235959Z"))
    put(writer, 1)
    made = back_up(root, tmp_path / "copies", keep=1)
    assert list((tmp_path / "copies").iterdir()) == [made.path]
    assert made.path.name == "21000101T000000Z" and made.report.records == COUNT + 1


def test_a_copy_that_is_named_by_no_time_is_an_error_that_names_it(root: Path, tmp_path: Path) -> None:
    """Fault: A copy named by a thirteenth month ended each later backup with a traceback."""
    odd = back_up(root, tmp_path / "copies").path.rename(tmp_path / "copies" / "20261399T000000Z")
    with pytest.raises(StoreError, match=f"{odd} is not named by a date and time; move it"):
        back_up(root, tmp_path / "copies")


def test_a_removed_copy_that_cannot_be_deleted_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A backup ended with a bare error of the system if an interrupted removal could not go on."""
    left = tmp_path / "copies" / "20261129T022700Z.removed"
    left.mkdir(parents=True)

    def refused(path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(StoreError, match=f"cannot remove {left}: Operation not permitted"):
        back_up(root, tmp_path / "copies")


def test_a_damaged_store_replaces_no_copy(root: Path, opened: OpenedStore, tmp_path: Path) -> None:
    good = back_up(root, tmp_path / "copies", keep=1)
    path = opened.paths.commitlog / file_name(FILE)
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"body "))
        file.write(b"BODY")
    made = back_up(root, tmp_path / "copies", keep=1)
    assert not made.is_complete and made.report.problems
    assert complete_copies(tmp_path / "copies") == [good.path]


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_file_that_is_damaged_in_an_earlier_copy_is_copied_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    """Fault: After one rotten sector in the newest copy no later backup succeeded."""
    monkeypatch.setattr(log, "COMPARED", 64)
    first = back_up(root, tmp_path / "copies")
    path = first.path / "commitlog" / file_name(FILE)
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"body ", FILE // 2))
        file.write(b"BODY")

    def verify(reader: StoreReader, *args: Any, **keywords: Any) -> VerifyReport:
        if not is_readable and b"BODY" in (reader.paths.commitlog / file_name(FILE)).read_bytes():
            raise StoreError("cannot read the file: Input/output error")
        return verify_store(reader, *args, **keywords)

    monkeypatch.setattr(backup, "verify_store", verify)
    second = back_up(root, tmp_path / "copies")
    assert second.is_complete and bodies(second.path) == bodies(root)
    assert [note for note in second.report.notes if f"log file {file_name(FILE)} was damaged" in note]
    assert not os.path.samefile(path, second.path / "commitlog" / file_name(FILE))
    assert os.path.samefile(first.path / "commitlog" / file_name(0), second.path / "commitlog" / file_name(0))
    assert log_names(second.path) == log_names(first.path)
    assert second.linked_bytes == FILE * (len(log_names(first.path)) - 2)


def test_a_broker_that_starts_meanwhile(config: MessageStoreConfig, tmp_path: Path) -> None:
    """Fault: A broker that started while its stopped store was copied made the copy look damaged."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        put(writer, COUNT)
    close_store(opened, clean=True)
    started: list[OpenedStore] = []

    def start() -> None:
        started.append(open_store(config))
        with StoreWriter(config, started[0].control) as writer:
            put(writer, COUNT)

    made = back_up(opened.paths.root, tmp_path / "copies", listener=At("log", start))
    assert made.is_complete and made.report.records >= COUNT
    close_store(started[0], clean=False)
    again = open_store(attrs.evolve(config, store_path_root_dir=str(made.path)))
    queues = [again.control.queue("T", queue_id) for queue_id in range(2)]
    assert sum(queue.max_offset for queue in queues if queue is not None) == made.report.records
    close_store(again, clean=True)


@pytest.mark.parametrize("name", ["config", "config/topics.json", "consumequeue/T"])
def test_a_link_in_a_store_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    """Fault: Backups left out links in silence, so a copy could lack topics and committed offsets."""
    place, target = root / name, tmp_path / "elsewhere"
    place.rename(target)
    place.symlink_to(target)
    with pytest.raises(StoreError, match=f"{place} is a link"):
        back_up(root, tmp_path / "copies")
    place.unlink()
    target.rename(place)
    assert back_up(root, tmp_path / "copies").is_complete


@pytest.mark.parametrize("is_link", [False, True])
def test_a_log_below_the_root_is_copied_once(root: Path, tmp_path: Path, is_link: bool) -> None:
    """Fault: A log below the root with a name of its own was also copied as a table, in full each time."""
    place = tmp_path / "disk" if is_link else root / "log"
    (root / "commitlog").rename(place)
    if is_link:
        (root / "log").symlink_to(place)
    made = back_up(root, tmp_path / "copies", str(root / "log" if is_link else root / ".." / root.name / "log"))
    assert made.is_complete and made.report.records == COUNT
    assert not (made.path / "log").exists()
    place.rename(root / "commitlog")


def test_places_that_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="inside of the store"):
        back_up(root, root / "copies")
    with pytest.raises(StoreError, match="is not a directory"):
        back_up(tmp_path / "absent", tmp_path / "copies")

    def another() -> None:
        with pytest.raises(StoreError, match=r"another backup to .* is running"):
            back_up(root, tmp_path / "copies")

    assert back_up(root, tmp_path / "copies", listener=At("log", another)).is_complete


def test_the_manifest_tells_the_end(root: Path, opened: OpenedStore, tmp_path: Path) -> None:
    made = back_up(root, tmp_path / "copies")
    end = opened.control.published_phy_offset
    assert json.loads((made.path / "backup.json").read_text()) == {"store": str(root), "logEnd": end, "fullLogEnd": end}


def test_other_files_in_the_directory_are_left_alone(root: Path, tmp_path: Path) -> None:
    """A directory that also holds a download, or something that somebody has set aside, loses none of it."""
    copies = tmp_path / "copies"
    kept = [copies / "photos.removed" / "1.jpg", copies / "download.part" / "1.zip", copies / "a.part"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    (copies / "b.removed").write_text("precious")
    assert back_up(root, copies).is_complete
    assert [path.read_text() for path in [*kept, copies / "b.removed"]] == ["precious"] * 4


def test_a_manifest_that_cannot_be_read_names_the_copy(root: Path, tmp_path: Path) -> None:
    made = back_up(root, tmp_path / "copies")
    (made.path / "backup.json").write_text('{"fullLogEnd": Infinity}')
    with pytest.raises(StoreError, match=f"remove {made.path}, which is no usable copy"):
        back_up(root, tmp_path / "copies")


def test_a_copy_is_open_to_those_that_the_store_is_open_to(root: Path, tmp_path: Path) -> None:
    for mode in (0o700, 0o750):
        root.chmod(mode)
        assert back_up(root, tmp_path / "copies").path.stat().st_mode & 0o777 == mode
