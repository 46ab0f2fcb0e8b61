"""What only a group's master does, with a role that changes."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketpy.broker.slaves.master_duties import MasterDuties


def test_a_duty_runs_while_this_broker_is_the_master() -> None:
    async def main() -> None:
        duties, seen = MasterDuties(), []

        async def run() -> None:
            seen.append("begins")
            try:
                await trio.sleep_forever()
            finally:
                seen.append("ends")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(duties.while_master(run))
            for is_master in (True, False, False, True):
                duties.switch(is_master)
                await trio.testing.wait_all_tasks_blocked()
                seen.append(str(is_master))
            nursery.cancel_scope.cancel()
        assert seen == ["begins", "True", "ends", "False", "False", "begins", "True", "ends"]

    trio.run(main)


def test_a_duty_that_fails_is_not_hidden() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        trio.run(MasterDuties().while_master(fail))
    assert caught.group_contains(ZeroDivisionError)


def test_work_is_left_out_while_another_broker_is_the_master() -> None:
    async def main() -> None:
        duties, done = MasterDuties(False), []

        async def work() -> None:
            done.append(1)

        await duties.if_master(work)()
        assert not done and not duties.is_master
        duties.switch(True)
        await duties.if_master(work)()
        assert done

    trio.run(main)


def test_a_role_that_is_taken_back_at_once_ends_the_duty() -> None:
    """Fault: A member demoted within a moment went on delivering delayed messages and checking transactions."""

    async def main() -> None:
        running = []

        async def run() -> None:
            running.append(1)
            try:
                await trio.sleep_forever()
            finally:
                running.pop()

        async with trio.open_nursery() as nursery:
            for _ in range(40):  # trio runs the tasks of one moment in any order
                duties = MasterDuties(False)
                nursery.start_soon(duties.while_master(run))
                await trio.testing.wait_all_tasks_blocked()
                duties.switch(True)
                await trio.lowlevel.checkpoint()
                duties.switch(False)
                await trio.testing.wait_all_tasks_blocked()
                assert not running
            nursery.cancel_scope.cancel()

    trio.run(main)
