"""Recovery: finds the positions of the store when it is opened, from the control block or from the files.

    trusted   rocketpy wrote the control block, no other program has used the store since, and the same kernel is
              running (its page cache has all writes) or the stop was clean. Nothing is scanned. The store worker
              dispatches records after the dispatched position while the broker serves; queues only grow by that
    flushed   rocketpy wrote the control block, but the machine crashed or a sync failed. Everything below the durable
              positions is trusted; the log after them is scanned with CRC, units after them are removed and rebuilt
    files     there is no control block, or it is damaged, or a Java broker, a restored backup or a published rebuild
              has changed the store: the reference's rules. After a clean stop the last three files are scanned,
              otherwise everything since the checkpoint
    cut       a trusted log of a member of a group with failover, whose end is not in its master's: it is kept aside,
              and the log is cut. From there on as "flushed"

In all but the first case, and if a queue must be rebuilt, dispatch catches up before the broker serves: no consumer may
see a queue that ends before its offset. In each case every queue's next offset is that of its last record in the log
plus one, and the bytes after the log's end are zero, so that a later scan never finds old records.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import lib

from ..control_block import QUEUE_LIVE, ControlBlock, RunningFlag, fail
from ..dispatch import Dispatch
from ..files import Files, StorePaths
from ..formats.checkpoint import StoreCheckpoint, write_checkpoint
from ..formats.index_file import index_end, limit_index
from ..formats.unit import rounded_file_size
from ..timers import forget_marks_of_this_boot
from .diverged import NoRoomAside, check_room, keep_aside
from .index_repair import repair_index
from .log_files import Durable, LogFiles, Progress, Scan
from .queue_loading import DeletedQueue, load_queues, read_deleted, restore_deleted

logger = logging.getLogger(__name__)

CHECKPOINT_MARGIN_MS = 3_000
LOG_END_MAX = 1 << 63


class RecoveryKind(enum.Enum):
    TRUSTED = "trusted"
    FLUSHED = "flushed"
    FILES = "files"
    CUT = "cut"


@attrs.frozen(kw_only=True)
class RecoveryReport:
    """Result of recovery, for the start-up log."""

    kind: RecoveryKind
    log_end: int
    scanned_records: int
    scanned_bytes: int
    scan_s: float
    dispatched_from: int
    dispatched_to: int  # the store worker dispatches the rest
    queues_rebuilt: int
    damaged_bytes: int  # skipped by dispatch

    def __str__(self) -> str:
        return (
            f"recovery: {self.kind.value}; log ends at {self.log_end}, {self.scanned_records} records "
            f"({self.scanned_bytes} bytes) scanned in {self.scan_s:.3f} s, "
            f"{self.dispatched_to - self.dispatched_from} bytes dispatched again, "
            f"{self.log_end - self.dispatched_to} left to dispatch, "
            f"{self.queues_rebuilt} queues rebuilt, {self.damaged_bytes} damaged bytes"
        )


class Recovery:
    """One opening of one store, single-threaded, under the store's lock."""

    def __init__(
        self,
        config: MessageStoreConfig,
        paths: StorePaths,
        files: Files,
        control: ControlBlock,
        *,
        stops_at_confirmed: bool,
        distrust: Callable[[RecoveryKind], None],
    ) -> None:
        """`distrust` is called before any change to a store that may have lost the end of its log."""
        self._distrust = distrust
        self._config = config
        self._paths = paths
        self._files = files
        self._control = control
        self._queue_file_size = rounded_file_size(config.mapped_file_size_consume_queue)
        self._log = LogFiles(paths.commitlog, files, config.mapped_file_size_commit_log)
        self._has_failed_sync = False  # both are read from the block before it is loaded again
        self._deleted: list[DeletedQueue] = []
        self._stops_at_confirmed = stops_at_confirmed
        self._confirmed = 0  # as far as the block is known

    def run(
        self, *, checkpoint: StoreCheckpoint, was_clean: bool, may_trust: bool, cut_at: int | None = None
    ) -> RecoveryReport:
        """Find the positions, in one of the ways at the top of this module, and write them into the control block.

        Args:
            was_clean: there was no `abort` file.
            may_trust: no other program has used the store since the block was written, and it is no copy.
            cut_at: where the log is to end. A log that cannot be trusted is not cut: its end may be another one now.
        """
        header = self._control.header
        self._has_failed_sync = self._read_failed_sync()
        is_known = may_trust and self._is_plausible()
        if is_known:  # what was dispatched without automatic failover counts as confirmed
            self._confirmed = max(int(header.confirmed_phy_offset), int(header.dispatched_phy_offset))
        if is_known and header.queues_replaced:
            self._deleted = read_deleted(self._control)
        elif is_known:
            is_trusted = (self._control.is_same_boot or header.clean) and not self._has_failed_sync
            if is_trusted and self._log.take_run(header.published_phy_offset):
                return self._trust(checkpoint) if cut_at is None else self._cut(checkpoint, cut_at)
            if not is_trusted and self._log.take_run(header.durable_phy_offset):
                self._distrust(RecoveryKind.FLUSHED)
                return self._from_flushed(checkpoint)
        self._distrust(RecoveryKind.FILES)
        self._log.take_flushed_run(checkpoint.physic_msg_timestamp_ms)
        return self._from_files(checkpoint, was_clean)

    # --- the ways ---

    def _trust(self, checkpoint: StoreCheckpoint) -> RecoveryReport:
        header = self._control.header
        header.min_phy_offset = self._log.begin(header.published_phy_offset)
        rebuilt = lib.rp_recovery_check_queues(
            self._control.block, os.fsencode(self._paths.consumequeue), self._queue_file_size
        )
        if rebuilt < 0:
            raise fail(f"cannot check the consume queues in {self._paths.consumequeue}")
        if header.rebuilding or header.dispatched_phy_offset < header.min_phy_offset:
            header.dispatched_phy_offset = header.min_phy_offset
        if header.rebuilding:
            self._admit_redo(checkpoint, header.min_phy_offset)
        behind = header.dispatched_phy_offset
        header.dispatched_phy_offset = self._redo_for_index(behind, header.indexed_phy_offset)
        leave = not header.rebuilding and header.dispatched_phy_offset == behind
        scan = Scan(header.published_phy_offset, 0, 0, 0, 0)
        return self._catch_up(RecoveryKind.TRUSTED, scan, 0, rebuilt, leave=leave)

    def _cut(self, checkpoint: StoreCheckpoint, at: int) -> RecoveryReport:
        header = self._control.header
        end = int(header.published_phy_offset)
        begin = self._log.begin(end)
        if not (begin < at or at == begin == 0) or at >= end or not self._log.is_boundary(at):
            logger.warning("the log ends at %d and has no record that ends at %d: not cut there", end, at)
            return self._trust(checkpoint)
        try:
            check_room(self._files, self._paths.root, at, end, self._config.ha_diverged_size_max)
        except NoRoomAside as exc:
            logger.error("the log differs from its master's after %d, and cannot be cut there: %s", at, exc)
            return self._trust(checkpoint)
        kept = keep_aside(self._files, self._paths, self._config.mapped_file_size_commit_log, at, end)
        header.durable_phy_offset = min(header.durable_phy_offset, at)
        header.units_lost = 1  # if this is interrupted, the next start must not trust the published position
        self._control.sync()
        self._end_log(at)
        logger.warning("cut the log at %d: %d bytes are not in the master's log, kept in %s", at, end - at, kept)
        return self._from_flushed(checkpoint, RecoveryKind.CUT)

    def _from_flushed(self, checkpoint: StoreCheckpoint, kind: RecoveryKind = RecoveryKind.FLUSHED) -> RecoveryReport:
        header = self._control.header
        durable = max(header.durable_phy_offset, self._log.begin(0))
        scan = self._log.scan(durable, flags=lib.RP_SCAN_CRC, durable=self._durable(checkpoint))
        # Nothing below the log's beginning needs to be rebuilt: cleaning waits until units are on the disk.
        redo_from = min(max(header.units_durable_phy_offset, self._log.begin(0)), scan.end)
        indexed = min(header.indexed_phy_offset, redo_from)
        is_written = not self._control.is_same_boot  # else scanned records may be in the page cache only
        times = (header.last_store_timestamp_ms, header.physic_timestamp_ms)
        had_units = self._queues_with_units(redo_from)
        self._end_log(scan.end)
        checkpoint = self._admit_redo(checkpoint, redo_from)
        self._load(scan, checkpoint, durable=scan.end if is_written else min(durable, scan.end), phy_limit=redo_from)
        header.last_store_timestamp_ms = max(scan.last_store_timestamp_ms, *times)
        header.flush_begun = int(not is_written)  # then the first flush syncs them again
        lost = sum(1 for topic, queue_id in had_units if self._control.queue(topic, queue_id) is None)
        redo_from = self._repair_index(redo_from, checkpoint)
        limit_index(self._files, self._paths.index, redo_from)
        redo_from = header.min_phy_offset if lost else max(redo_from, header.min_phy_offset)
        if lost:
            self._admit_redo(checkpoint, redo_from)
        header.dispatched_phy_offset = self._redo_for_index(redo_from, indexed)
        return self._catch_up(kind, scan, scan.end - durable, lost)

    def _from_files(self, checkpoint: StoreCheckpoint, was_clean: bool) -> RecoveryReport:
        header = self._control.header
        start = self._log.start_after_clean_exit() if was_clean else self._start_after_crash(checkpoint)
        flags = lib.RP_SCAN_CRC if self._config.check_crc_on_recover else 0
        scan = self._log.scan(start, flags=flags, durable=None if was_clean else self._durable(checkpoint))
        self._end_log(scan.end)
        # After a crash units after the scan's start are rebuilt: each may be torn, or of a lost record.
        reached = self._load(  # scanned records may be in the page cache only
            scan, checkpoint, durable=start, phy_limit=scan.end if was_clean else min(start, scan.end)
        )
        if not self._confirmed:
            self._confirmed = reached  # what had units was confirmed; of the rest nothing is known
        header.last_store_timestamp_ms = scan.last_store_timestamp_ms
        header.flush_begun = int(self._has_failed_sync)  # then the first flush syncs all records again
        limit_index(self._files, self._paths.index, scan.end)
        rebuilt = 0
        redo_from = max(reached, header.min_phy_offset) if was_clean else self._repair_index(start, checkpoint)
        units = self._log.scan(start, queues=self._control)
        if units.missing < reached or units.gap < scan.end:
            redo_from, rebuilt = header.min_phy_offset, 1  # at least one queue is incomplete
        if rebuilt or (was_clean and redo_from < scan.end):
            self._admit_redo(checkpoint, redo_from)
        header.dispatched_phy_offset = self._redo_for_index(redo_from, redo_from)
        return self._catch_up(RecoveryKind.FILES, scan, scan.end - start, rebuilt)

    # --- parts ---

    def _end_log(self, end: int) -> None:
        """Remove what is in the log from `end` on."""
        forget_marks_of_this_boot(self._paths, self._files)
        self._log.cut(end)

    def _repair_index(self, redo_from: int, checkpoint: StoreCheckpoint) -> int:
        """The log offset where dispatch must start so that the index is complete as well."""
        config = self._config
        if not config.message_index_enable:
            return redo_from
        end = repair_index(
            self._files,
            self._paths.index,
            config.max_hash_slot_num,
            config.max_index_num,
            checkpoint.index_msg_timestamp_ms,
            redo_from,
            has_failed_sync=self._has_failed_sync,
        )
        return redo_from if end is None else min(redo_from, max(end, int(self._control.header.min_phy_offset)))

    def _redo_for_index(self, redo_from: int, indexed: int) -> int:
        """Return the position to dispatch from: earlier if the index ends before `indexed`, because some of its files
        are missing."""
        end = index_end(self._files, self._paths.index) if self._config.message_index_enable else indexed
        return int(max(min(redo_from, end), self._control.header.min_phy_offset) if end < indexed else redo_from)

    def _admit_redo(self, checkpoint: StoreCheckpoint, redo_from: int) -> StoreCheckpoint:
        """Promise no units from `redo_from` on: they are about to be removed or made again, with their extensions.
        If the control block is lost before they are on the disk, the next start would trust a checkpoint that promises
        them. Returns the checkpoint that holds until then."""
        limit_ms = self._log.first_store_timestamp_ms(redo_from)
        if limit_ms < checkpoint.logics_msg_timestamp_ms:
            checkpoint = attrs.evolve(checkpoint, logics_msg_timestamp_ms=limit_ms)
            write_checkpoint(self._files, self._paths.checkpoint, checkpoint)
        self._control.header.logics_timestamp_ms = checkpoint.logics_msg_timestamp_ms
        return checkpoint

    def _read_failed_sync(self) -> bool:
        """Return True if a sync has failed: data after the durable positions may be in the page cache only, or lost,
        although the kernel marks it clean."""
        header = self._control.header
        return bool(header.units_lost or header.running_flags & RunningFlag.NOT_WRITEABLE)

    def _durable(self, checkpoint: StoreCheckpoint) -> Durable | None:
        """The records that cannot be torn; None: no record can, because the page cache holds all writes.

        A Java broker that ran meanwhile wrote to the same page cache. Without a block the boot is not known. Several
        records are stored within the checkpoint's millisecond, and it may have been taken between them.
        """
        header = self._control.header
        if self._control.is_same_boot and not header.running_flags & RunningFlag.NOT_WRITEABLE:
            return None
        below = int(header.durable_phy_offset) if self._is_plausible() else 0
        return Durable(below, checkpoint.physic_msg_timestamp_ms)

    def _is_plausible(self) -> bool:
        """Return True if the positions of the block are consistent. (After a power failure pages may be of different
        times, but the header is one sector, which is written as a whole.)"""
        header = self._control.header
        return bool(
            header.min_phy_offset <= header.dispatched_phy_offset <= header.published_phy_offset < LOG_END_MAX
            and header.durable_phy_offset <= header.published_phy_offset
        )

    def _start_after_crash(self, checkpoint: StoreCheckpoint) -> int:
        """The newest file whose first record was certainly flushed, with its unit; else the first file."""
        limit_ms = min(checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms) - CHECKPOINT_MARGIN_MS
        if self._config.message_index_enable and self._config.message_index_safe:
            limit_ms = min(limit_ms, checkpoint.index_msg_timestamp_ms)
        return self._log.newest_stored_by(limit_ms)

    def _queues_with_units(self, phy_limit: int) -> list[tuple[str, int]]:
        """Queues of the (possibly incomplete) block that must have files."""
        return [
            (self._control.topic_of(entry).decode("utf-8", "replace"), entry.queue_id)
            for entry in self._control.entries()
            if entry.state == QUEUE_LIVE
            and entry.max_offset > entry.min_offset
            and 0 < entry.max_phy_offset <= phy_limit
            and self._control.topic_of(entry)
        ]

    def _load(self, scan: Scan, checkpoint: StoreCheckpoint, *, durable: int, phy_limit: int) -> int:
        """Load a new block from the files; it never promises more than `durable`. Returns the end of the last record
        that has its unit."""
        cautious = (self._control.header.cautious_lead_ms, self._control.header.wall_ahead_since_ms)
        self._control.reset()
        self._control.sync()  # the old one must not come back: units that it promises are removed now
        header = self._control.header
        header.cautious_lead_ms, header.wall_ahead_since_ms = cautious  # of this boot: no other's are left
        header.min_phy_offset = self._log.begin(scan.end)
        header.published_phy_offset, header.durable_phy_offset = scan.end, durable
        header.physic_timestamp_ms = checkpoint.physic_msg_timestamp_ms
        header.logics_timestamp_ms = checkpoint.logics_msg_timestamp_ms
        header.index_timestamp_ms = checkpoint.index_msg_timestamp_ms
        reached = load_queues(
            self._files,
            self._paths.consumequeue,
            self._queue_file_size,
            self._control,
            phy_limit=phy_limit,
            log_min_phy_offset=header.min_phy_offset,
        )
        restore_deleted(self._control, self._deleted, scan.end)
        return reached

    def _catch_up(
        self, kind: RecoveryKind, scan: Scan, scanned_bytes: int, rebuilt: int, *, leave: bool = False
    ) -> RecoveryReport:
        """Dispatch the rest, unless the store worker does that; then find every queue's next offset."""
        header, block = self._control.header, self._control.block
        dispatched_from = int(header.dispatched_phy_offset)
        header.confirmed_phy_offset = min(max(self._confirmed, dispatched_from), int(header.published_phy_offset))
        header.stops_at_confirmed = self._stops_at_confirmed
        self._control.mark_boot()
        header.running_flags = header.clean = 0
        damaged = 0
        end = int(header.confirmed_phy_offset if self._stops_at_confirmed else header.published_phy_offset)
        if not leave:
            dispatch = Dispatch(self._config, self._control)
            try:
                damaged = dispatch.run_to_end(Progress("building queues", dispatched_from, end))
            finally:
                dispatch.close()
        header.rebuilding = 0
        status = lib.rp_recovery_next_offsets(block, os.fsencode(self._paths.commitlog))
        if status:
            raise fail(f"cannot read the log in {self._paths.commitlog}", status)
        lib.rp_recovery_clear_watched(block)
        return RecoveryReport(
            kind=kind,
            log_end=int(header.published_phy_offset),
            scanned_records=scan.records,
            scanned_bytes=scanned_bytes,
            scan_s=self._log.scan_s,
            dispatched_from=dispatched_from,
            dispatched_to=int(header.dispatched_phy_offset),
            queues_rebuilt=rebuilt,
            damaged_bytes=damaged,
        )
