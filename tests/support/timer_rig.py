"""Timers in one process and one thread: the fast path and the timer thread's steps, on a clock that the test moves."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketpy.broker.delays.timer_changes import TimerChange, replacement
from rocketpy.codes import ResponseCode
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.message.sys_flag import TRANSACTION_MASK
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import decode_put_result, encode_put
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import PutResult, TimerState
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.formats.unit import CQ_UNIT
from rocketpy.store.timers import TimerMarks, forget_marks_of_this_boot
from tests.support.fast_path import FILE_SIZE, FastPath
from tests.support.history import send_request

TIMER_TOPIC, DEAD_LETTERS = "rmq_sys_wheel_timer", "%DLQ%rmq_sys_wheel_timer"
START_MS = 1_700_000_000_000
MAX_DELAY_MS = 3 * 86_400_000


class TimerRig:
    """`heap_max`: timers in memory, so that runs come early. `span_max`: numbers after the oldest pending one, before
    it is stored again. `rest_ms`: between two looks of the thread while the log does not grow. `root` may be a store.
    """

    def __init__(
        self,
        root: Path,
        *,
        heap_max: int = 0,
        span_max: int = 0,
        rest_ms: int = 0,
        now_ms: int = START_MS,
        **options: Any,
    ) -> None:
        self.root = root
        self.wall_ms, self.boot_ms = now_ms, now_ms - START_MS + 1000
        self.heap_max, self.span_max, self.rest_ms = heap_max, span_max, rest_ms
        self._deleted: list[StoredRecord] = []
        (root / "timer").mkdir(parents=True, exist_ok=True)
        self._clocks = (
            ffi.callback("int64_t(void)", lambda: self.wall_ms),
            ffi.callback("int64_t(void)", lambda: self.boot_ms),
        )
        self._directories = [
            ffi.new("char[]", str(path).encode())
            for path in (root / "timer" / "runs", root / "commitlog", root / "consumequeue")
        ]
        clocks = {"wall_ms": self._clocks[0], "boot_ms": self._clocks[1]}
        self._opaque = 0
        self._has_topics = False
        (root / "commitlog").mkdir(exist_ok=True)
        block = lib.rp_control_open(str(root / "control").encode(), options.get("file_size", FILE_SIZE))
        lib.rp_control_mark_boot(block)
        self.marks = self._open_marks(block)
        self.path = FastPath(root, timers=self.marks, timer_max_delay_ms=MAX_DELAY_MS, **clocks, **options)
        lib.rp_control_close(block)
        self._topics: list[str] = []
        self.add_topic("T")
        self.path.tables_end()
        self.timers = self._open_timers()

    def _open_marks(self, block: Any) -> Any:
        marks = lib.rp_timer_marks_open(str(self.root / "timer" / "delivered").encode(), lib.rp_control_header(block))
        assert marks != ffi.NULL
        return marks

    def _open_timers(self) -> Any:
        config = {
            "block": self.path.block,
            "marks": self.marks,
            "worker": self.path.workers["store"],
            "directory": self._directories[0],
            "commitlog_directory": self._directories[1],
            "consume_queue_directory": self._directories[2],
            "consume_queue_file_size": self.path.cq_file_size,
            "to_send": self.path.store_send,
            "heap_max": self.heap_max,
            "span_max": self.span_max,
            "rest_ms": self.rest_ms,
            "wall_ms": self._clocks[0],
            "boot_ms": self._clocks[1],
        }
        timers = lib.rp_timers_open(ffi.new("rp_timers_config *", config))
        assert timers != ffi.NULL
        return timers

    def close(self) -> None:
        lib.rp_timers_close(self.timers)
        self.path.close()
        lib.rp_timer_marks_close(self.marks)

    @property
    def control(self) -> Any:
        return lib.rp_control_header(self.path.block)

    @property
    def header(self) -> Any:
        return lib.rp_timer_marks_header(self.marks)

    # --- what happens ---

    def add_timer_topic(self) -> None:
        self.path.add_topic(TIMER_TOPIC, 1)
        self.path.add_topic(DEAD_LETTERS, 1)

    def add_topic(self, topic: str) -> None:
        """One that a restarted send worker is told of again."""
        self._topics.append(topic)
        self.path.add_topic(topic)

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.boot_ms += ms

    def send(self, body: bytes, properties: str, *, queue_id: int = 0, topic: str = "T") -> RemotingCommand | None:
        """Send one message through the codec; its response."""
        self._opaque += 1
        command = send_request(topic, queue_id, [body], self._opaque)
        assert command.ext_fields is not None
        command.ext_fields["i"] = properties
        return self.ask(command)

    def ask(self, command: RemotingCommand) -> RemotingCommand | None:
        assert self.path.frame(command) == lib.RP_OK
        self.path.turn()
        found = [answer for _, answer in self.path.answers()]
        return found[0] if found else None

    def send_many(self, messages: Iterable[tuple[bytes, str]]) -> None:
        for body, properties in messages:
            answer = self.send(body, properties)
            assert answer is not None and answer.code == 0, answer

    def change(self, number: int, due_ms: int | None = None) -> int:
        """Cancel timer `number`, or move it, as the manager does; the code of the result."""
        return self.try_change(number, due_ms).code

    def state(self, number: int, due_ms: int | None = None) -> TimerState:
        """Try to change a timer that has ended; what had become of it."""
        result = self.try_change(number, due_ms)
        assert result.code == ResponseCode.QUERY_NOT_FOUND
        return result.timer_state

    def try_change(self, number: int, due_ms: int | None = None) -> PutResult:
        timers = [record for record in self.records(TIMER_TOPIC) if record.sys_flag & TRANSACTION_MASK == 0]
        record = next(record for record in timers if record.queue_offset == number)
        change = TimerChange("T", "key", wait_store=True, is_move=due_ms is not None, properties=b"")
        self.path.put(encode_put(replacement(change, record, due_ms), 77, 0))
        self.path.turn()
        results = [data for kind, data in self.path.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
        [(token, result)] = [decode_put_result(data, ("127.0.0.1", 1)) for data in results]
        assert token == 77
        return result

    def flush(self) -> None:
        """The log is on the disk up to its end."""
        self.control.durable_phy_offset = self.control.published_phy_offset

    def step(self) -> int:
        """One step of the timer thread; its status."""
        return int(lib.rp_timers_step(self.timers))

    def run_until_idle(self) -> None:
        """Steps of all until nothing is to be done now."""
        while True:
            status = self.step()
            self.path.turn()
            self.flush()
            if status != Status.OK:
                assert status == Status.EMPTY
                if self.header.journal_begin == self.header.journal_end and not self._is_given():
                    return

    def _is_given(self) -> bool:
        return bool(lib.rp_ring_depth(self.path.store_send))

    def restart_timers(self) -> None:
        lib.rp_timers_close(self.timers)
        self.timers = self._open_timers()

    def restart_send(self, *, takes_turn: bool = True) -> None:
        lib.rp_send_close(self.path.send)
        self.path.send = self.path.open_send()
        for topic in self._topics:
            self.path.add_topic(topic)
        if self._queue() != ffi.NULL:
            self.add_timer_topic()
        self.path.tell_tables_end()
        if takes_turn:
            self.path.turn()

    def _queue(self) -> Any:
        return lib.rp_control_find(self.path.block, TIMER_TOPIC.encode(), len(TIMER_TOPIC), 0)

    def reboot(self, *, lost: bool = False, disk: Path | None = None, same_kernel: bool = False) -> None:
        """The next start under another kernel, whose page cache kept the log; `lost`: the directory `timer` is gone;
        `disk`: it is this one. What was in rings is gone. `same_kernel`: recovery has cut the log, and the broker was a
        slave in between."""
        lib.rp_timers_close(self.timers)
        lib.rp_send_close(self.path.send)
        lib.rp_timer_marks_close(self.marks)
        if lost:
            for path in [*(self.root / "timer" / "runs").glob("*"), self.root / "timer" / "delivered"]:
                path.unlink()
        if disk is not None:
            shutil.rmtree(self.root / "timer")
            shutil.copytree(disk, self.root / "timer")
        if same_kernel:
            forget_marks_of_this_boot(StorePaths.of(self.root), DiskFiles())
            self.marks = self._open_marks(self.path.block)
            TimerMarks(self.marks).follow_master()
            lib.rp_timer_marks_close(self.marks)
        else:
            self.control.boot_id[0] = (self.control.boot_id[0] + 1) % 256
        self.marks = self._open_marks(self.path.block)
        self.path.send_options["timers"] = self.marks
        self.path.renew_store_ring()
        self.restart_all()

    def restart_all(self) -> None:
        self.path.send = self.path.open_send()
        for topic in self._topics:
            self.path.add_topic(topic)
        if self._queue() != ffi.NULL:
            self.add_timer_topic()
        self.path.tables_end()
        self.timers = self._open_timers()

    # --- cleaning ---

    def ask_to_renew(self, to: int) -> None:
        """As the cleaner: it wants to delete the log before `to`."""
        self.header.renew_to = to
        self.header.renew_requests += 1

    def delete_files(self, below: int, *, is_trimmed: bool = True) -> int:
        """Delete the log files that end at or before `below` and that no timer holds; the units of their records with
        them, unless everything dies between. Returns how many. `records` still knows what was in them."""
        deleted = 0
        held = max(0, self.header.held_phy_offset - 1)
        for path in sorted((self.root / "commitlog").iterdir()):
            end = int(path.name) + self.path.file_size
            if end > min(below, held, self.control.durable_phy_offset, self.control.dispatched_phy_offset):
                break
            self.control.min_phy_offset = end
            self._deleted += decode_records(path.read_bytes(), int(path.name))
            path.unlink()
            deleted += 1
        if deleted and is_trimmed and self._queue() != ffi.NULL:
            self._trim_queue()
        return deleted

    def _trim_queue(self) -> None:
        queue = self._queue()
        directory = self.root / "consumequeue" / TIMER_TOPIC / "0"
        while queue.min_offset < queue.max_offset:
            file, at = divmod(queue.min_offset * CQ_UNIT.size, self.path.cq_file_size)
            data = (directory / f"{file * self.path.cq_file_size:020d}").read_bytes()
            if CQ_UNIT.unpack_from(data, at)[0] >= self.control.min_phy_offset:
                break
            queue.min_offset += 1

    def cut(self, end: int, numbers: int) -> None:
        """A power failure: the log ends at `end`, and the timer queue has `numbers` units. Before `reboot`."""
        path = self.root / "commitlog" / f"{end // self.path.file_size * self.path.file_size:020d}"
        with path.open("r+b") as file:
            file.truncate(end % self.path.file_size)
            file.truncate(self.path.file_size)
        queue = self._queue()
        queue.max_offset = queue.next_offset = numbers
        queue.max_phy_offset = end
        for name in ("published", "dispatched", "durable"):
            setattr(self.control, f"{name}_phy_offset", end)
        lib.rp_dispatch_close(self.path.dispatch)
        self.path.dispatch = self.path.open_dispatch()

    # --- what there is ---

    def records(self, topic: str) -> list[StoredRecord]:
        found = list(self._deleted)
        for path in sorted((self.root / "commitlog").iterdir()):
            found += decode_records(path.read_bytes(), int(path.name))
        return [record for record in found if record.topic == topic]

    def bodies(self, topic: str = "T") -> list[bytes]:
        return [bytes(record.body) for record in self.records(topic)]
