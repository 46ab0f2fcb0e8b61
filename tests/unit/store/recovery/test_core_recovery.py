"""Each function of csrc/store/recovery/recovery.h: scans of the log, units of a queue file, checks of queues."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import ffi, lib
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.unit import CQ_UNIT
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.log_files import NOTHING_MISSING, LogFiles
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.records import Record
from tests.support.reopened_store import another_boot, check, fill, kill, reopen
from tests.support.store_writer import BORN_HOST, STORE_HOST

DAMAGE = 8  # bytes


def check_queues(opened: OpenedStore) -> int:
    directory = os.fsencode(opened.paths.consumequeue)
    return int(
        lib.rp_recovery_check_queues(opened.control.block, directory, opened.config.mapped_file_size_consume_queue)
    )


def log_of(opened: OpenedStore) -> LogFiles:
    return LogFiles(opened.paths.commitlog, DiskFiles(), opened.config.mapped_file_size_commit_log)


def zero_units(directory: Path, first: int) -> None:
    """Fill a queue's last file with zeros, from the unit at offset `first` on."""
    path = max(directory.iterdir())
    image = path.read_bytes()
    path.write_bytes(image[: first * CQ_UNIT.size - int(path.name)].ljust(len(image), b"\0"))


def test_a_scan_finds_the_first_record_without_its_unit(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened, 20)
    queue = opened.control.queue("A", 1)
    assert log_of(opened).scan(0, queues=opened.control).missing == NOTHING_MISSING
    queue.max_phy_offset -= 1
    assert log_of(opened).scan(0, queues=opened.control).missing == puts["A", 1][-1].phy_offset
    kill(opened)


@pytest.mark.parametrize(("lacking", "has_gap"), [(0, False), (1, True), (2, True)])
def test_a_scan_finds_a_queue_that_lacks_units_of_earlier_records(
    config: MessageStoreConfig, lacking: int, has_gap: bool
) -> None:
    opened = open_store(config)
    puts = fill(opened, 20)["A", 1]
    opened.control.queue("A", 1).next_offset = 3 - lacking
    scan = log_of(opened).scan(puts[3].phy_offset, queues=opened.control)
    assert scan.gap == (puts[3].phy_offset if has_gap else NOTHING_MISSING)
    kill(opened)


def test_a_queue_whose_last_unit_is_lost_beside_a_clean_stop_is_made_again(config: MessageStoreConfig) -> None:
    """The stop was a Java broker's: there is no control block. Other queues have units of later records."""
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    zero_units(opened.paths.consumequeue / "A" / "1", 49)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES and opened.report.queues_rebuilt == 1
    check(opened, puts)
    kill(opened)


def test_a_search_for_the_next_record_skips_a_record_inside_a_body() -> None:
    """A message may carry the bytes of a stored message: only a record of the log names its own place."""

    def image(body: bytes, phy_offset: int) -> bytes:
        record = Record(
            topic="T",
            body=body,
            born_timestamp_ms=1,
            born_host=BORN_HOST,
            store_timestamp_ms=1,
            store_host=STORE_HOST,
        )
        return record.encode(phy_offset=phy_offset, queue_offset=0)

    begin = 5_000  # of the damage
    carried = image(b"carried", 77)
    data = bytes(DAMAGE) + carried + image(b"next", begin + DAMAGE + len(carried))
    assert lib.rp_recovery_resync(data, len(data), begin) == DAMAGE + len(carried)


def test_next_offsets_are_found_behind_deleted_files(config: MessageStoreConfig) -> None:
    """Cleaning has deleted the file with the dispatched position; a position below the minimum would be read for
    ever."""
    opened = open_store(config)
    puts = fill(opened, dispatch_until=149)
    (opened.paths.commitlog / file_name(0)).unlink()
    header = opened.control.header
    header.min_phy_offset, header.dispatched_phy_offset = config.mapped_file_size_commit_log, 100
    arguments = (opened.control.block, os.fsencode(opened.paths.commitlog))
    found = threading.Thread(target=lib.rp_recovery_next_offsets, args=arguments)
    found.start()
    found.join(60)
    is_endless, header.min_phy_offset = found.is_alive(), 0  # which ends it
    found.join()
    assert not is_endless
    assert {(queue.topic, queue.queue_id): queue.next_offset for queue in opened.control.queues()} == {
        queue: len(own) for queue, own in puts.items()
    }
    kill(opened)


@pytest.mark.parametrize(("limit", "count", "end"), [(249, 1, 100), (250, 2, 250), (251, 2, 250), (100, 1, 100)])
def test_units_of_records_that_go_on_after_the_limit_do_not_count(limit: int, count: int, end: int) -> None:
    units = CQ_UNIT.pack(0, 100, 0) + CQ_UNIT.pack(100, 150, 0) + bytes(CQ_UNIT.size)
    last = ffi.new("uint64_t *")
    assert (lib.rp_recovery_count_units(units, len(units), limit, last), last[0]) == (count, end)


def test_a_queue_with_units_after_the_end_of_the_log_is_reset_with_its_files(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened, 30)
    assert check_queues(opened) == 0
    opened.control.header.published_phy_offset = puts["B", 7][-1].phy_offset
    assert check_queues(opened) == 1
    queue = opened.control.queue("B", 7)
    assert (queue.min_offset, queue.max_offset, queue.max_phy_offset) == (0, 0, 0)
    assert not any((opened.paths.consumequeue / "B").rglob("0*")), "old units would stand after the new ones"
    kill(opened)


def test_a_power_failure_while_a_lost_queue_is_built_again(config: MessageStoreConfig) -> None:
    """The units of the queue were on the disk before; they are not any more, so the block must not say so."""
    opened = open_store(config)
    puts = fill(opened)
    header = opened.control.header
    header.durable_phy_offset = header.units_durable_phy_offset = header.published_phy_offset
    zero_units(opened.paths.consumequeue / "A" / "1", 49)
    assert check_queues(opened) == 1 and header.units_durable_phy_offset == 0
    kill(opened)
    another_boot(opened.paths)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FLUSHED
    check(opened, puts)
    kill(opened)


def test_nobody_waits_for_a_queue_after_a_start(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    fill(opened, 3)
    for entry in opened.control.entries():
        entry.watched = 1
    kill(opened)
    opened = reopen(config)
    assert [entry.watched for entry in opened.control.entries()] == [0, 0, 0]
    kill(opened)
