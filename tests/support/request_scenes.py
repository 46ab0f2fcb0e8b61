"""Scenes for a request server, and processors for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.command import RemotingCommand
from tests.support.request_bench import Bench, Handler, complete


async def ok(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    return RemotingCommand.response(0, "served")


def play(bench: Bench, scene: Callable[[], Awaitable[None]]) -> None:
    """Play `scene`, then see an ordinary request served."""

    async def whole() -> None:
        await scene()
        bench.replies()
        bench.request(1, 999)
        await complete()
        assert [(one.opaque, one.remark) for one in bench.commands()] == [(999, "served")]

    bench.run(whole)


async def collect(bench: Bench, count: int) -> list[RemotingCommand]:
    """Replies that are too large for the ring at once."""
    found: list[RemotingCommand] = []
    while len(found) < count:
        await complete()
        found += bench.commands()
    return found


def waiting(gate: trio.Event, *, timeout_s: float = 1000.0, at_once_max: int = 16) -> Handler:
    async def finish() -> RemotingCommand:
        await gate.wait()
        return RemotingCommand.response(0, "finished")

    async def process(request: RemotingCommand, channel: Channel) -> Detached:
        return Detached(finish, request.body, timeout_s, at_once_max)

    return process
