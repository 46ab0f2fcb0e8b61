"""Timers against a model: whatever happens between, each is delivered once, not before its time, and promptly. Log
files are deleted on the way."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")

from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.message.sys_flag import TRANSACTION_MASK
from tests.support.budget import budget
from tests.support.timer_rig import TIMER_TOPIC, TimerRig

SEED = int(os.environ.get("ROCKETPY_SEED", random.SystemRandom().randrange(1 << 32)))
FILE_SIZE, FILL = 65_536, b"f" * 8_000
STEPS = budget(150, 400)
ENOUGH = budget(180, 500)  # timers
STEPS_MAX = 8 * STEPS  # until enough of each kind has happened, which depends on the seed


class Model:
    """What the rig was told, and what must be true of its log."""

    def __init__(self, rig: TimerRig, choose: random.Random) -> None:
        self.rig, self.choose = rig, choose
        self.due_ms: dict[bytes, int] = {}  # of those that were not cancelled
        self.sent = self.cancelled = self.moved = self.deleted = 0

    @property
    def is_varied(self) -> bool:
        """Whether enough of each kind has happened."""
        return self.sent > ENOUGH and self.cancelled > 5 and self.moved > 5 and self.deleted > 5

    def send(self) -> None:
        for _ in range(self.choose.randrange(1, 40)):
            delay_ms = int(10 ** self.choose.uniform(0, 5))
            body = b"%d" % self.sent
            self.sent += 1
            self.due_ms[body] = self.rig.wall_ms + delay_ms
            form = self.choose.choice((f"TIMER_DELAY_MS\x01{delay_ms}", f"TIMER_DELIVER_MS\x01{self.due_ms[body]}"))
            self.rig.send_many([(body, form)])

    def change(self) -> None:
        """Cancel or move some; one that was delivered, or changed before, is refused."""
        bodies = set(self.rig.bodies())
        timers = [record for record in self.rig.records(TIMER_TOPIC) if record.sys_flag & TRANSACTION_MASK == 0]
        numbers = {bytes(record.body): int(record.queue_offset) for record in timers}  # the last ones of those renewed
        for body in self.choose.sample(sorted(self.due_ms), min(len(self.due_ms), 5)):
            due_ms = self.rig.wall_ms + self.choose.randrange(5000) if self.choose.randrange(2) else None
            came = body in bodies
            code = self.rig.change(numbers[body], due_ms)
            if came or code:
                assert code, "changed after its delivery"
            elif due_ms is None:
                del self.due_ms[body]
                self.cancelled += 1
            else:
                self.due_ms[body] = due_ms
                self.moved += 1

    def clean(self) -> None:
        """Other messages come, and the cleaner deletes log files, after it has asked for their pending timers."""
        for _ in range(self.choose.randrange(6)):
            assert self.rig.send(FILL, "", topic="F") is not None
        end = self.rig.control.published_phy_offset // FILE_SIZE * FILE_SIZE
        self.rig.ask_to_renew(end)
        for _ in range(self.choose.randrange(4)):
            self.rig.step()
            self.rig.path.turn()
        self.deleted += self.rig.delete_files(end)

    def check(self, *, is_idle: bool) -> None:
        records = self.rig.records("T")
        times = Counter(bytes(record.body) for record in records)
        assert all(count == 1 for count in times.values()), "delivered twice"
        for record in records:
            due_ms = self.due_ms[bytes(record.body)]
            assert record.store_timestamp_ms >= due_ms, "early"
            assert int(decode_properties(record.properties.decode())[TIMER_OUT_MS]) == due_ms
        if is_idle:
            assert times.keys() == {body for body, due_ms in self.due_ms.items() if due_ms <= self.rig.wall_ms}
            assert self.rig.header.pending == len(self.due_ms) - len(times)


@pytest.mark.parametrize("heap_max", [3, 50, 0])
def test_each_timer_is_delivered_once_whatever_is_restarted(tmp_path: Path, heap_max: int) -> None:
    print(f"ROCKETPY_SEED={SEED}")
    choose = random.Random(f"{SEED}/{heap_max}")
    rig = TimerRig(tmp_path, heap_max=heap_max, file_size=FILE_SIZE)
    rig.add_timer_topic()
    rig.add_topic("F")
    model = Model(rig, choose)
    for step in range(STEPS_MAX):
        if step >= STEPS and model.is_varied:
            break
        what = choose.randrange(14)
        if what < 3:
            model.send()
        elif what < 5:
            rig.advance(int(10 ** choose.uniform(0, 4)))
        elif what == 5:
            rig.step()
        elif what == 6:
            rig.path.turn()
        elif what == 7:
            rig.flush()
        elif what == 8:
            rig.restart_timers()
        elif what == 9:
            rig.restart_send()
        elif what == 10:
            rig.run_until_idle()
            model.check(is_idle=True)
        elif what == 11:
            model.change()
        elif what == 12:
            model.clean()
        else:
            rig.flush()
            rig.reboot(lost=choose.randrange(2) == 0)
        if choose.randrange(10) == 0:
            model.check(is_idle=False)
    rig.advance(200_000)
    rig.run_until_idle()
    model.check(is_idle=True)
    assert model.is_varied, (model.sent, model.cancelled, model.moved, model.deleted)
    rig.close()
