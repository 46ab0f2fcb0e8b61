"""Timers, crashed between the records of their ends, the journal, their bits and their runs.

`python -m tests.support.crash.timers --seed 1 --crashes 1000`

A life is one store before a send worker and a timer thread, with a clock of its own: timers are sent, delivered,
cancelled, moved and stored again. At chosen points it is looked at what a crash would leave: all processes die, or the
power fails, once or twice, sometimes with the loss of the timers' files. Then all start again, and time goes on until
each timer is due. Each one that was acknowledged is delivered once and not early, if it was not cancelled; none twice.

Fault: A removed file of pending timers came back after two power failures and hid later timers (--seed 1023 --crashes
60).
"""

from __future__ import annotations

from tests.support.crash import core

core.load()  # before anything of rocketpy

import os  # noqa: E402  the core comes first
import shutil  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import attrs  # noqa: E402

from rocketpy.config import MessageStoreConfig  # noqa: E402
from rocketpy.message.properties import TIMER_OUT_MS, decode_properties  # noqa: E402
from rocketpy.message.sys_flag import TRANSACTION_MASK  # noqa: E402
from rocketpy.native.core import lib  # noqa: E402
from rocketpy.store.recovery.lifecycle import close_store, open_store  # noqa: E402
from tests.support.crash.disk import SimulatedDisk  # noqa: E402
from tests.support.crash.seeded import SeededLife, run_lives  # noqa: E402
from tests.support.store_writer import small_config  # noqa: E402
from tests.support.timer_rig import TIMER_TOPIC, TimerRig  # noqa: E402

LOOKED_AT, TIMER_LOOKED_AT = 0.1, 0.5  # of the points that are reached, and of those of timers
DELAY_MAX_MS = 5_000
HEAP_MAX = 4  # timers in memory
FAILS_AGAIN = 0.5  # of the power failures: a second one follows soon
ALL_DUE_MS = 100_000
MARKS_BOOT_ID = slice(16, 32)  # in timer/delivered
NEVER = 1 << 62
WEIGHTS = {"send": 30, "advance": 15, "step": 30, "turn": 30, "flush": 12, "sync": 8, "change": 10, "renew": 5}


@attrs.define
class Known:
    """A timer as its sender knows it."""

    states: list[tuple[int | None, int]]
    """Times (None: cancelled), each with the end of the log when it was acknowledged; NEVER: it was not, yet."""

    def possible(self, certain: int) -> list[int | None]:
        """Its times if the log is kept up to `certain`; of what comes behind each may be lost or not."""
        kept = [index for index, (_, end) in enumerate(self.states) if end <= certain]
        return [due_ms for due_ms, _ in self.states[kept[-1] if kept else 0 :]]

    def is_certain(self, certain: int) -> bool:
        return self.states[0][1] <= certain


