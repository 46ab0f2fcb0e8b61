"""Periodic jobs of a client: when they are called, and that none is once the client has ended."""

from __future__ import annotations

import pytest

from rocketpy import aio
from rocketpy.client.cluster.jobs import Jobs
from tests.support.loops import run, settled

pytestmark = pytest.mark.usefixtures("backend")


def test_an_interval_begins_when_the_last_call_has_ended() -> None:
    async def main() -> None:
        begin_s = aio.now_s()
        begun: list[tuple[str, float]] = []

        async def work() -> None:
            begun.append(("work", aio.now_s() - begin_s))
            await aio.sleep(2)

        async with aio.open_nursery() as nursery:
            jobs = Jobs(nursery)
            jobs.every(10, work, first_s=1)
            jobs.call_every(7, lambda: begun.append(("plain", aio.now_s() - begin_s)))
            await aio.sleep(20)
            jobs.end()
            await aio.sleep(100)
            nursery.cancel()
        assert begun == [
            ("work", pytest.approx(1)),
            ("plain", pytest.approx(7)),
            ("work", pytest.approx(13)),
            ("plain", pytest.approx(14)),
        ]

    run(main)


def test_a_job_that_is_woken_runs_at_once_or_once_more_after_the_running_call() -> None:
    async def main() -> None:
        begin_s = aio.now_s()
        begun_s: list[float] = []

        async def work() -> None:
            begun_s.append(aio.now_s() - begin_s)
            await aio.sleep(2)

        async with aio.open_nursery() as nursery:
            jobs = Jobs(nursery)
            job = jobs.every(10, work)
            await aio.sleep(1)
            job.wake()
            await aio.sleep(0.5)
            job.wake()
            job.wake()
            await aio.sleep(20)
            jobs.end()
            job.wake()
            await settled()
            nursery.cancel()
        assert begun_s == [pytest.approx(1), pytest.approx(3), pytest.approx(15)]

    run(main)


def test_a_plain_job_that_fails_is_called_again_and_none_begins_after_the_end() -> None:
    """Fault: A plain job that raised once was never called again."""

    async def main() -> None:
        begin_s = aio.now_s()
        begun_s: list[float] = []

        def fail_once() -> None:
            begun_s.append(aio.now_s() - begin_s)
            if len(begun_s) == 1:
                raise ValueError("once")

        async with aio.open_nursery() as nursery:
            jobs = Jobs(nursery)
            jobs.call_every(7, fail_once)
            await aio.sleep(15)
            jobs.end()
            jobs.call_every(1, fail_once)
            await aio.sleep(100)
            nursery.cancel()
        assert begun_s == [pytest.approx(7), pytest.approx(14)]

    run(main)


def test_a_slow_job_does_not_delay_others_and_ends_with_the_nursery() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def slow() -> None:
            try:
                await aio.sleep_forever()
            finally:
                ended.append("slow")

        async def quick() -> None:
            ended.append("quick")

        async with aio.open_nursery() as nursery:
            jobs = Jobs(nursery)
            jobs.every(1, slow)
            jobs.every(1, quick)
            await aio.sleep(3.5)
            jobs.end()
            nursery.cancel()
        assert ended == ["quick"] * 3 + ["slow"]

    run(main)


def test_the_error_of_a_job_is_that_of_the_nursery() -> None:
    async def main() -> None:
        async def fail() -> None:
            raise KeyError("a bug")

        jobs: list[Jobs] = []
        with pytest.raises(ExceptionGroup) as caught:
            async with aio.open_nursery() as nursery:
                jobs.append(Jobs(nursery))
                jobs[0].every(1, fail)
                await aio.sleep_forever()
        jobs[0].end()
        assert caught.group_contains(KeyError)

    run(main)
