"""The store worker: dispatch in its main thread; flush, allocation, cleaning and timers in other threads.

Every long call is C with the GIL released. The main thread returns to Python for requests of the manager, for errors,
twice a second while the log grows, and for each heartbeat. The worker ends when it is ordered to stop and has
dispatched all published records.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from rocketpy.config import FlushDiskType, MessageStoreConfig, properties
from rocketpy.config.setting import with_changes
from rocketpy.errors import StoreError
from rocketpy.logs import LogLimit
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..clocks import CautiousClock
from ..control_block import ControlBlock, RunningFlag, RunningFlags, fail
from ..dispatch import Dispatch, sync_units
from ..files import DiskFiles, Files, StorePaths
from ..recovery.lifecycle import save_checkpoint
from ..timers import TimerMarks
from .cleaning import LogNeeds
from .housekeeping import Housekeeping
from .intervals import FlushIntervals
from .queue_cleaning import QueueCleaning
from .queue_trim import QueueTrim
from .threads import FaultLog, LogGrowth, StoreThreads
from .timer_follower import TimerFollower
from .timer_thread import TimerThread

logger = logging.getLogger(__name__)

BEAT_S = 0.5  # between heartbeats, if the caller gives no other time
LOOP_PENDING_NS = 2_000_000  # while a request waits until dispatch reaches its position
LOOK_S = 1.0  # between two checks for removed files that are still open
REMOVAL_RETRY_S = 30.0
RETRY_S = 0.2
FAULTS_MAX = 50  # failed tries in a row (10 s) before messages are refused
JOIN_TIMEOUT_S = 30.0


@attrs.frozen(eq=False)
class StoreSeams:
    """The rings and workers that the store worker is connected to, created before the fork. All but `worker` are
    optional."""

    worker: Any  # rp_worker *: this one
    pulls: Sequence[Any] = ()  # rp_ring_writer *: ARRIVAL, one per pull worker
    manager_in: Any = None  # rp_ring_reader *: CLEAN_TOPIC, CLEAN_EXPIRED
    manager_out: Any = None  # rp_ring_writer *: CLEANED
    send: Any = None  # rp_worker *: waits for the durable position (sync flush)
    timers: TimerMarks | None = None
    timers_out: Any = None  # rp_ring *: TIMER, to the send worker; None: the master of this slave delivers timers
    filter_marks: Any = None  # rp_filter_marks *
    needed_by_slaves: Callable[[], int | None] = lambda: None


@attrs.define(eq=False)
class _CleanRequest:
    record: bytes | None  # returned unchanged with CLEANED; None: not a request of the manager
    after_phy_offset: int
    steps: Iterator[None]


class StoreService:
    """See the module. `run()` once."""

    def __init__(
        self,
        config: MessageStoreConfig,
        control: ControlBlock,
        seams: StoreSeams,
        files: Files | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        self._control = control
        self._seams = seams
        self._files = files or DiskFiles()
        self._now_ms = now_ms or CautiousClock(control.header).now_ms
        self._paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self._is_sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._flags = RunningFlags(control)
        self._threads = StoreThreads(FaultLog(time.monotonic, self._count_fault))
        self._stop = self._threads.stop
        self._growth = LogGrowth(self._threads)
        self._flush_bell, self._units_bell = self._growth.bell(), self._growth.bell()
        self._is_sync_asked = False  # of units: now, before it is due
        self._failure: BaseException | None = None
        self._fault_log = self._threads.faults
        needs = LogNeeds(seams.needed_by_slaves, seams.timers)
        self._house = Housekeeping(config, control, self._files, self._now_ms, self._growth, needs)
        self._requests: list[_CleanRequest] = []
        self._faults = 0
        self._retried_s = time.monotonic()
        self._plain = 0  # units without extension that were logged
        self._cut_short = 0  # records with too many keys that were logged
        self._keys_limit = LogLimit()

    def run(self, report_ready: Callable[[], None], beat_s: float = BEAT_S) -> None:
        """Serve until the worker is told to stop; `report_ready` is called when the files are open. The main thread
        sends a heartbeat each `beat_s` seconds, or sooner.

        Raises:
            StoreError: the files cannot be opened.
            BaseException: the exception that ended one of the threads; the worker cannot run without it.
        """
        dispatch = Dispatch(self._config, self._control, self._seams.filter_marks)
        trim = QueueTrim(self._config, self._control, self._files)
        flush = lib.rp_flush_open(os.fsencode(self._paths.commitlog), self._control.header)
        if flush == ffi.NULL:
            raise fail("cannot flush the log")
        lib.rp_dispatch_set_pulls(
            dispatch.handle, ffi.new("rp_ring_writer *[]", list(self._seams.pulls)), len(self._seams.pulls)
        )
        duties = [lambda: self._flush_log(flush), lambda: self._flush_units(dispatch), self._house.run]
        timers = self._open_timers()
        if timers is not None:
            duties += timers.duties
        threads = [threading.Thread(target=self._guard, args=(duty,)) for duty in duties]
        for thread in threads:
            thread.start()
        try:
            report_ready()
            cleaning = QueueCleaning(self._control, dispatch, trim, self._threads)
            self._ask(None, cleaning.finish_deletions())
            handle = ffi.NULL if timers is None else timers.handle
            self._dispatch_until_stopped(dispatch, flush, cleaning, handle, int(beat_s * 1e9))
        finally:
            self._stop.set()
            self._growth.ring()
            lib.rp_flush_stop(flush)
            if timers is not None:
                timers.stop()
            for thread in threads:
                thread.join(JOIN_TIMEOUT_S)
            if not any(thread.is_alive() for thread in threads):
                lib.rp_flush_close(flush)
                dispatch.close()
                if timers is not None:
                    timers.close()
            trim.close()
        if self._failure is not None:
            raise self._failure

    def _count_fault(self) -> None:
        self._seams.worker.counters[lib.RP_COUNT_STORE_FAULTS] += 1

    def _guard(self, duty: Callable[[], None]) -> None:
        try:
            duty()
        except BaseException as exc:  # passed to the main thread, which ends the worker
            self._failure = exc
            lib.rp_worker_wake(self._seams.worker, 1)

    # --- main thread ---

    def _dispatch_until_stopped(
        self, dispatch: Dispatch, flush: Any, cleaning: QueueCleaning, timers: Any, beat_ns: int
    ) -> None:
        manager = self._seams.manager_in or ffi.NULL
        wakes_flush = (
            self._is_sync_flush or not self._config.flush_commit_log_timed
        )  # wake the flush thread for each put
        looked_s = time.monotonic()
        while self._failure is None:
            timeout_ns = LOOP_PENDING_NS if self._requests else beat_ns
            status = lib.rp_store_loop(
                *(dispatch.handle, self._control.header, self._seams.worker, manager),
                *(flush, wakes_flush, timers, timeout_ns),
            )
            if status == Status.OK:
                self._take_requests(dispatch, cleaning)
            self._serve_requests(cleaning)
            self._validate(status, dispatch)
            self._growth.look(*self._positions())
            if time.monotonic() >= looked_s + LOOK_S:
                looked_s = time.monotonic()
                self._look_after_files(dispatch, cleaning)
            if status == Status.STOPPED:
                return self._finish(dispatch)

    def _look_after_files(self, dispatch: Dispatch, cleaning: QueueCleaning) -> None:
        """Close removed files that are still open, and try again to remove files, so that their disk space becomes
        free."""
        dispatch.release_files()
        cleaning.release_files()
        if time.monotonic() >= self._retried_s + REMOVAL_RETRY_S:
            self._retried_s = time.monotonic()
            cleaning.retry()

    def _validate(self, status: int, dispatch: Dispatch) -> None:
        """Handle the status of dispatch: try again after errors, skip damage, because dispatch would otherwise never
        continue."""
        if status in (Status.CORRUPT, Status.NOT_FOUND):
            at = self._control.dispatched_phy_offset
            logger.error(
                "the CommitLog is damaged at offset %d: skipped %d bytes; check the store with `rocketpy store verify`",
                at,
                dispatch.skip(),
            )
        elif status < 0:
            self._faults += 1
            if self._faults == 1:
                logger.error("cannot write consume queues or index: %s; trying again", fail("dispatch", status))
            if self._faults == FAULTS_MAX:
                self._flags.put(RunningFlag.CONSUME_QUEUE_FAULT, True)
            self._stop.wait(RETRY_S)
        elif self._faults:
            self._faults = 0
            self._flags.put(RunningFlag.CONSUME_QUEUE_FAULT, False)
        counts = dispatch.counts()
        self._tell_of_plain(counts.plain)
        self._tell_of_keys(counts.cut_short)

    def _tell_of_plain(self, plain: int) -> None:
        """Log units without extension. They work, but their filter bits are lost."""
        if plain > self._plain:
            logger.error(
                "cannot write consumequeue_ext of %d messages: their filter bits are lost, the messages are not",
                plain - self._plain,
            )
            self._plain = plain

    def _tell_of_keys(self, cut_short: int) -> None:
        """Log messages that have more keys than the index stores, at most once a minute."""
        told = self._keys_limit.take(count=cut_short - self._cut_short)
        self._cut_short = cut_short
        if told:
            logger.warning(
                "messages have more than %d KEYS, of which only the first are indexed: %d", lib.RP_INDEX_KEYS_MAX, told
            )

    def _finish(self, dispatch: Dispatch) -> None:
        try:
            dispatch.run_to_end()
        except StoreError as exc:
            logger.error("consume queues are incomplete, the next start rebuilds them: %s", exc)

    # --- requests of the manager ---

    def _take_requests(self, dispatch: Dispatch, cleaning: QueueCleaning) -> None:
        data, size, kind = ffi.new("const uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
        while lib.rp_ring_read(self._seams.manager_in, data, size, kind) == Status.OK:
            record = bytes(ffi.buffer(data[0], size[0]))
            lib.rp_ring_release(self._seams.manager_in)
            if kind[0] == lib.RP_MSG_CLEAN_TOPIC:
                head = ffi.from_buffer("rp_msg_clean_topic *", record)
                start = ffi.sizeof("rp_msg_clean_topic")
                topic = record[start : start + head.topic_size].decode("utf-8", "replace")
                # Now, because dispatch may wait for the disk space, and again for units that are dispatched until then.
                self._requests.append(_CleanRequest(None, 0, cleaning.delete_topic(topic)))
                self._ask(record, cleaning.delete_topic(topic))
            elif kind[0] == lib.RP_MSG_FILTER:
                with self._fault_log.kept("cannot keep a filter"):
                    dispatch.take_filter(record)
            elif kind[0] == lib.RP_MSG_TABLES_END:
                if ffi.from_buffer("rp_msg_tables_end *", record).epoch == self._seams.worker.epoch:
                    dispatch.filters_are_whole()
            elif kind[0] == lib.RP_MSG_SETTINGS:
                self._change_settings(record.decode())
            elif kind[0] == lib.RP_MSG_CLEAN_EXPIRED:
                self._ask(record, cleaning.expire())
            else:
                logger.error("ignored a ring message of unknown type %d from the manager", kind[0])

    def _ask(self, record: bytes | None, steps: Iterator[None]) -> None:
        """Run `steps` when dispatch has reached the current end of the log."""
        self._requests.append(_CleanRequest(record, self._control.published_phy_offset, steps))

    def _change_settings(self, text: str) -> None:
        """Apply changed settings that the cleaner uses; all others are read at the start only."""
        try:
            self._config = self._house.config = with_changes(self._config, properties.as_mapping(text))
        except (ValueError, properties.PropertiesError) as exc:
            logger.error("ignored a change of settings: %s", exc)

    def _serve_requests(self, cleaning: QueueCleaning) -> None:
        """Run one step of the first request whose position dispatch has reached."""
        dispatched = self._control.dispatched_phy_offset
        request = next((request for request in self._requests if request.after_phy_offset <= dispatched), None)
        if request is None:
            return
        for _ in request.steps:
            return  # back in a moment
        if cleaning.has_removed:
            cleaning.has_removed, self._is_sync_asked = False, True
            self._units_bell.set()  # so that recovery does not restart before this point and bring the units back
        if request.record is None or self._answer(request.record):  # else the ring is full: try again soon
            self._requests.remove(request)

    def _answer(self, record: bytes) -> bool:
        out = self._seams.manager_out
        if not out:
            return True
        spans = ffi.new("rp_span *")
        data = ffi.from_buffer(record)
        spans.data, spans.size = data, len(record)
        status = lib.rp_ring_write(out, lib.RP_MSG_CLEANED, spans, 1)
        lib.rp_ring_wake(out)
        return bool(status == Status.OK)

    # --- threads ---

    def _open_timers(self) -> TimerThread | TimerFollower | None:
        seams = self._seams
        if seams.timers is None:
            return None
        if seams.timers_out is None:
            return TimerFollower(self._config, self._control, seams.timers, self._threads)
        return TimerThread(self._config, self._control, seams.timers, seams.worker, seams.timers_out, self._threads)

    def _flush_log(self, flush: Any) -> None:
        intervals = FlushIntervals.of_log(self._config, time.monotonic())
        if not self._is_sync_flush:
            lib.rp_priority_lower()
        waiter = self._seams.send or ffi.NULL
        while not self._stop.is_set():
            if self._is_sync_flush:
                status = lib.rp_flush_serve(flush, waiter, int(intervals.interval_s * 1e9))
            else:
                rest_s = intervals.rest_s(self._dirty, time.monotonic())
                if intervals.is_timed:
                    self._growth.pause(self._flush_bell, intervals.interval_s, rest_s)
                else:
                    lib.rp_flush_wait(flush, max(1, intervals.least_bytes), int(intervals.interval_s * 1e9))
                dirty = self._dirty
                if not intervals.is_due(dirty, time.monotonic()) and not self._stop.is_set():
                    continue
                status = lib.rp_flush_log(flush)
                intervals.flushed_s = time.monotonic()
            if status == Status.NO_MEMORY:
                self._fault_log.report("cannot open CommitLog files to flush them", fail("flush", status))
                self._stop.wait(RETRY_S)
            elif status < 0:
                # Data that was not synced may be lost although the kernel marks it clean: refuse messages from now on.
                self._flags.put(RunningFlag.NOT_WRITEABLE, True)
                logger.error(
                    "refusing messages until the broker is restarted: %s; check the disk",
                    fail("cannot flush the CommitLog", status),
                )
                return

    def _positions(self) -> tuple[int, int, int]:
        """Return what grows while threads have work: the log, what is dispatched, requests to delete."""
        control = self._control
        return control.published_phy_offset, control.dispatched_phy_offset, int(control.header.delete_requests)

    @property
    def _dirty(self) -> int:
        header = self._control.header
        return int(header.published_phy_offset - header.durable_phy_offset)

    @property
    def _units_behind(self) -> int:
        return self._control.dispatched_phy_offset - self._control.units_durable_phy_offset

    def _flush_units(self, dispatch: Dispatch) -> None:
        intervals = FlushIntervals.of_units(self._config, time.monotonic())
        lib.rp_priority_lower()
        while not self._stop.is_set():
            rest_s = intervals.rest_s(self._units_behind, time.monotonic())
            is_last = self._growth.pause(self._units_bell, intervals.interval_s, rest_s)
            if self._is_sync_asked:
                self._is_sync_asked = False  # now: another request may come during the sync
            elif not is_last and not intervals.is_due(self._units_behind, time.monotonic()):
                continue
            with self._fault_log.kept("cannot flush consume queues"):  # recovery then starts further back
                sync_units(dispatch)
                save_checkpoint(self._control, self._paths, self._files)
            intervals.flushed_s = time.monotonic()
