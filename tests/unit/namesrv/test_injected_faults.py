"""An exception at the first line of any request or duty of the name server leaves all others served."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import NamesrvConfig, NamesrvSettings
from rocketpy.namesrv import NameServer
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.streams import open_listeners
from tests.support.failing_duties import Broken, failing_duties

CODES = sorted(RequestCode)


@attrs.define
class Asker:
    connection: int = 1
    peer: Peer = attrs.field(factory=lambda: Peer("127.0.0.1", 1))
    is_vip: bool = False
    listener: str = ""


def make(root: Path) -> NameServer:
    return NameServer(NamesrvSettings(namesrv=NamesrvConfig(kv_config_path=str(root / "kv.json"))))


async def answers(server: NameServer) -> dict[int, int]:
    """Request code -> response code."""
    found = {}
    for code in CODES:
        answer = await server._server._owner.table.answer(RemotingCommand.request(code), Asker())  # type: ignore[arg-type]
        assert answer is not None
        found[int(code)] = answer.code
    return found


def known() -> list[int]:
    return sorted(make(Path("/nonexistent"))._processor._methods)


@pytest.mark.parametrize("code", known(), ids=lambda code: RequestCode(code).name)
def test_a_request_that_fails(tmp_path: Path, code: int) -> None:
    async def fail(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        raise Broken("injected")

    async def main() -> None:
        healthy, server = await answers(make(tmp_path)), make(tmp_path)
        server._processor._methods = {**server._processor._methods, code: fail}
        assert await answers(server) == {**healthy, code: ResponseCode.SYSTEM_ERROR}
        assert server.faults.counts == {RequestCode(code).name: 1}

    trio.run(main)


DUTIES = [duty.name for duty in make(Path("/nonexistent")).duties()]


@pytest.mark.parametrize("name", DUTIES)
def test_a_duty_that_fails(tmp_path: Path, name: str) -> None:
    server = make(tmp_path)
    duties, calls = failing_duties(server.duties(), name)
    server.duties = lambda: duties  # type: ignore[method-assign]

    async def main() -> None:
        with trio.move_on_after(9.5):
            await server.run({"": await open_listeners("127.0.0.1", 0)})
        assert calls[name] == 10 and all(calls.values()) and server.faults.counts == {name: 10}

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
