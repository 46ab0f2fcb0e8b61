"""A generator's result, whoever runs it."""

from __future__ import annotations

from collections.abc import Generator

import trio

from rocketpy.remoting.work import result_of
from rocketpy.transport.steps import finished


def work() -> Generator[None, None, str]:
    for _ in range(3):
        yield
    return "done"


def test_the_result_of_work() -> None:
    assert result_of(work()) == "done" == trio.run(finished, work())
