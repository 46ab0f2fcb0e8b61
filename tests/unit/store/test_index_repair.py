"""An index after a power failure, which may lose any page: consistent units are kept, the rest is indexed again."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import struct
import types
from pathlib import Path
from unittest.mock import Mock

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.remoting.work import result_of
from rocketpy.store.files import DiskFiles
from rocketpy.store.formats.checkpoint import StoreCheckpoint, write_checkpoint
from rocketpy.store.formats.index_file import index_files
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.inspection.verify import verify_store
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery import index_repair
from rocketpy.store.recovery.index_repair import repair_index
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.store_writer import StoreWriter

FILES = DiskFiles()
COUNT = 500  # two index files: one has room for 399
SLOTS_AT, UNITS_AT = 40, 440


@pytest.fixture
def root(config: MessageStoreConfig) -> Path:
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(COUNT):
            writer.put(
                "T", 0, b"", b"KEYS\x01k%d" % i, store_timestamp_ms=1_700_000_000_000 + i, dispatch=i == COUNT - 1
            )
        opened.control.header.durable_phy_offset = opened.control.header.published_phy_offset
        opened.control.header.units_durable_phy_offset = opened.control.header.published_phy_offset
    close_store(opened, clean=False)
    return opened.paths.root


def repair(root: Path, synced_until_ms: int = 0, phy_limit: int = 1 << 62) -> int | None:
    return repair_index(FILES, root / "index", 100, 400, synced_until_ms, phy_limit)


def end_timestamp_ms(path: Path) -> int:
    return int(struct.unpack_from(">q", path.read_bytes(), 8)[0])


def lose(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def all_keys_are_found(config: MessageStoreConfig, kind: RecoveryKind = RecoveryKind.FLUSHED) -> None:
    """After another boot, everything is there again."""
    with (Path(config.store_path_root_dir) / "control").open("r+b") as file:
        file.seek(24)
        file.write(bytes(16))  # the boot id
    if kind is RecoveryKind.FILES:
        (Path(config.store_path_root_dir) / "control").unlink()
    opened = open_store(config)
    assert opened.report.kind is kind
    store = MessageStore(config, opened.control)
    for i in range(COUNT):
        assert len(result_of(store.message_query("T", f"k{i}", 9, 0, 1 << 60)).records) == 1, i
    store.close()
    report = verify_store(StoreDump(opened.paths.root))
    assert [problem for problem in report.problems if problem.file.startswith("index")] == []
    close_store(opened, clean=False)


def test_a_whole_index_is_left_alone(root: Path) -> None:
    before = [path.read_bytes() for path in index_files(FILES, root / "index")]
    last = list(StoreDump(root).records())[-1].phy_offset
    assert len(before) == 2 and repair(root) == last
    assert [path.read_bytes() for path in index_files(FILES, root / "index")] == before


@pytest.mark.parametrize(
    ("number", "at", "size"),
    [
        (1, 0, 40),  # the newest header
        (1, SLOTS_AT, 400),  # all of its slots
        (1, SLOTS_AT + 200, 80),
        (1, UNITS_AT + 20 * 50, 200),
        (1, UNITS_AT, 8000),
        (0, UNITS_AT + 20 * 300, 20),  # in a full file: what follows goes, too
        (0, SLOTS_AT, 100),
        (0, 0, 40),
    ],
)
def test_lost_pages(config: MessageStoreConfig, root: Path, number: int, at: int, size: int) -> None:
    """Fault: A power failure left holes in the newest index file that hid keys of existing messages."""
    lose(index_files(FILES, root / "index")[number], at, size)
    all_keys_are_found(config)


@pytest.mark.parametrize("kind", [RecoveryKind.FLUSHED, RecoveryKind.FILES])
def test_lost_pages_of_an_index_of_which_nothing_is_known(
    config: MessageStoreConfig, root: Path, kind: RecoveryKind
) -> None:
    """The block was loaded from the files, or is gone; all units of queues are on the disk."""
    opened = open_store(config)
    opened.control.header.indexed_phy_offset = 0
    close_store(opened, clean=False)
    late_ms = end_timestamp_ms(index_files(FILES, root / "index")[-1]) + 10_000
    write_checkpoint(FILES, root / "checkpoint", StoreCheckpoint(late_ms, late_ms, 0))
    lose(index_files(FILES, root / "index")[0], UNITS_AT + 20 * 300, 20)
    all_keys_are_found(config, kind)


@pytest.mark.parametrize("seed", range(6))
def test_any_sectors_lost(config: MessageStoreConfig, root: Path, seed: int) -> None:
    rng = random.Random(seed)
    for path in index_files(FILES, root / "index"):
        for _ in range(rng.randrange(4)):
            size = rng.choice((512, 1024, 4096))
            at = rng.randrange(path.stat().st_size // 512) * 512
            lose(path, at, min(size, path.stat().st_size - at))
    all_keys_are_found(config)


def test_a_slot_that_names_the_unit_to_come_is_set_back(config: MessageStoreConfig, root: Path) -> None:
    """Its writer died before it was counted, and the power went before the unit was written back.
    Fault: After a power failure a slot could name a lost index unit that hid older keys."""
    newest = index_files(FILES, root / "index")[-1]
    image = newest.read_bytes()
    slots, (count,) = struct.unpack_from(">100i", image, SLOTS_AT), struct.unpack_from(">i", image, 36)
    slot = next(slot for slot, unit in enumerate(slots) if 0 < unit < count)
    with newest.open("r+b") as file:
        file.seek(SLOTS_AT + 4 * slot)
        file.write(struct.pack(">i", count))
    repair(root)
    assert newest.read_bytes() == image
    all_keys_are_found(config)


def test_a_lost_file_or_a_lost_directory(config: MessageStoreConfig, root: Path) -> None:
    index_files(FILES, root / "index")[1].unlink()
    all_keys_are_found(config)
    shutil.rmtree(root / "index")
    assert repair(root) is None


def test_files_that_are_certainly_on_the_disk_are_not_looked_at(root: Path) -> None:
    first, second = index_files(FILES, root / "index")
    lose(first, UNITS_AT + 20 * 300, 20)
    image, end_ms = first.read_bytes(), end_timestamp_ms(second)
    repair(root, synced_until_ms=end_ms)
    assert first.read_bytes() == image and second.exists()
    repair(root, synced_until_ms=end_ms - 1)  # the second may lack its last key
    assert first.read_bytes() != image
    assert not second.exists(), "keys are added to the newest file, and the first one has lost some"


def test_after_a_failed_sync_files_that_were_synced_before_stay(root: Path) -> None:
    first, second = index_files(FILES, root / "index")
    end = repair_index(FILES, root / "index", 100, 400, end_timestamp_ms(first), 1 << 62, has_failed_sync=True)
    assert first.exists() and not second.exists()
    header = next(iter(StoreDump(root).index_headers()))[1]
    assert header is not None and end == header.end_phy_offset


def test_a_new_file_without_units_does_not_show_that_the_one_before_it_was_synced(root: Path) -> None:
    first, second = index_files(FILES, root / "index")
    lose(first, UNITS_AT + 20 * 300, 20)
    second.write_bytes(struct.pack(">36xi", 1).ljust(second.stat().st_size, b"\0"))  # units are counted from 1
    image = first.read_bytes()
    repair(root, synced_until_ms=end_timestamp_ms(first) - 1)
    assert first.read_bytes() != image and not second.exists()


def test_after_a_failed_sync_a_file_without_header_goes(root: Path) -> None:
    first, second = index_files(FILES, root / "index")
    os.truncate(second, 10)
    repair_index(FILES, root / "index", 100, 400, end_timestamp_ms(first), 1 << 62, has_failed_sync=True)
    assert index_files(FILES, root / "index") == [first]


def test_an_index_that_has_lost_all_its_files_is_made_again_from_the_begin_of_the_log(root: Path) -> None:
    assert repair_index(FILES, root / "index", 100, 400, 0, 1 << 62, has_failed_sync=True) == 0
    assert index_files(FILES, root / "index") == []


def test_an_index_of_other_numbers_is_not_touched(root: Path) -> None:
    first, second = (path.read_bytes() for path in index_files(FILES, root / "index"))
    assert repair_index(FILES, root / "index", 99, 400, 0, 1 << 62) == 0
    assert [path.read_bytes() for path in index_files(FILES, root / "index")] == [first, second]


def test_a_file_that_cannot_be_read_stops_the_start(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = index_files(FILES, root / "index")[-1]
    monkeypatch.setattr(index_repair, "mmap", types.SimpleNamespace(mmap=Mock(side_effect=OSError(errno.EIO, "?"))))
    with pytest.raises(StoreError, match=f"cannot repair {newest}"):
        repair(root)


def test_keys_of_records_that_are_entered_again_are_forgotten(root: Path) -> None:
    """They may be of others, that were lost; and the file stays in the order of the log.
    Fault: Index keys of lost records stayed, and the next repair took the newer keys for damage."""
    puts = list(StoreDump(root).records())
    limit = puts[-3].phy_offset
    assert repair(root, phy_limit=limit) == puts[-4].phy_offset
    newest = list(StoreDump(root).index_headers())[-1][1]
    assert newest is not None and newest.end_phy_offset == puts[-4].phy_offset < limit


def test_what_a_sync_of_the_index_has_lost_is_entered_again(config: MessageStoreConfig) -> None:
    """The kernel reports a failure once: the file looks whole until it is read from the disk.
    Fault: After a failed index sync the checkpoint moved on, so keys could be missing after a power failure."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(COUNT):
            time_ms = 1_700_000_000_000 + i
            writer.put("T", 0, b"", b"KEYS\x01k%d" % i, store_timestamp_ms=time_ms, dispatch=i == COUNT - 1)
        opened.control.header.durable_phy_offset = opened.control.header.published_phy_offset
        full, newest = index_files(FILES, opened.paths.root / "index")
        replace_descriptor(full, "/dev/null")  # which cannot be synced
        for _ in range(2):
            with pytest.raises(StoreError, match="index could not be flushed"):
                writer.dispatch.sync()
        assert opened.control.header.index_timestamp_ms == 0
    close_store(opened, clean=False)
    again = open_store(config)
    assert again.report.kind is RecoveryKind.FLUSHED and again.control.header.units_lost == 0
    assert not full.exists() and not newest.exists()
    close_store(again, clean=False)
    all_keys_are_found(config)


def replace_descriptor(path: Path, by: str) -> None:
    target = os.open(by, os.O_RDWR)
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if link.stat().st_ino == path.stat().st_ino:
                os.dup2(target, int(link.name))
    os.close(target)
