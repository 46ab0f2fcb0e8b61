"""What waits for a client, a name server or the store worker is handed out of its pool, with whom it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.broker.processors.cleaning import EXPIRED_ARE_LEFT
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.abc import Detached
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import CREATE_TOPIC, FakeChannel, SlowPathRig

GROUP = {"consumerGroup": "G", "clientId": "c"}
WAITING = [
    (RequestCode.GET_CONSUMER_RUNNING_INFO, GROUP, 77),
    (RequestCode.CONSUME_MESSAGE_DIRECTLY, GROUP, 77),
    (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"group": "G", "topic": "T"}, ("status", "G")),
    (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, "store worker"),
    (RequestCode.CLEAN_UNUSED_TOPIC, {}, "store worker"),
    (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}, "store worker"),
    (RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE_TOPIC, "name servers"),
]


@pytest.mark.parametrize(("code", "fields", "target"), WAITING, ids=lambda value: getattr(value, "name", ""))
def test_it_is_handed_out(tmp_path: Path, code: RequestCode, fields: dict[str, str], target: object) -> None:
    """Fault: Deletions, cleaning and new topics blocked the admin pool while they waited."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        await rig.heartbeat("c", group="G", topics={"T": "*"}, channel=FakeChannel(77))
        rest = await rig.processors[code].process(RemotingCommand.request(code, ext_fields=fields), rig.channel)
        assert isinstance(rest, Detached) and rest.waits_for == target

    rig.run(main)


def test_expired_queues_that_are_not_gone_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SlowPathRig(tmp_path)
    monkeypatch.setattr(rig.fast_path, "clean_expired_queues", trio.sleep_forever, raising=False)
    answers: list[RemotingCommand] = []

    async def main() -> None:
        answers.append(await rig.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [(answer.code, answer.remark) for answer in answers] == [(ResponseCode.SUCCESS, EXPIRED_ARE_LEFT)]


def test_members_are_asked_few_at_a_time_and_no_longer_than_allowed(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    asked: list[int] = []

    class Silent(FakeChannel):
        async def invoke(self, command: RemotingCommand, timeout_s: float) -> Any:
            asked.append(self.connection)
            await trio.sleep_forever()

    async def main() -> None:
        for number in range(100):
            await rig.heartbeat(f"c{number}", group="G", topics={"T": "*"}, channel=Silent(100 + number))
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await rig.ask(code, {"group": "G", "topic": "T"})
        assert answer.code == ResponseCode.SUCCESS and answer.body == b'{"consumerTable":{}}'
        assert len(asked) == 32

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