class Life(SeededLife):
    """Timers that are sent, delivered, cancelled, moved and stored again."""

    operations_max = 120
    kinds_of_crash = ("death", "power", "power", "lost")
    points = ("timer.", "append.", "roll.", "new_file.", "flush.")
    written_back = 0.03

    def open(self) -> Any:
        self._known: dict[bytes, Known] = {}
        self._again: list[bytes] = []  # timers sent between two power failures, and flushed
        close_store(open_store(_config(self.root)), clean=False)
        self._rig = _rig(self.root)
        return self._rig.control

    def operate(self) -> None:
        getattr(self, f"_{self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]}")()

    def close(self) -> None:
        self._rig.close()

    def share(self, point: str) -> float:
        return TIMER_LOOKED_AT if point.startswith("timer.") else LOOKED_AT

    # --- operations ---

    def _send(self) -> None:
        delay_ms = self.rng.randrange(1, DELAY_MAX_MS)
        body = b"%d" % len(self._known)
        known = self._known[body] = Known([(self._rig.wall_ms + delay_ms, NEVER)])
        filler = "x" * self.rng.randrange(900)
        self._rig.send_many([(body, f"TIMER_DELAY_MS\x01{delay_ms}\x02x\x01y{filler}")])
        self._acknowledge(known)

    def _acknowledge(self, known: Known) -> None:
        known.states[-1] = (known.states[-1][0], self._published())

    def _advance(self) -> None:
        self._rig.advance(self.rng.randrange(1, 1500))

    def _step(self) -> None:
        assert self._rig.step() in (lib.RP_OK, lib.RP_EMPTY)

    def _turn(self) -> None:
        self._rig.path.turn()

    def _flush(self) -> None:
        self.flush()

    def _sync(self) -> None:
        assert lib.rp_timers_sync(self._rig.timers) == lib.RP_OK

    def _renew(self) -> None:
        self._rig.ask_to_renew(self._published())

    def _change(self) -> None:
        timers = [record for record in self._rig.records(TIMER_TOPIC) if record.sys_flag & TRANSACTION_MASK == 0]
        if not timers:
            return
        record = self.rng.choice(timers)
        known = self._known[bytes(record.body)]
        due_ms = self._rig.wall_ms + self.rng.randrange(DELAY_MAX_MS) if self.rng.random() < 0.5 else None
        known.states.append((due_ms, NEVER))
        if self._rig.change(int(record.queue_offset), due_ms) == 0:
            self._acknowledge(known)
        else:
            known.states.pop()

    def _published(self) -> int:
        return int(self._rig.control.published_phy_offset)

    # --- aftermath ---

    def look(self, kind: str, root: Path) -> None:
        control = self._rig.control
        self._again.clear()
        certain = int(control.published_phy_offset if kind == "death" else control.durable_phy_offset)
        disk = self.disk.survive(root) if kind == "death" else self.disk.lose_power(root, self.rng)
        if kind != "death":
            _forget_kernel(disk.root / "timer" / "delivered")
            if self.rng.random() < FAILS_AGAIN:
                self._fail_again(disk)
        if kind == "lost":
            self._lose(root / "timer")
        close_store(open_store(_config(root)), clean=False)
        rig = _rig(root, now_ms=self._rig.wall_ms)
        try:
            rig.run_until_idle()
            rig.advance(ALL_DUE_MS)
            rig.run_until_idle()
            self._validate(rig, certain)
        finally:
            rig.close()

    def _lose(self, timer: Path) -> None:
        """All files of timers, or the marks alone."""
        if self.rng.random() < 0.5:
            shutil.rmtree(timer, ignore_errors=True)
        else:
            (timer / "delivered").unlink(missing_ok=True)

    def _fail_again(self, disk: SimulatedDisk) -> None:
        """The power fails a second time, early: before the timer thread has loaded, or soon after. New timers have got
        numbers meanwhile; the log keeps them. What comes up takes the place of `disk`."""
        with self.taps.listening(Second(disk)):
            close_store(open_store(_config(disk.root)), clean=False)
            rig = _rig(disk.root, now_ms=self._rig.wall_ms)
            flush = lib.rp_flush_open(os.fsencode(disk.root / "commitlog"), rig.control)
            for number in range(self.rng.randrange(2 * HEAP_MAX)):
                body = b"again %d" % number
                rig.send_many([(body, f"TIMER_DELAY_MS\x01{self.rng.randrange(1, DELAY_MAX_MS)}")])
                self._again.append(body)
            while (status := lib.rp_flush_log(flush)) == lib.RP_OK:
                pass
            assert status == lib.RP_EMPTY and rig.control.durable_phy_offset == rig.control.published_phy_offset
            for _ in range(self.rng.randrange(3)):
                rig.step()
            disk.write_back(self.rng)
            failed = disk.lose_power(disk.root.with_name(f"{disk.root.name}again"), self.rng)
            lib.rp_flush_close(flush)
            rig.close()
        self.taps.check()
        shutil.rmtree(disk.root)
        failed.root.rename(disk.root)
        _forget_kernel(disk.root / "timer" / "delivered")

    def _validate(self, rig: TimerRig, certain: int) -> None:
        found = rig.records("T")
        times = Counter(bytes(record.body) for record in found)
        assert all(count == 1 for count in times.values()), f"delivered twice: {times}"
        assert all(times[body] == 1 for body in self._again), "a timer sent between two failures is lost"
        for record in found:
            if bytes(record.body) in self._again:
                continue
            due_ms = int(decode_properties(record.properties.decode())[TIMER_OUT_MS])
            possible = self._known[bytes(record.body)].possible(certain)
            assert due_ms in possible, f"timer {record.body!r} was delivered by {due_ms}, not one of {possible}"
            assert record.store_timestamp_ms >= due_ms, f"timer {record.body!r} is early"
        for body, known in self._known.items():
            if known.is_certain(certain) and None not in known.possible(certain):
                assert times[body] == 1, f"timer {body!r} is lost"
        assert rig.header.pending == 0


class Second:
    """Listens between two power failures: what is synced there is on the second one's disk."""

    phase = "second"

    def __init__(self, disk: SimulatedDisk) -> None:
        self.root = disk.root
        self._disk = disk

    def reach(self, point: str) -> None:
        pass

    def sync(self, descriptor: int) -> None:
        self._disk.sync_descriptor(descriptor)

    def sync_all(self) -> None:
        self._disk.sync_all()


def _forget_kernel(marks: Path) -> None:
    """The machine was started again: the journal is of another kernel."""
    if marks.exists() and marks.stat().st_size >= MARKS_BOOT_ID.stop:
        with marks.open("r+b") as file:
            file.seek(MARKS_BOOT_ID.start)
            file.write(bytes(MARKS_BOOT_ID.stop - MARKS_BOOT_ID.start))


def _config(root: Path) -> MessageStoreConfig:
    return small_config(root, message_index_enable=False)


def _rig(root: Path, **options: int) -> TimerRig:
    """Workers on the store, with empty rings."""
    config = _config(root)
    rig = TimerRig(
        root,
        heap_max=HEAP_MAX,
        file_size=config.mapped_file_size_commit_log,
        cq_file_size=config.mapped_file_size_consume_queue,
        **options,
    )
    rig.add_timer_topic()
    return rig


if __name__ == "__main__":
    sys.exit(run_lives(Life))
