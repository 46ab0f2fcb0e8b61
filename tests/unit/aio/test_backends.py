"""What both backends promise alike: nurseries, deadlines, shields and threads."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import trio

from rocketpy import aio
from tests.support.loops import run, settled


def test_the_running_one_is_found(backend: str) -> None:
    async def main() -> None:
        assert aio.running().name == backend

    run(main)


def test_trio_as_a_guest_of_asyncio_is_trio() -> None:
    names: list[str] = []

    async def guest() -> None:
        names.append(aio.running().name)

    async def host() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        await done
        names.append(aio.running().name)

    asyncio.run(host())
    assert names == ["trio", "asyncio"]


@pytest.mark.parametrize("name", ["rocketpy.aio", "rocketpy.client", "rocketpy.client.sync"])
def test_neither_is_imported_before_it_is_used(name: str) -> None:
    program = f"import sys\nfrom {name} import *\nprint([name for name in ('trio', 'asyncio') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_clock_and_sleep(backend: str) -> None:
    async def main() -> None:
        began_s = aio.now_s()
        await aio.sleep(2)
        await aio.sleep_until(began_s + 5)
        await aio.sleep_until(began_s)
        assert aio.now_s() - began_s == pytest.approx(5)

    run(main)


def test_a_block_is_left_when_its_time_is_over(backend: str) -> None:
    async def main() -> None:
        began_s = aio.now_s()
        with aio.move_on_after(3) as outer:
            with aio.move_on_after(1) as inner:
                await aio.sleep_forever()
            assert inner.cancelled_caught and not outer.cancelled_caught
            with aio.move_on_after(5) as later:
                await aio.sleep_forever()
            raise AssertionError("the outer block is over first")
        assert outer.cancelled_caught and not later.cancelled_caught
        with aio.move_on_after(1) as in_time:
            await aio.sleep(0.5)
        assert not in_time.cancelled_caught
        assert aio.now_s() - began_s == pytest.approx(3.5)

    run(main)


def test_an_error_leaves_a_block_as_it_is(backend: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError), aio.move_on_after(1):
            raise ValueError
        await aio.sleep(2)  # the deadline of the block hurts nobody after it

    run(main)


def test_asyncio_a_deadline_and_a_cancellation_at_once_is_a_cancellation() -> None:
    async def work() -> None:
        with aio.move_on_after(1):
            await aio.sleep_forever()
        raise AssertionError("the cancellation was taken for the deadline")

    async def main() -> None:
        task = asyncio.ensure_future(work())
        asyncio.get_running_loop().call_at(1.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main, backend="asyncio")


class Tracks:
    """Tasks that say how they ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def wait(self, name: str) -> None:
        try:
            await aio.sleep_forever()
        finally:
            self.ended.append(name)


def test_a_nursery_waits_for_its_tasks_and_can_end_them(backend: str) -> None:
    async def main() -> None:
        tracks = Tracks()
        async with aio.open_nursery() as nursery:
            one = nursery.start(tracks.wait, "one")
            nursery.start_soon(tracks.wait, "other")
            await settled()
            one.cancel()
            await settled()
            assert tracks.ended == ["one"]
            nursery.cancel()
        assert tracks.ended == ["one", "other"]
        done: list[int] = []

        async def work() -> None:
            await aio.sleep(5)
            done.append(1)

        async with aio.open_nursery() as nursery:
            nursery.start_soon(work)
        assert done == [1]

    run(main)


def test_a_failed_task_ends_the_block_and_the_other_tasks(backend: str) -> None:
    async def main() -> None:
        tracks = Tracks()

        async def fail() -> None:
            await aio.sleep(1)
            raise KeyError("x")

        with pytest.raises(BaseExceptionGroup) as caught:
            async with aio.open_nursery() as nursery:
                nursery.start_soon(tracks.wait, "one")
                nursery.start_soon(fail)
                await tracks.wait("block")
        assert caught.group_contains(KeyError)
        assert sorted(tracks.ended) == ["block", "one"]
        await aio.sleep(1)  # nothing of the cancellation is left

    run(main)


