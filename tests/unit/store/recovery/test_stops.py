"""After a clean stop, and after the death of processes while the machine stays up: nothing is lost, little is read."""

from __future__ import annotations

import os
import struct

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.dispatch import Dispatch
from rocketpy.store.files import file_name
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import TOPICS, another_boot, check, fill, kill, reopen
from tests.support.store_writer import StoreWriter


def test_a_clean_stop_needs_no_recovery(config: MessageStoreConfig) -> None:
    """Holds: store, abort marks an unclean stop."""
    opened = open_store(config)
    puts = fill(opened)
    paths = opened.paths
    assert paths.abort.exists()
    close_store(opened, clean=True)
    assert not paths.abort.exists()
    physic, logics, index = struct.unpack(">qqq", paths.checkpoint.read_bytes()[:24])
    assert physic == logics == index == 1_700_000_000_000 and paths.checkpoint.stat().st_size == 4096
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.report.scanned_bytes == 0
    check(opened, puts)
    close_store(opened, clean=True)


def test_a_clean_stop_survives_a_reboot(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    another_boot(opened.paths)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.TRUSTED
    check(opened, puts)
    kill(opened)


def test_a_clean_stop_removes_unused_files(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    fill(opened, 10)
    ahead = opened.paths.commitlog / file_name(16_384)
    ahead.write_bytes(bytes(16_384))
    close_store(opened, clean=True)
    assert [path.name for path in opened.paths.commitlog.iterdir()] == [file_name(0)]


@pytest.mark.parametrize("dispatch_until", [0, 40, 149, None])
def test_kill_9_loses_nothing_and_scans_nothing(config: MessageStoreConfig, dispatch_until: int | None) -> None:
    """Holds: store, recovery after the death of broker, machine or files."""
    opened = open_store(config)
    puts = fill(opened, dispatch_until=dispatch_until)
    kill(opened)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.report.scanned_records == 0
    check(opened, puts)
    kill(opened)


def test_catching_up_is_left_to_the_store_worker(config: MessageStoreConfig) -> None:
    """Sends go on at once, behind records that have no units yet; what was readable stays so."""
    opened = open_store(config)
    puts = fill(opened, dispatch_until=40)
    kill(opened)
    opened = reopen(config)
    report, header = opened.report, opened.control.header
    assert report.dispatched_from == report.dispatched_to == header.dispatched_phy_offset
    assert report.dispatched_to == puts["A", 1][13].phy_offset < report.log_end  # the 41st
    assert [state.max_offset for state in opened.control.queues()] == [14, 13, 13]
    assert [state.next_offset for state in opened.control.queues()] == [50, 50, 50]
    with StoreWriter(config, opened.control) as writer:
        for queue in TOPICS:
            puts[queue].append(writer.put(*queue, b"before dispatch", dispatch=False))
            assert puts[queue][-1].queue_offset == 50
    check(opened, puts, with_index=False)
    kill(opened)


@pytest.mark.parametrize("step", [1, 700, 5_000])
def test_a_store_worker_that_dies_while_it_catches_up(config: MessageStoreConfig, step: int) -> None:
    """Again and again, between batches and within one (units written, position not moved); sends go on meanwhile.
    Holds: store, queues and index dispatched from the log."""
    opened = open_store(config)
    puts = fill(opened, 60, dispatch_until=10)
    kill(opened)
    opened = reopen(config)
    header = opened.control.header
    with StoreWriter(config, opened.control) as writer:
        for life in range(20):
            position = header.dispatched_phy_offset
            dispatch = Dispatch(config, opened.control)
            assert lib.rp_dispatch_run(dispatch.handle, step) >= 0
            dispatch.close()
            if life % 3 == 0:
                header.dispatched_phy_offset = position  # it died between writing and moving on
            queue = TOPICS[life % 3]
            puts[queue].append(writer.put(*queue, b"life %d" % life, dispatch=False))
            assert puts[queue][-1].queue_offset == len(puts[queue]) - 1
    check(opened, puts, with_index=False)
    assert StoreDump(opened.paths.root).verify().problems == []
    kill(opened)


def test_cleaning_may_overtake_what_a_dead_worker_left(config: MessageStoreConfig) -> None:
    """Log files below the dispatched position go; the minimum above it counts as dispatched when files were lost."""
    opened = open_store(config)
    puts = fill(opened, dispatch_until=149)
    kill(opened)
    (opened.paths.commitlog / file_name(0)).unlink()
    control = ControlBlock(opened.paths.control, config.mapped_file_size_commit_log)
    control.header.dispatched_phy_offset = 100
    control.close()
    opened = reopen(config)
    header = opened.control.header
    assert header.min_phy_offset == header.dispatched_phy_offset == 16_384
    assert [state.next_offset for state in opened.control.queues()] == [50, 50, 50]
    with StoreWriter(config, opened.control) as writer:
        writer.dispatch.run_to_end()
        assert writer.dispatch.counts().resets == 0
    for state in opened.control.queues():
        assert state.max_offset == len(puts[state.topic, state.queue_id])
    kill(opened)


def test_a_torn_record_is_never_seen(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened, 20)
    with StoreWriter(config, opened.control) as writer:
        at, _ = writer.reserve(2000)
        image = puts["A", 0][0].image

        ffi.memmove(at, image, len(image))  # whole, but never published: nobody was told
    kill(opened)
    opened = reopen(config)
    check(opened, puts)
    kill(opened)


def test_java_in_between_is_noticed(config: MessageStoreConfig) -> None:
    """Another program that held the lock has written the file `lock`: the block is not trusted."""
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    opened.paths.lock.write_bytes(b"lock")
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES
    check(opened, puts)
    kill(opened)


@pytest.mark.parametrize("dispatched", [0, 7, 20])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_new_send_worker_goes_on_with_the_next_offsets(
    config: MessageStoreConfig, dispatched: int, is_damaged: bool
) -> None:
    """The previous one died between publishing and counting on; a damaged record behind dispatch is passed over."""
    opened = open_store(config)
    puts = fill(opened, 20, dispatch_until=dispatched)
    if is_damaged and dispatched < 15:
        damaged = puts["B", 7][4].phy_offset
        with (opened.paths.commitlog / file_name(0)).open("r+b") as file:
            file.seek(damaged + 4)
            file.write(b"\xff")
    for entry in opened.control.entries():
        entry.next_offset = 3
    directory = os.fsencode(opened.paths.commitlog)
    assert lib.rp_recovery_next_offsets(opened.control.block, directory) == 0
    assert {state.next_offset for state in opened.control.queues()} == {7, 6}
    assert [state.next_offset for state in opened.control.queues()] == [len(puts[queue]) for queue in TOPICS]
    kill(opened)
