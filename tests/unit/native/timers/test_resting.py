"""The timer thread of a broker whose log does not grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from tests.support.history import send_request
from tests.support.timer_rig import TimerRig
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000
POLL_S = 0.2  # between two looks of a thread that does not rest
LOOP_NS = 5_000_000


class WatchedRig(TimerRig):
    """Its timer thread waits for an hour when it rests."""

    looks = sent = status = 0

    @property
    def boot_ms(self) -> int:
        self.looks += 1
        return self._boot_ms

    @boot_ms.setter
    def boot_ms(self, value: int) -> None:
        self._boot_ms = value

    def rests(self) -> bool:
        before = self.looks
        time.sleep(2 * POLL_S)
        return self.looks == before

    def knows_all(self) -> bool:
        return int(self.header.pending) == self.sent

    def send_and_dispatch(self, timeout_ns: int = LOOP_NS) -> None:
        """As the send worker and the main thread of the store worker do, one after the other."""
        self.sent += 1
        command = send_request("T", 0, [b"body"], self.sent)
        assert command.ext_fields is not None
        command.ext_fields["i"] = f"TIMER_DELAY_MS\x01{HOUR_MS}"
        assert self.path.frame(command) == Status.OK
        lib.rp_codec_wake(self.path.codec)
        lib.rp_send_run(self.path.send, 0)
        worker = self.path.workers["store"]
        loop = self.path.dispatch, self.control, worker, ffi.NULL, ffi.NULL, 0, self.timers
        self.status = lib.rp_store_loop(*loop, timeout_ns)


@contextmanager
def running(rig: WatchedRig) -> Iterator[None]:
    thread = threading.Thread(target=lib.rp_timers_run, args=(rig.timers, HOUR_MS * 1_000_000))
    thread.start()
    try:
        yield
    finally:
        lib.rp_timers_stop(rig.timers)
        thread.join()


def test_it_rests_until_records_are_dispatched(tmp_path: Path) -> None:
    rig = WatchedRig(tmp_path, rest_ms=HOUR_MS)
    rig.add_timer_topic()
    with running(rig):
        for _ in range(3):  # the first one makes the queue
            wait_until(rig.rests, "the timer thread rests")
            rig.send_and_dispatch()
            wait_until(rig.knows_all, "the timer is known")
            rig.advance(10_000)  # no timer came for a while
    rig.close()


def test_the_loop_of_the_store_returns_soon_after_a_record(tmp_path: Path) -> None:
    """Fault: After a rest of the broker its log reached the disk a whole heartbeat later than it grew."""
    rig = WatchedRig(tmp_path, rest_ms=HOUR_MS)
    rig.add_timer_topic()
    rig.send_and_dispatch(HOUR_MS * 1_000_000)
    assert rig.status == Status.EMPTY
