"""GuardedProcessor: administrative requests of strangers never reach their processor."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import CREATE_TOPIC, FakeChannel, SlowPathRig


def test_a_stranger_may_ask_but_not_administer(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    stranger = FakeChannel(7, Peer("10.0.0.2", 4000))

    async def main() -> None:
        with pytest.raises(RequestRefused) as refused:
            await rig.processors[17].process(RemotingCommand.request(17, ext_fields=CREATE_TOPIC), stranger)
        assert refused.value.response_code == ResponseCode.NO_PERMISSION
        assert rig.services.topics.select("T") is None
        answer = await rig.processors[28].process(RemotingCommand.request(28), stranger)
        assert answer is not None and answer.code == ResponseCode.SUCCESS
        assert (await rig.ask(17, CREATE_TOPIC)).code == ResponseCode.SUCCESS

    trio.run(main)
