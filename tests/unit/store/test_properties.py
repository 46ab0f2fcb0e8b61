"""That properties of the store do what they say, where no other test would notice.

The list of all properties is in tests/unit/config/test_store_properties.py.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest

from rocketpy.bench import cold
from rocketpy.config import MessageStoreConfig
from rocketpy.message.tags import index_hash
from rocketpy.remoting.work import result_of
from rocketpy.store.formats.index_file import UNITS_PER_STEP, index_files
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.page_cache import RANDOM, cached_pages, flags_of_mappings, is_in_memory
from tests.support.store_writer import StoreWriter, small_config

NOW = 1_700_000_000_000
PAGE = mmap.PAGESIZE
KEYS_MAX = 128  # of one message that are indexed


def put_all(config: MessageStoreConfig, count: int = 20, properties: bytes = b"KEYS\x01k") -> OpenedStore:
    """A store with messages in queue 0 of T, a second apart; open."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(count):
            writer.put("T", 0, b"x" * 1_000, properties, store_timestamp_ms=NOW + 1000 * i)
    return opened


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_store_path_commit_log(tmp_path: Path) -> None:
    config = small_config(tmp_path / "store", store_path_commit_log=str(tmp_path / "another" / "log"))
    opened = put_all(config)
    assert names(tmp_path / "another" / "log")[:2] == [f"{0:020d}", f"{16_384:020d}"]
    assert not (tmp_path / "store" / "commitlog").exists()
    store = MessageStore(config, opened.control)
    assert len(store.get_message("T", 0, 0, 32).records) == 20
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize("size", [8_192, 32_768])
def test_mapped_file_size_commit_log(tmp_path: Path, size: int) -> None:
    """Holds: store, configurable file sizes."""
    opened = put_all(small_config(tmp_path, mapped_file_size_commit_log=size))
    paths = sorted(opened.paths.commitlog.iterdir())
    assert [path.name for path in paths[:2]] == [f"{0:020d}", f"{size:020d}"][: len(paths)]
    assert {path.stat().st_size for path in paths} == {size}
    close_store(opened, clean=True)


@pytest.mark.parametrize(("size", "rounded"), [(100, 100), (101, 120), (199, 200)])
def test_mapped_file_size_consume_queue(tmp_path: Path, size: int, rounded: int) -> None:
    opened = put_all(small_config(tmp_path, mapped_file_size_consume_queue=size))
    paths = sorted((opened.paths.consumequeue / "T" / "0").iterdir())
    assert [path.name for path in paths[:2]] == [f"{0:020d}", f"{rounded:020d}"]
    assert {path.stat().st_size for path in paths} == {rounded}
    close_store(opened, clean=True)


