"""The log's end: the filler rule byte for byte, rolls, batches as a whole; and reading within its bounds."""

from __future__ import annotations

import os
import resource

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.store.files import file_name
from rocketpy.store.reading.commitlog import CommitLog
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.store_writer import StoreWriter

FILE_SIZE = 16_384


def fill_to(writer: StoreWriter, position: int) -> None:
    """Move the log's end to `position` by one reservation."""
    size = position - writer.control.published_phy_offset
    at, _ = writer.reserve(size)
    ffi.memmove(at, b"\x01" * size, size)
    lib.rp_commitlog_publish(writer._log, size, 1)


def test_a_blank_fills_the_rest_of_a_file(writer: StoreWriter, opened: OpenedStore) -> None:
    """Holds: store, one log for all topics in files named by their start offset."""
    fill_to(writer, 16_372)
    _, phy_offset = writer.reserve(100)
    assert phy_offset == FILE_SIZE
    image = (opened.paths.commitlog / file_name(0)).read_bytes()
    assert image[16_372:] == bytes.fromhex("0000000c cbd43194 00000000")
    assert writer.control.published_phy_offset == FILE_SIZE


@pytest.mark.parametrize(("rest", "size", "fits"), [(100, 92, True), (100, 93, False), (8, 1, False)])
def test_eight_bytes_always_remain(writer: StoreWriter, rest: int, size: int, fits: bool) -> None:
    fill_to(writer, FILE_SIZE - rest)
    _, phy_offset = writer.reserve(size)
    assert phy_offset == (FILE_SIZE - rest if fits else FILE_SIZE)


def test_nothing_larger_than_a_file(writer: StoreWriter) -> None:
    at, phy_offset = ffi.new("uint8_t **"), ffi.new("uint64_t *")
    assert lib.rp_commitlog_reserve(writer._log, FILE_SIZE - 7, at, phy_offset) == -2
    assert lib.rp_commitlog_reserve(writer._log, FILE_SIZE - 8, at, phy_offset) == 0
    assert writer.control.published_phy_offset == 0


def test_files_have_their_full_size_and_no_company(writer: StoreWriter, opened: OpenedStore) -> None:
    """Holds: store, files in ascending order."""
    for _ in range(20):
        writer.put(body=b"x" * 4000, properties=b"KEYS\x01k")
    infos = sorted((path.name, path.stat().st_size) for path in opened.paths.commitlog.iterdir())
    assert infos == [(file_name(start), FILE_SIZE) for start in range(0, len(infos) * FILE_SIZE, FILE_SIZE)]
    assert len(infos) >= 5
    assert {path.name for path in opened.paths.root.iterdir()} == {
        "abort",
        "commitlog",
        "consumequeue",
        "control",
        "index",
        "lock",
    }


def test_reading_stays_within_the_published_log(writer: StoreWriter, opened: OpenedStore) -> None:
    log = CommitLog(opened.paths.commitlog, opened.control)
    put = writer.put(store_timestamp_ms=77)
    assert log.read(0, put.size) == put.image
    assert log.read(0, put.size + 1) is None and log.read(put.size, 1) is None and log.read(0, 0) is None
    assert log.store_timestamp_ms(0, put.size) == 77
    assert log.store_timestamp_ms(put.size, 100) == -1
    record = log.record(0)
    assert record is not None and record.topic == "TopicTest"
    opened.control.header.min_phy_offset = 10
    assert log.read(0, put.size) is None
    log.close()


def test_a_log_that_cannot_be_read_now_has_lost_nothing(
    config: MessageStoreConfig, writer: StoreWriter, opened: OpenedStore
) -> None:
    """Who takes it for a message that is gone would pass over it: a delayed one for ever, a pull's for its consumer.
    Fault: A manager without descriptors or memory to map a log file took its messages for deleted."""
    puts = [writer.put("T", 0, b"x" * 9_000) for _ in range(2)]  # a file each
    store = MessageStore(config, opened.control)
    assert store.get_message("T", 0, 0, 1).records == [puts[0].image]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    store.consume_queue_units("T", 0, 0, 2)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(StoreError, match="cannot read the log"):
            store.look_message_by_offset(puts[1].phy_offset)
        with pytest.raises(StoreError, match="cannot read the log"):
            store.get_message("T", 0, 1, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert store.look_message_by_offset(puts[1].phy_offset) == puts[1].image
    (opened.paths.commitlog / file_name(FILE_SIZE)).unlink()
    store.close()
    store = MessageStore(config, opened.control)
    assert store.look_message_by_offset(puts[1].phy_offset) is None
    store.close()
