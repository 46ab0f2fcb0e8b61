"""Opens the store before the supervisor forks the workers, and closes it after they have ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock, RunningFlag, fail
from ..dispatch import Dispatch
from ..files import DiskFiles, Files, StorePaths, file_name, numbered_files
from ..formats.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from ..formats.consume_queue_ext import check_ext_files
from ..formats.index_file import check_newest_index
from .control_entries import give_back
from .positions import Recovery, RecoveryKind, RecoveryReport
from .store_lock import StoreLock

logger = logging.getLogger(__name__)

Distrust: TypeAlias = Callable[[RecoveryKind, bool], None]
"""Called before a store is changed of which the end may be lost: how it is recovered, and whether no other program has
used it since our last run. An opening that is cut short after that leaves nothing else to see the loss by."""


@attrs.frozen(eq=False, kw_only=True)
class OpenedStore:
    """A recovered store. The workers inherit `control`; everything else is for the supervisor."""

    config: MessageStoreConfig
    paths: StorePaths
    files: Files
    lock: StoreLock
    control: ControlBlock
    report: RecoveryReport
    is_ours: bool
    """No other program has used the store since our last run."""
    replicated_before: int
    """The log below it was on a slave when the store was last open, as far as the control block tells; 0: none was."""
    lost_power: bool
    """The kernel that wrote the control block ended without a clean stop of the broker."""
    is_cut_refused: bool
    """The log was to be cut, and was not: the log of the broker says why."""


def open_store(
    config: MessageStoreConfig,
    files: Files | None = None,
    *,
    cut_at: int | None = None,
    stops_at_confirmed: bool = False,
    distrust: Distrust | None = None,
) -> OpenedStore:
    """Take the lock, recover, mark the store as running. Single-threaded, before workers are forked.

    Args:
        cut_at: where the log is to end, if it is longer: what comes after is kept aside (recovery/diverged.py).
        stops_at_confirmed: dispatch goes no further than what all members have that have to have it, and this start no
            further than what was confirmed before (a synchronous group with automatic failover).
        distrust: with automatic failover (see Distrust). A control block that was copied may be older than what this
            member has acknowledged. So it does not count if the times of `lock` allow that; otherwise, if its time of
            birth shows it.
    Raises:
        StoreError: in use, not writable, files of another size, or damage beyond what recovery repairs.
    """
    files = files or DiskFiles()
    paths = _make_directories(config, files)
    lock = StoreLock(paths.lock)
    control: ControlBlock | None = None
    try:
        _remove_leftovers(files, paths)
        _check_files(config, paths, files)  # before the block is created
        had_control, was_clean = files.info(paths.control) is not None, files.info(paths.abort) is None
        control = _open_control(config, paths, files)
        is_same_boot, replicated = control.is_same_boot, int(control.header.replicated_phy_offset)
        if not is_same_boot:
            control.forget_clock()
        is_ours = control.header.lock_mtime_ns == lock.mtime_ns
        born_ns = lock.born_ns
        is_copied = _was_copied_in_use(control, born_ns) or (distrust is not None and lock.is_copied)
        told = partial(_tell, distrust, is_ours)
        recovery = Recovery(config, paths, files, control, stops_at_confirmed=stops_at_confirmed, distrust=told)
        checkpoint, may_trust = read_checkpoint(files, paths.checkpoint), is_ours and not is_copied
        report = recovery.run(checkpoint=checkpoint, was_clean=was_clean, may_trust=may_trust, cut_at=cut_at)
        files.write(paths.abort, 0, b"", sync=True)
        control.header.lock_mtime_ns, control.header.lock_born_ns = lock.sign(), born_ns
    except BaseException:
        if control is not None:
            control.close()
        lock.release()
        raise
    in_order = "a clean stop" if had_control or report.log_end else "its creation"
    logger.info("opened store %s after %s: %s", paths.root, in_order if was_clean else "an unclean stop", report)
    return OpenedStore(
        config=config,
        paths=paths,
        files=files,
        lock=lock,
        control=control,
        report=report,
        is_ours=is_ours,
        replicated_before=replicated,
        lost_power=not is_same_boot and not was_clean,
        is_cut_refused=cut_at is not None and report.kind is not RecoveryKind.CUT,
    )


def _check_files(config: MessageStoreConfig, paths: StorePaths, files: Files) -> None:
    """Check the sizes of files. Raises: StoreError: the log, extensions or index have some of another size."""
    numbered_files(files, paths.commitlog, config.mapped_file_size_commit_log)
    if config.enable_consume_queue_ext:
        check_ext_files(files, paths.consumequeue_ext, config.mapped_file_size_consume_queue_ext)
    if config.message_index_enable:
        check_newest_index(files, paths.index, config.max_hash_slot_num, config.max_index_num)


def _open_control(config: MessageStoreConfig, paths: StorePaths, files: Files) -> ControlBlock:
    give_back(paths, files, config.mapped_file_size_commit_log)
    return ControlBlock(paths.control, config.mapped_file_size_commit_log)


def _was_copied_in_use(control: ControlBlock, born_ns: int) -> bool:
    """Return True if the block is a copy that was made while a broker wrote the store: files of the log may be older.

    `born_ns`: of the file `lock`; 0: unknown.
    """
    was_born_ns = int(control.header.lock_born_ns)
    return 0 not in (was_born_ns, born_ns) and was_born_ns != born_ns and not control.header.clean


def _make_directories(config: MessageStoreConfig, files: Files) -> StorePaths:
    """The directories of the store, made if they are not there. Raises: StoreError: one cannot be written."""
    if "," in config.store_path_commit_log:
        raise StoreError(f"storePathCommitLog names several directories ({config.store_path_commit_log}); give one")
    paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
    for directory in (paths.root, paths.commitlog, paths.consumequeue):
        files.make_directory(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StoreError(f"cannot write to {directory}: permission denied")
    return paths


def _tell(distrust: Distrust | None, is_ours: bool, kind: RecoveryKind) -> None:
    if distrust is not None:
        distrust(kind, is_ours)


def close_store(opened: OpenedStore, *, clean: bool) -> None:
    """Called after all workers have ended. `clean`: they ended in order, so everything is synced and the store is
    marked as cleanly stopped. Otherwise, or if that fails, the next start recovers; no message is lost either way."""
    try:
        if clean:
            _finish(opened)
    finally:
        opened.control.close()
        opened.lock.release()


def save_checkpoint(control: ControlBlock, paths: StorePaths, files: Files) -> None:
    """Write the times of the last flushes from the control block to the file `checkpoint`."""
    header = control.header
    times = StoreCheckpoint(header.physic_timestamp_ms, header.logics_timestamp_ms, header.index_timestamp_ms)
    write_checkpoint(files, paths.checkpoint, times)


def _finish(opened: OpenedStore) -> None:
    control, header = opened.control, opened.control.header
    dispatch = Dispatch(opened.config, control)
    try:
        dispatch.run_to_end()
        dispatch.sync(with_index=True)
    finally:
        dispatch.close()
    _flush_log(opened)
    is_dispatched = header.dispatched_phy_offset == header.published_phy_offset  # else the rest is not confirmed
    if is_dispatched:
        header.logics_timestamp_ms = header.physic_timestamp_ms
    if is_dispatched and opened.config.message_index_enable:
        header.index_timestamp_ms = header.physic_timestamp_ms
    save_checkpoint(control, opened.paths, opened.files)
    _remove_unused_files(
        opened.files, opened.paths, opened.config.mapped_file_size_commit_log, header.published_phy_offset
    )
    if header.running_flags & ~RunningFlag.DISK_FULL:  # the only flag that clears itself
        logger.warning(
            "store %s had write errors (flags %#x): not marked as cleanly stopped, the next start recovers it",
            opened.paths.root,
            header.running_flags,
        )
        return
    header.clean = 1
    control.sync()
    opened.files.remove(opened.paths.abort)


def _flush_log(opened: OpenedStore) -> None:
    flush = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
    if flush == ffi.NULL:
        raise fail("cannot flush the log")
    try:
        status = lib.rp_flush_log(flush)
    finally:
        lib.rp_flush_close(flush)
    if status not in (Status.OK, Status.EMPTY):
        raise fail(f"cannot flush the log in {opened.paths.commitlog}", status)


def _remove_leftovers(files: Files, paths: StorePaths) -> None:
    """Remove incomplete files of a process that died (only on file systems without unnamed files)."""
    for directory in {paths.root, paths.commitlog.parent}:
        for info in files.entries(directory):
            if ".new." in info.name and not info.is_directory:
                files.remove(directory / info.name)


def _remove_unused_files(files: Files, paths: StorePaths, file_size: int, end: int) -> None:
    """Remove pre-allocated log files that are unused. One that begins at `end` stays if it is the only file: its name
    alone says where the log ends."""
    starts = numbered_files(files, paths.commitlog, file_size)
    used = [start for start in starts if start < end] or [start for start in starts if start == end]
    for start in starts:
        if start not in used:
            files.remove(paths.commitlog / file_name(start))
