"""The clock of store times and delays: it never goes back, whatever is done to the wall clock, and over restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the control block is C")

from rocketpy.broker.delays.schedule import due_time_ms
from rocketpy.message.record import decode_records
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import encode_put
from rocketpy.remoting.fast_path import MessageToPut
from rocketpy.store.control_block import ControlBlock
from tests.support.fast_path import FastPath

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@attrs.define
class Machine:
    wall: int = NOW_MS
    boot: int = 5_000_000

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms


class Broker:
    """The send worker's clock, which a restart opens anew, and what others read of it."""

    def __init__(self, control: ControlBlock, machine: Machine) -> None:
        self.control, self.machine = control, machine
        self.restart()

    def restart(self) -> None:
        self.clock: Any = ffi.new("rp_broker_clock *")
        lib.rp_broker_clock_open(self.clock, self.control.header, self.machine.wall, self.machine.boot)

    def store(self) -> int:
        """The store time of a message that is stored now."""
        now_ms = int(lib.rp_broker_clock_tick(self.clock, self.machine.wall, self.machine.boot))
        self.control.header.last_store_timestamp_ms = now_ms
        return now_ms

    @property
    def now_ms(self) -> int:
        return self.control.clock_ms(self.machine.wall, self.machine.boot)

    @property
    def slowed_from_ms(self) -> int | None:
        return self.control.clock_slowed_from_ms(self.machine.wall, self.machine.boot)

    def is_due(self, stored_ms: int, delay_ms: int) -> bool:
        return due_time_ms(stored_ms, stored_ms + delay_ms, delay_ms, self.slowed_from_ms) <= self.now_ms


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlBlock]:
    control = ControlBlock(tmp_path / "control", 1 << 20)
    yield control
    control.close()


@pytest.fixture
def broker(control: ControlBlock) -> Broker:
    return Broker(control, Machine())


def test_it_is_the_wall_clock_while_nobody_sets_that_back(broker: Broker) -> None:
    for step in (0, 1, 1000, DAY_MS):
        broker.machine.pass_ms(step)
        assert broker.store() == broker.now_ms == broker.machine.wall
        assert broker.slowed_from_ms is None
    broker.machine.wall += DAY_MS
    assert broker.store() == broker.machine.wall


def test_set_back_it_goes_on_at_half_speed_until_the_wall_clock_has_caught_up(broker: Broker) -> None:
    broker.machine.wall += DAY_MS
    ahead = broker.store()
    broker.machine.wall -= DAY_MS
    broker.machine.pass_ms(1000)
    assert broker.store() == ahead + 500 and broker.slowed_from_ms == ahead
    broker.machine.pass_ms(2 * DAY_MS - 2000)
    assert broker.store() == broker.machine.wall + 500
    broker.machine.pass_ms(1000)
    assert broker.store() == broker.machine.wall and broker.slowed_from_ms is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("delay_ms", [1_000, 30_000, 7_200_000])
def test_a_delay_is_as_long_as_it_should_be_after_the_clock_was_a_day_ahead(
    broker: Broker, delay_ms: int, restarts: bool
) -> None:
    """Fault: After the wall clock had been ahead, store times stood still and delayed messages came at once."""
    machine = broker.machine
    machine.wall += DAY_MS
    while_ahead = broker.store()
    machine.pass_ms(500)
    broker.store()
    machine.wall -= DAY_MS
    broker.store()
    if restarts:
        broker.restart()
    machine.pass_ms(100)
    after = broker.store()
    machine.pass_ms(delay_ms - 601)
    assert not broker.is_due(while_ahead, delay_ms)
    machine.pass_ms(2)
    assert broker.is_due(while_ahead, delay_ms) and not broker.is_due(after, delay_ms)
    machine.pass_ms(600)
    assert broker.is_due(after, delay_ms)


def test_another_kernel_s_boot_time_is_not_taken_for_ours(broker: Broker) -> None:
    """After a reboot the clock goes on from the last store time."""
    machine = broker.machine
    machine.wall += DAY_MS
    ahead = broker.store()
    machine.wall -= DAY_MS
    broker.store()
    machine.pass_ms(2000)
    stored = broker.store()
    assert stored == ahead + 1000
    broker.control.forget_clock()
    machine.boot = 100
    broker.restart()
    assert broker.now_ms == stored and broker.slowed_from_ms == stored
    machine.pass_ms(30_000)
    assert broker.store() == stored + 15_000


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_done_to_the_wall_clock_store_times_rise_and_no_delay_is_shorter_than_the_jumps_explain(
    control: ControlBlock, seed: int
) -> None:
    choose = random.Random(seed)
    machine = Machine()
    broker = Broker(control, machine)
    last, ahead_total = 0, 0
    waiting: list[tuple[int, int, int, int]] = []  # store time, delay, boot time and jumps ahead when it was stored
    for _ in range(1000):
        what = choose.random()
        if what < 0.02:
            jump = choose.choice((1, 40, 5_000, DAY_MS, 400 * DAY_MS))
            machine.wall += jump
            ahead_total += jump
        elif what < 0.04:
            machine.wall -= choose.choice((1, 40, 5_000, DAY_MS, 400 * DAY_MS))
        elif what < 0.06:
            broker.restart()
        machine.pass_ms(choose.randrange(3_000))
        stored = broker.store()
        assert stored >= last
        last = stored
        for message in list(waiting):
            stored_ms, delay_ms, boot_ms, ahead_before = message
            passed_ms = machine.boot - boot_ms
            if broker.is_due(stored_ms, delay_ms):
                waiting.remove(message)
                assert passed_ms + ahead_total - ahead_before >= delay_ms - 2
            else:
                assert passed_ms < 2 * delay_ms + 2
        waiting.append((stored, choose.choice((1_000, 30_000, 600_000)), machine.boot, ahead_total))


def test_the_send_worker_stores_by_it(tmp_path: Path) -> None:
    machine = Machine()
    wall = ffi.callback("int64_t(void)", lambda: machine.wall)
    boot = ffi.callback("int64_t(void)", lambda: machine.boot)
    rig = FastPath(tmp_path, wall_ms=wall, boot_ms=boot)
    rig.add_topic("T")
    rig.tables_end()
    for token, (jump, pass_ms) in enumerate([(DAY_MS, 0), (-DAY_MS, 1000), (0, 1000)]):
        machine.wall += jump
        machine.pass_ms(pass_ms)
        if token == 2:  # a restarted worker goes on with the same clock
            lib.rp_send_close(rig.send)
            rig.workers["send"].epoch += 1
            rig.send = rig.open_send()
            rig.add_topic("T")
            rig.tell_tables_end()
        rig.put(encode_put(MessageToPut("T", 0, b"x", b""), token + 1, 0))
        rig.turn()
    end = lib.rp_control_header(rig.block).published_phy_offset
    times = [record.store_timestamp_ms for record in decode_records(rig.log(0, end))]
    assert times == [NOW_MS + DAY_MS, NOW_MS + DAY_MS + 500, NOW_MS + DAY_MS + 1000]
    rig.close()
