"""After a power failure the store has what was flushed, and what was torn is told from what is whole."""

from __future__ import annotations

import shutil
import struct

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import lib
from rocketpy.store.files import file_name
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import TOPICS, Filled, another_boot, check, fill, kill, reopen
from tests.support.store_writer import StoreWriter


def test_stale_bytes_behind_the_end_are_wiped(config: MessageStoreConfig) -> None:
    """Records of an earlier life behind the end must never be walked into."""
    opened = open_store(config)
    puts = fill(opened, 60)
    close_store(opened, clean=False)
    opened.paths.control.unlink()
    cut = puts["A", 0][10]  # this record is damaged: the log ends before it
    path = opened.paths.commitlog / file_name(cut.phy_offset - cut.phy_offset % 16_384)
    with path.open("r+b") as file:
        file.seek(cut.phy_offset % 16_384 + 90)
        file.write(b"\xff\xff\xff")
    opened = reopen(config)
    assert opened.report.log_end == cut.phy_offset
    assert not any(path.read_bytes()[cut.phy_offset % 16_384 :])
    left = {queue: [put for put in list_ if put.phy_offset < cut.phy_offset] for queue, list_ in puts.items()}
    check(opened, left, with_index=False)
    kill(opened)


def test_units_behind_the_end_are_dropped(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened, 60)
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    last = max(int(path.name) for path in opened.paths.commitlog.iterdir())
    (opened.paths.commitlog / file_name(last)).unlink()
    opened = reopen(config)
    assert opened.report.log_end == last
    left = {queue: [put for put in list_ if put.phy_offset < last] for queue, list_ in puts.items()}
    check(opened, left, with_index=False)
    kill(opened)


@pytest.mark.parametrize("lost", ["queues", "log tail", "both", "index"])
def test_power_failure_keeps_what_was_flushed(config: MessageStoreConfig, lost: str) -> None:
    """Holds: store, flush modes in a power failure."""
    opened = open_store(config)
    first = fill(opened, 90)
    header = opened.control.header
    header.durable_phy_offset = flushed = header.published_phy_offset  # what flush and the units' sync have covered
    header.units_durable_phy_offset = units = first["A", 0][10].phy_offset
    with StoreWriter(config, opened.control) as writer:
        tail = [writer.put("A", 0, b"tail") for _ in range(5)]
    kill(opened)
    paths = opened.paths
    another_boot(paths)
    if lost in ("queues", "both"):  # every unit behind the synced ones
        for topic, queue_id in TOPICS:
            gone = sum(1 for put in first[topic, queue_id] if put.phy_offset < units)
            directory = paths.consumequeue / topic / str(queue_id)
            for path in directory.iterdir():
                image = bytearray(path.read_bytes())
                keep = max(0, gone * 20 - int(path.name))
                image[keep:] = bytes(len(image[keep:]))
                path.write_bytes(image)
    if lost in ("log tail", "both"):
        path = paths.commitlog / file_name(tail[1].phy_offset - tail[1].phy_offset % 16_384)
        image = bytearray(path.read_bytes())
        image[tail[1].phy_offset % 16_384 :] = bytes(16_384 - tail[1].phy_offset % 16_384)
        path.write_bytes(image)
        tail = tail[:1]
    if lost == "index":
        shutil.rmtree(paths.index)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FLUSHED
    assert opened.report.log_end >= flushed and opened.report.scanned_records == len(tail)
    check(opened, {**first, ("A", 0): first["A", 0] + tail}, with_index=False)
    kill(opened)