@pytest.mark.parametrize("is_on", [True, False])
def test_data_read_ahead_enable(tmp_path: Path, is_on: bool) -> None:
    """Off: the kernel is told that the log is read at random; a message comes from the disk with its pages alone.
    Fault: Each cold read of 4 KiB took 123 KB from the disk, and nothing could change that."""
    config = small_config(tmp_path, data_read_ahead_enable=is_on, mapped_file_size_commit_log=1 << 20)
    opened = put_all(config, 200)
    (file,) = opened.paths.commitlog.iterdir()
    cold.drop(opened.paths.commitlog)
    is_on_disk = not is_in_memory(file)  # in a file system of memory nothing is read from a disk
    store = MessageStore(config, opened.control)
    expected = set[int]()
    for offset in (100, 150):
        if is_on_disk and not is_on:
            assert cached_pages(file) == expected
        (unit,) = store.consume_queue_units("T", 0, offset, 1)
        assert store.log.read(unit.phy_offset, unit.size) is not None
        expected |= set(range(unit.phy_offset // PAGE, (unit.phy_offset + unit.size - 1) // PAGE + 1))
    if is_on_disk and not is_on:
        assert cached_pages(file) == expected
    assert any(RANDOM in flags for flags in flags_of_mappings(file)) != is_on
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize("is_on", [True, False])
def test_message_index_enable(tmp_path: Path, is_on: bool) -> None:
    config = small_config(tmp_path, message_index_enable=is_on)
    opened = put_all(config)
    store = MessageStore(config, opened.control)
    assert len(result_of(store.message_query("T", "k", 99, 0, 1 << 60)).records) == 20 * is_on
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(("slots", "units"), [(10, 400), (50, 7)])
def test_sizes_of_index_files(tmp_path: Path, slots: int, units: int) -> None:
    """Holds: store, configurable file sizes."""
    config = small_config(tmp_path, max_hash_slot_num=slots, max_index_num=units)
    opened = put_all(config)
    store = MessageStore(config, opened.control)
    files = index_files(store.files, opened.paths.index)
    assert len(files) == -(-20 // (units - 1))
    assert {path.stat().st_size for path in files} == {40 + 4 * slots + 20 * units}
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(("limit", "asked", "count"), [(64, 99, 20), (5, 99, 5), (5, 3, 3)])
def test_max_msgs_num_batch(tmp_path: Path, limit: int, asked: int, count: int) -> None:
    config = small_config(tmp_path, max_msgs_num_batch=limit)
    opened = put_all(config)
    store = MessageStore(config, opened.control)
    assert len(result_of(store.message_query("T", "k", asked, 0, 1 << 60)).records) == count
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(
    ("asked", "begin_s", "end_s", "found"),
    [
        (99, -1, 99, range(20)),
        (4, -1, 99, range(16, 20)),  # the newest ones, oldest first
        (99, 5, 8, range(5, 9)),
        (2, 5, 8, range(7, 9)),
        (99, 20, 30, ()),
        (99, -9, -1, ()),
        (99, 17, 17, (17,)),
    ],
)
@pytest.mark.parametrize("units", [400, 7])  # one index file, and four
def test_queries_by_key(
    tmp_path: Path, asked: int, begin_s: int, end_s: int, found: range | tuple[int, ...], units: int
) -> None:
    """Holds: query, messages by key and time."""
    config = small_config(tmp_path, max_index_num=units)
    opened = put_all(config)
    store = MessageStore(config, opened.control)
    result = result_of(store.message_query("T", "k", asked, NOW + 1000 * begin_s, NOW + 1000 * end_s))
    assert [struct.unpack_from(">q", record, 20)[0] for record in result.records] == list(found)
    assert result.index_last_update_timestamp_ms == NOW + 19_000
    assert result.index_last_update_phy_offset == store.consume_queue_units("T", 0, 19, 1)[0].phy_offset
    store.close()
    close_store(opened, clean=True)


def test_a_long_chain_of_the_index_is_read_in_steps(tmp_path: Path) -> None:
    """Fault: A query by a frequent key held up heartbeats for seconds."""
    units = 5_000
    config = small_config(tmp_path, mapped_file_size_commit_log=1 << 20, max_index_num=units)
    keys = " ".join(["k"] * KEYS_MAX)
    opened = put_all(config, units // KEYS_MAX, b"KEYS\x01" + keys.encode())
    store = MessageStore(config, opened.control)
    slot = index_hash("T#k") % config.max_hash_slot_num
    other = next(f"{n}" for n in range(10_000) if index_hash(f"T#{n}") % config.max_hash_slot_num == slot)
    steps = store.message_query("T", other, 64, 0, 1 << 60)  # none of its units: to the chain's end
    assert sum(1 for _ in steps) >= units // UNITS_PER_STEP - 1
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(("bytes_max", "found"), [(1 << 20, 20), (5_500, 5), (100, 0)])
def test_the_records_of_a_query_are_bounded_in_bytes(tmp_path: Path, bytes_max: int, found: int) -> None:
    """Fault: A query by key copied up to 64 messages of any size into the manager's memory."""
    config = small_config(tmp_path)
    opened = put_all(config)
    store = MessageStore(config, opened.control)
    result = result_of(store.message_query("T", "k", 64, 0, 1 << 60, bytes_max))
    assert [struct.unpack_from(">q", record, 20)[0] for record in result.records] == list(range(20 - found, 20))
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(("levels", "delay_ms"), [("1s 5s 10s", 5_000), ("1s 7m", 420_000)])
def test_message_delay_level(tmp_path: Path, levels: str, delay_ms: int) -> None:
    config = small_config(tmp_path, message_delay_level=levels)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        writer.put("SCHEDULE_TOPIC_XXXX", 1, b"", b"DELAY\x012", store_timestamp_ms=NOW)
    store = MessageStore(config, opened.control)
    assert store.consume_queue_units("SCHEDULE_TOPIC_XXXX", 1, 0, 1)[0].tags_code == NOW + delay_ms
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(
    ("change", "memory_bytes", "count"),
    [
        ({}, 1 << 40, 20),
        ({"max_transfer_count_on_message_in_memory": 3}, 1 << 40, 3),
        ({"max_transfer_bytes_on_message_in_memory": 5_000}, 1 << 40, 4),
        ({}, 0, 8),
        ({"max_transfer_count_on_message_in_disk": 3}, 0, 3),
        ({"max_transfer_bytes_on_message_in_disk": 5_000}, 0, 4),
        ({"access_message_in_memory_max_ratio": 100}, 30_000, 20),
        ({"access_message_in_memory_max_ratio": 40}, 30_000, 8),
    ],
)
def test_transfer_limits(tmp_path: Path, change: dict[str, int], memory_bytes: int, count: int) -> None:
    config = small_config(tmp_path, **change)
    opened = put_all(config)
    store = MessageStore(config, opened.control, memory_bytes=memory_bytes)
    assert len(store.get_message("T", 0, 0, 32).records) == count
    store.close()
    close_store(opened, clean=True)


@pytest.mark.parametrize(("checks", "count"), [(True, 5), (False, 20)])
def test_check_crc_on_recover(tmp_path: Path, checks: bool, count: int) -> None:
    config = small_config(tmp_path, check_crc_on_recover=checks)
    opened = put_all(config)
    store = MessageStore(config, opened.control)
    unit = store.consume_queue_units("T", 0, 5, 1)[0]
    store.close()
    close_store(opened, clean=False)
    opened.paths.control.unlink()
    with (opened.paths.commitlog / f"{0:020d}").open("r+b") as file:
        file.seek(unit.phy_offset + 500)
        file.write(b"y")
    opened = open_store(config)
    store = MessageStore(config, opened.control)
    with StoreWriter(config, opened.control) as writer:
        writer.dispatch.run_to_end()
    assert store.max_offset("T", 0) == count
    store.close()
    close_store(opened, clean=False)


@pytest.mark.parametrize(("is_safe", "begins_at_start"), [(True, True), (False, False)])
def test_message_index_safe(tmp_path: Path, is_safe: bool, begins_at_start: bool) -> None:
    """Without a control block, recovery begins where log and units, or the index as well, were flushed."""
    config = small_config(tmp_path, message_index_safe=is_safe)
    opened = put_all(config, 40)
    header = opened.control.header
    header.physic_timestamp_ms = header.logics_timestamp_ms = NOW + 39_000
    header.index_timestamp_ms = NOW
    checkpoint = struct.pack(">qqq", NOW + 39_000, NOW + 39_000, NOW)
    close_store(opened, clean=False)
    opened.paths.checkpoint.write_bytes(checkpoint + bytes(4096 - len(checkpoint)))
    opened.paths.control.unlink()
    opened = open_store(config)
    assert (opened.report.dispatched_from == 0) is begins_at_start
    close_store(opened, clean=False)
