"""A master, and a slave that copies its tables: two brokers without processes, one asks the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from rocketpy.broker.managers.table_followers import TABLE_VERSION
from rocketpy.codes import ResponseCode
from rocketpy.config import BrokerRole
from rocketpy.errors import ConnectFailed
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import SlowPathRig

MASTER = "10.0.0.9:10911"


async def at_once(work: Callable[..., object], *arguments: object) -> object:
    """Instead of trio.to_thread.run_sync."""
    await trio.lowlevel.checkpoint()
    return work(*arguments)


class Pair:
    """A master, and a slave whose requests it answers."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.master = SlowPathRig(root / "master", **settings)
        self.slave = SlowPathRig(root / "slave", broker_id=1, broker_role=BrokerRole.SLAVE, **settings)
        self.copy = self.slave.broker.table_copier
        self.codes: list[int] = []
        self.is_down = False
        self.slave.name_servers.invoke = self._invoke  # type: ignore[method-assign]
        self.followed = MASTER
        self.copy.followed = lambda: self.followed
        self.answer: bytes | None = None  # to every request, instead of the master's
        self.refusal: str | None = None  # the remark of a refusal of every request
        self.is_old = False  # the master is of the reference: it tells no log position
        self.runtime: bytes | None = None  # its answer to GET_BROKER_RUNTIME_INFO
        self.after_answer: Callable[[], None] = lambda: None

    async def _invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        assert address == MASTER
        await trio.lowlevel.checkpoint()
        self.codes.append(request.code)
        if self.is_down:
            raise ConnectFailed("nobody there")
        fields = dict(RemotingCommand.decode(request.encode()).ext_fields or {})
        if self.is_old:
            fields.pop(TABLE_VERSION, None)
        answer: RemotingCommand = await self.master.ask(request.code, fields)
        if self.is_old and request.code in (21, 43, 45, 201):
            answer.ext_fields = {}
        if self.runtime is not None and request.code == 28:
            answer = RemotingCommand.response(body=self.runtime)
        if self.answer is not None:
            answer = RemotingCommand.response(body=self.answer)
        if self.refusal is not None:
            answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, self.refusal)
        self.after_answer()
        return RemotingCommand.decode(answer.encode())

    def run(self) -> None:
        trio.run(self.copy.copy)