@pytest.mark.parametrize("block", ["sound", "lost", "contradicts itself"])
def test_a_record_that_lost_the_middle_of_its_properties_is_torn(config: MessageStoreConfig, block: str) -> None:
    """Its body is sound, and so are the properties' ends.
    Fault: A record that lost a sector of its properties in a power failure was taken for whole."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        writer.put("T", 0)
        put = writer.put("T", 0, b"body", b"p\x01" + b"x" * 2_000)
    if block == "contradicts itself":
        opened.control.header.durable_phy_offset = 1 << 40
    kill(opened)
    another_boot(opened.paths)
    if block == "lost":
        opened.paths.control.unlink()
    with (opened.paths.commitlog / file_name(0)).open("r+b") as file:
        file.seek(1_024)  # a sector
        file.write(bytes(512))
    opened = reopen(config)
    assert opened.report.kind is (RecoveryKind.FLUSHED if block == "sound" else RecoveryKind.FILES)
    assert opened.report.log_end == put.phy_offset
    kill(opened)


ZEROS = b"KEYS\x01key\x02p\x01" + b"x" * 600 + bytes(700)  # at their end, and before a sector's boundary
STORED_MS = 1_700_000_000_000


def fill_with_zeros(opened: OpenedStore) -> Filled:
    """Messages whose properties a Java broker takes as they are."""
    with StoreWriter(opened.config, opened.control) as writer:
        return {("A", 0): [writer.put("A", 0, b"%d" % i, ZEROS) for i in range(30)]}


@pytest.mark.parametrize("end", ["closed", "closed, Java came", "killed", "killed, Java came", "killed, units lost"])
def test_zeros_in_properties_are_no_damage_while_the_machine_is_up(config: MessageStoreConfig, end: str) -> None:
    """Fault: Recovery cut the log at a whole Java record with zero bytes in its properties."""
    opened = open_store(config)
    puts = fill_with_zeros(opened)
    opened.control.header.units_lost = end == "killed, units lost"
    log_end = opened.control.published_phy_offset
    close_store(opened, clean=end.startswith("closed"))
    if end.endswith("Java came"):
        opened.paths.lock.write_bytes(b"lock")
    opened = reopen(config)
    files = RecoveryKind.FLUSHED if end == "killed, units lost" else RecoveryKind.TRUSTED
    assert opened.report.kind is (RecoveryKind.FILES if end.endswith("Java came") else files)
    assert opened.report.log_end == log_end
    check(opened, puts, with_index=False)
    kill(opened)


@pytest.mark.parametrize("known", ["durable offset", "durable offset, Java came", "checkpoint", "block's checkpoint"])
def test_zeros_in_durable_properties_are_no_damage(config: MessageStoreConfig, known: str) -> None:
    """The power fails. Behind what is durable, they are those of a torn record."""
    opened = open_store(config)
    puts = fill_with_zeros(opened)
    header, paths = opened.control.header, opened.paths
    end = header.published_phy_offset
    if known.startswith("durable"):
        header.durable_phy_offset = header.units_durable_phy_offset = end
    else:
        times = struct.pack(">qqq", *[STORED_MS + 1] * 3)
        paths.checkpoint.write_bytes(times + bytes(4072))
    with StoreWriter(opened.config, opened.control) as writer:
        sound = writer.put("A", 0, b"sound", store_timestamp_ms=STORED_MS + 1)
        writer.put("A", 0, b"torn", ZEROS, store_timestamp_ms=STORED_MS + 1)
    kill(opened)
    another_boot(paths)
    if known.endswith("Java came"):
        paths.lock.write_bytes(b"lock")
    elif known == "checkpoint":
        paths.control.unlink()
    opened = reopen(config)
    is_block_ours = known in ("durable offset", "block's checkpoint")
    assert opened.report.kind is (RecoveryKind.FLUSHED if is_block_ours else RecoveryKind.FILES)
    assert opened.report.log_end == end + sound.size
    check(opened, {("A", 0): [*puts["A", 0], sound]}, with_index=False)
    kill(opened)


def test_zeros_in_properties_are_no_damage_after_a_clean_stop(config: MessageStoreConfig) -> None:
    """Also of the last record: the checkpoint may be of the millisecond before it."""
    opened = open_store(config)
    puts = fill_with_zeros(opened)
    end = opened.control.published_phy_offset
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    opened = reopen(config)
    assert (opened.report.kind, opened.report.log_end) == (RecoveryKind.FILES, end)
    check(opened, puts, with_index=False)
    kill(opened)


@pytest.mark.parametrize("checks_crc", [True, False])
def test_a_damaged_body_ends_the_log_if_bodies_are_checked(config: MessageStoreConfig, checks_crc: bool) -> None:
    config = attrs.evolve(config, check_crc_on_recover=checks_crc)
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        put = writer.put("T", 0, b"body")
    end = opened.control.published_phy_offset
    kill(opened)
    opened.paths.control.unlink()
    path = opened.paths.commitlog / file_name(0)
    path.write_bytes(path.read_bytes().replace(b"body", b"BODY"))
    opened = reopen(config)
    assert (opened.report.kind, opened.report.log_end) == (RecoveryKind.FILES, put.phy_offset if checks_crc else end)
    kill(opened)


def test_zeros_in_properties_are_torn_after_a_failed_sync(config: MessageStoreConfig) -> None:
    """The kernel may have dropped the pages that it could not write, and read them again."""
    opened = open_store(config)
    fill_with_zeros(opened)
    opened.control.header.running_flags = lib.RP_FLAG_NOT_WRITEABLE
    kill(opened)
    opened = reopen(config)
    assert (opened.report.kind, opened.report.log_end) == (RecoveryKind.FLUSHED, 0)
    kill(opened)


def test_what_was_scanned_is_not_called_durable(config: MessageStoreConfig) -> None:
    """It may be in the page cache alone: the next flush begins where the scan did.
    Fault: A store recovered by a scan called the page cache durable, so a power failure lost messages."""
    opened = open_store(config)
    fill(opened)
    kill(opened)
    opened.paths.control.unlink()
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert opened.control.durable_phy_offset == 0 < opened.control.published_phy_offset
    kill(opened)


def test_what_a_failed_sync_has_left_is_written_again_though_another_program_came_between(
    config: MessageStoreConfig,
) -> None:
    """The kernel calls its pages clean: the next sync would succeed, and write nothing.
    Fault: After a failed fsync and a restart beside another program, a flush called unwritten bytes durable."""
    opened = open_store(config)
    fill(opened)
    opened.control.header.running_flags = lib.RP_FLAG_NOT_WRITEABLE
    kill(opened)
    opened.paths.lock.write_bytes(b"lock")
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES and opened.control.header.flush_begun
    kill(opened)