def test_a_task_that_is_started_while_the_nursery_ends_runs_to_its_first_wait(backend: str) -> None:
    """asyncio alone would drop it, and the connection that it was given would stay open."""

    async def main() -> None:
        tracks = Tracks()

        async def at_the_end(nursery: aio.OpenNursery) -> None:
            try:
                await aio.sleep_forever()
            finally:
                nursery.start_soon(tracks.wait, "late")
                nursery.start(tracks.wait, "later").cancel()

        async with aio.open_nursery() as nursery:
            nursery.start_soon(at_the_end, nursery)
            await settled()
            nursery.cancel()
            nursery.start_soon(tracks.wait, "last")
        assert sorted(tracks.ended) == ["last", "late", "later"]
        with pytest.raises(ExceptionGroup) as caught:
            async with aio.open_nursery() as nursery:
                nursery.start_soon(at_the_end, nursery)
                await settled()
                nursery.start_soon(tracks.wait, "has not begun")
                raise ValueError
        assert caught.group_contains(ValueError)
        assert sorted(tracks.ended[3:]) == ["has not begun", "late", "later"]
        with pytest.raises(RuntimeError):
            nursery.start_soon(tracks.wait, "after the end")
        await settled()

    run(main)


def test_a_task_that_has_not_begun_when_another_fails_runs_to_its_first_wait(backend: str) -> None:
    async def main() -> None:
        tracks = Tracks()

        async def fail(nursery: aio.OpenNursery) -> None:
            nursery.start_soon(tracks.wait, "sibling")
            raise KeyError

        with pytest.raises(ExceptionGroup) as caught:
            async with aio.open_nursery() as nursery:
                nursery.start_soon(fail, nursery)
        assert caught.group_contains(KeyError)
        assert tracks.ended == ["sibling"]

    run(main)


def test_an_error_of_a_task_that_is_started_while_the_nursery_ends_is_raised(backend: str) -> None:
    async def main() -> None:
        async def fail() -> None:
            raise KeyError("late")

        async def at_the_end(nursery: aio.OpenNursery) -> None:
            try:
                await aio.sleep_forever()
            finally:
                nursery.start_soon(fail)

        async with aio.open_nursery() as nursery:
            nursery.start_soon(at_the_end, nursery)
            await settled()
            raise ValueError

    with pytest.raises((KeyError, ExceptionGroup)) as caught:
        run(main)
    assert isinstance(caught.value, KeyError) or caught.group_contains(KeyError)  # type: ignore[attr-defined]


def test_the_way_out_is_shielded_and_bounded(backend: str) -> None:
    async def main() -> None:
        told: list[str] = []

        async def farewell() -> None:
            await aio.sleep(1)
            told.append("farewell")
            await aio.sleep_forever()

        async def work() -> None:
            try:
                await aio.sleep_forever()
            finally:
                await aio.shielded(3, farewell)

        async with aio.open_nursery() as nursery:
            nursery.start_soon(work)
            await settled()
            began_s = aio.now_s()
            nursery.cancel()
            nursery.cancel()
        assert told == ["farewell"] and aio.now_s() - began_s == pytest.approx(3)

    run(main)


def test_asyncio_a_second_cancellation_does_not_break_the_shield() -> None:
    async def main() -> None:
        told: list[str] = []

        async def farewell() -> None:
            await asyncio.sleep(1)
            told.append("farewell")

        async def work() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await aio.shielded(3, farewell)

        task = asyncio.ensure_future(work())
        await settled()
        task.cancel()
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["farewell"]

    run(main, backend="asyncio")


def test_a_function_in_a_thread_may_return_a_coroutine(backend: str) -> None:
    """Fault: Under trio, handlers like `lambda message: work(message)` failed on each message."""

    async def work() -> int:
        return 7

    async def main() -> None:
        threads = aio.open_threads(1)
        assert await (await threads.run(work)) == 7
        threads.close()

    (trio.run if backend == "trio" else lambda function: asyncio.run(function()))(main)


def test_threads(backend: str) -> None:
    """A caller that is cancelled waits for the end of its thread."""

    async def main() -> None:
        assert await aio.in_thread(lambda one, two: one + two, 1, 2) == 3
        with pytest.raises(ZeroDivisionError):
            await aio.in_thread(lambda: 1 / 0)
        threads = aio.open_threads(2)
        begun, go, ended = threading.Semaphore(0), threading.Event(), list[int]()

        def block(number: int) -> None:
            begun.release()
            assert go.wait(30)
            ended.append(number)

        async def call(number: int) -> None:
            await threads.run(block, number)

        async with aio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(call, number)
            await settled()
            assert begun.acquire(timeout=30) and begun.acquire(timeout=30)
            nursery.start_soon(call, 2)
            await settled()
            nursery.cancel()
            threading.Timer(0.02, go.set).start()
        assert sorted(ended) == [0, 1], "the third had no thread yet"
        threads.close()

    (trio.run if backend == "trio" else lambda function: asyncio.run(function()))(main)


