"""Requests of a worker to clients: each finds its answer, or fails when the connection goes or time passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConnectionLost, RequestTimeout
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support.request_bench import Bench, complete


def test_invoke_finds_its_answer_by_our_opaque(open_bench: Callable[..., Bench]) -> None:
    answers: list[RemotingCommand] = []

    async def ask_back(request: RemotingCommand, channel: Channel) -> None:
        answers.append(await channel.invoke(RemotingCommand.request(307), 5.0))

    bench = open_bench({1: ask_back})

    async def scene() -> None:
        bench.request(1, 1)
        await complete()
        (asked,) = bench.replies()
        assert asked.code == 307 and not asked.is_response
        stranger = RemotingCommand.response(0, "for somebody else")
        stranger.opaque = asked.opaque - 1
        bench.command(stranger)
        bench.command(RemotingCommand.response(0, "here").answering(asked))
        await complete()
        assert [one.remark for one in answers] == ["here"]

    bench.run(scene)


@pytest.mark.parametrize(("closes", "error"), [(True, ConnectionLost), (False, RequestTimeout)])
def test_invoke_fails_when_the_connection_goes_or_time_passes(
    open_bench: Callable[..., Bench], closes: bool, error: type[Exception]
) -> None:
    seen: list[Exception] = []

    async def ask_back(request: RemotingCommand, channel: Channel) -> None:
        try:
            await channel.invoke(RemotingCommand.request(307), 60.0 if closes else 0.01)
        except (ConnectionLost, RequestTimeout) as exc:
            seen.append(exc)

    bench = open_bench({1: ask_back})

    async def scene() -> None:
        bench.request(1, 1)
        await complete()
        if closes:
            bench.closed()
        while not seen:
            await trio.testing.wait_all_tasks_blocked()
        assert isinstance(seen[0], error)
        late = RemotingCommand.response(0)
        late.opaque = bench.server.gateway._last_opaque
        bench.command(late)  # nobody waits for it: dropped
        await complete()

    bench.run(scene)
