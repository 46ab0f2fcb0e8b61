"""The clock that files are deleted by: trusted when it goes back, not at once when it goes ahead."""

from __future__ import annotations

import attrs

from rocketpy.store.clocks import TRUSTED_AFTER_MS, CautiousClock, boot_clock_ms, wall_clock_ms

DAY_MS = 86_400_000


@attrs.define
class State:
    cautious_lead_ms: int = 0
    wall_ahead_since_ms: int = 0


@attrs.define
class Machine:
    wall: int = 1_700_000_000_000
    boot: int = 5_000
    state: State = attrs.Factory(State)

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms


def clock_of(machine: Machine) -> CautiousClock:
    return CautiousClock(machine.state, lambda: machine.wall, lambda: machine.boot)


def test_it_is_the_wall_clock_while_nobody_sets_that() -> None:
    machine = Machine()
    clock = clock_of(machine)
    for _ in range(5):
        assert clock.now_ms() == machine.wall
        machine.pass_ms(DAY_MS)


def test_a_jump_ahead_that_is_taken_back_never_shows() -> None:
    """Fault: A wall clock that was ahead for a moment had log files deleted as expired."""
    machine = Machine()
    clock = clock_of(machine)
    machine.wall += DAY_MS
    assert clock.now_ms() == machine.wall - DAY_MS
    machine.pass_ms(TRUSTED_AFTER_MS - 1)
    assert clock.now_ms() == machine.wall - DAY_MS
    machine.wall -= DAY_MS
    assert clock.now_ms() == machine.wall
    machine.wall += DAY_MS
    machine.pass_ms(1)
    assert clock.now_ms() == machine.wall - DAY_MS  # a new jump, a new hour


def test_a_jump_ahead_that_lasts_is_trusted() -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.wall += DAY_MS
    clock.now_ms()
    machine.pass_ms(TRUSTED_AFTER_MS)
    assert clock.now_ms() == machine.wall


def test_a_jump_back_is_followed_at_once() -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.wall -= DAY_MS
    assert clock.now_ms() == machine.wall


def test_a_restarted_store_worker_is_as_cautious() -> None:
    """A store worker that starts while the clock is ahead trusts it no earlier than the previous one would have.
    Fault: A store worker started while the wall clock was ahead could delete files early."""
    machine = Machine()
    clock_of(machine).now_ms()
    machine.wall += DAY_MS
    assert clock_of(machine).now_ms() == machine.wall - DAY_MS
    machine.pass_ms(TRUSTED_AFTER_MS - 1)
    assert clock_of(machine).now_ms() == machine.wall - DAY_MS
    machine.pass_ms(1)
    assert clock_of(machine).now_ms() == machine.wall


def test_the_machine_s_clocks_are_milliseconds() -> None:
    assert wall_clock_ms() > 1_600_000_000_000
    assert 0 < boot_clock_ms() < wall_clock_ms()