def test_nothing_is_left_of_a_task_that_waits_for_a_thread_and_fails(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio would report an error that nobody has asked for."""

    def fail() -> None:
        time.sleep(0.02)
        raise KeyError

    async def main() -> Any:
        task = asyncio.ensure_future(aio.in_thread(fail))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not caplog.records


@pytest.mark.parametrize("name", ["trio", "asyncio"])
def test_calls_from_another_thread(name: str) -> None:
    """A call that the end of the loop cuts off, and one after it, say so."""
    portals: queue.Queue[tuple[aio.Portal, aio.Event]] = queue.Queue()
    ended: list[object] = []

    async def live(portal: aio.Portal) -> None:
        stop = aio.Event()
        portals.put((portal, stop))
        await stop.wait()

    async def divide(one: int, two: int) -> float:
        await aio.sleep(0)
        return one / two

    def call_for_ever() -> None:
        try:
            portal.call(aio.sleep_forever)
        except aio.LoopEnded as error:
            ended.append(error.during)

    loop = threading.Thread(target=aio.run_with_portal, args=(name, live))
    loop.start()
    portal, stop = portals.get(timeout=30)
    assert portal.call(divide, 1, 2) == 0.5
    with pytest.raises(ZeroDivisionError):
        portal.call(divide, 1, 0)
    caller = threading.Thread(target=call_for_ever)
    caller.start()
    while not portal.call(aio.in_thread, caller.is_alive):
        pass
    portal.call(aio.sleep, 0.01)
    portal.call_soon(stop.set)
    loop.join(30)
    caller.join(30)
    assert ended == [True]
    portal.call_soon(stop.set)
    with pytest.raises(aio.LoopEnded) as caught:
        portal.call(divide, 1, 2)
    assert not caught.value.during


def test_a_cancellation_that_is_not_the_tasks_own_is_a_stray_one(backend: str) -> None:
    async def other() -> None:
        await aio.sleep_forever()

    found: list[bool] = []

    async def main() -> None:
        async def waits() -> None:
            try:
                await aio.sleep_forever()
            except BaseException as error:
                found.append(aio.is_stray_cancellation(error))
                raise

        async with aio.open_nursery() as nursery:
            nursery.start_soon(waits)
            await settled()
            nursery.cancel()
        if backend == "asyncio":
            task = asyncio.ensure_future(other())
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                found.append(aio.is_stray_cancellation(error))

    run(main)
    assert found == ([False, True] if backend == "asyncio" else [False])


def test_a_cancellation_during_a_shield_or_a_thread_is_not_lost(backend: str) -> None:
    async def main() -> None:
        steps: list[str] = []

        async def shielded() -> None:
            await aio.shielded(3, aio.sleep, 1)
            steps.append("one")
            await aio.sleep(0)
            steps.append("never")

        async def thread() -> None:
            await aio.in_thread(time.sleep, 0.02)
            steps.append("one")
            await aio.sleep(0)
            steps.append("never")

        for work in (shielded, thread):
            async with aio.open_nursery() as nursery:
                task = nursery.start(work)
                await aio.sleep(0.5)
                task.cancel()
        assert "never" not in steps

    run(main)


def test_the_end_of_a_block_during_a_thread_hurts_nobody_after_it(backend: str) -> None:
    async def main() -> None:
        with aio.move_on_after(0.5) as scope:
            await aio.in_thread(time.sleep, 0.02)
            await aio.sleep(0)
        assert scope.cancelled_caught
        await aio.sleep(1)

    run(main)


def test_tasks_that_are_kept_serve_the_block_on_its_way_out(backend: str) -> None:
    async def main() -> None:
        steps: list[str] = []

        async def serve() -> None:
            try:
                while True:
                    await aio.sleep(1)
                    steps.append("served")
            finally:
                steps.append("ended")

        async def block() -> None:
            manager = aio.open_nursery(keeps_tasks=True)
            nursery = await manager.__aenter__()
            nursery.start_soon(serve)
            try:
                await aio.sleep_forever()
            except BaseException as error:
                await aio.shielded(10, aio.sleep, 2.25)
                steps.append("left")
                nursery.cancel()
                await manager.__aexit__(type(error), error, error.__traceback__)
                raise

        async with aio.open_nursery() as nursery:
            task = nursery.start(block)
            await aio.sleep(1.5)
            task.cancel()
        assert steps == ["served", "served", "served", "left", "ended"]

    run(main)


def test_a_kept_task_that_fails_ends_the_block(backend: str) -> None:
    async def main() -> None:
        async def fail() -> None:
            raise KeyError

        with pytest.raises(ExceptionGroup):
            async with aio.open_nursery(keeps_tasks=True) as nursery:
                other = nursery.start(aio.sleep_forever)
                nursery.start_soon(fail)
                try:
                    await aio.sleep_forever()
                finally:
                    other.cancel()

    run(main)
