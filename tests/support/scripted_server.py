"""A server in memory whose answers a test scripts, by request code."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from rocketpy import aio
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand

Answer = Callable[[RemotingCommand, Channel], RemotingCommand | Awaitable[RemotingCommand | None] | None]


def no(code: int, remark: str = "scripted") -> RemotingCommand:
    return RemotingCommand.response(code, remark)


@attrs.define(eq=False)
class ScriptedServer:
    """Answers by request code; keeps every request it got."""

    address: str
    answers: dict[int, Answer] = attrs.field(factory=dict)
    requests: list[RemotingCommand] = attrs.field(factory=list)
    refusals: dict[int, deque[RemotingCommand]] = attrs.field(factory=lambda: defaultdict(deque))
    mute: set[int] = attrs.field(factory=set)  # codes that are never answered
    unreachable: bool = False

    def refuse(self, code: RequestCode, *responses: int) -> None:
        """Answer the next requests of this code with these response codes, one each."""
        self.refusals[code].extend(no(response) for response in responses)

    def got(self, code: RequestCode) -> list[RemotingCommand]:
        return [request for request in self.requests if request.code == code]

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        self.requests.append(request)
        if request.code in self.mute:
            await aio.sleep_forever()
        if self.refusals[request.code]:
            return self.refusals[request.code].popleft()
        answer = self.answers.get(request.code)
        if answer is None:
            return no(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"no answer scripted for {request.name}")
        result = answer(request, channel)
        return await result if isinstance(result, Awaitable) else result

    def answer(self, code: RequestCode, body: Any = None, **response: Any) -> None:
        """Answer every request of this code with one body."""
        data = body.encode() if body is not None and not isinstance(body, bytes) else body
        self.answers[code] = lambda request, channel: RemotingCommand.response(body=data, **response)
