"""The offsets of a topic in one answer: as brokers of rocketpy give them, and as all others do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rocketpy.client.cluster.api import MQClientAPI
from rocketpy.client.cluster.name_servers import NameServers
from rocketpy.errors import BodyInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.topic import TopicOffset, TopicOffsets, TopicStatsTable
from rocketpy.remoting.command import RemotingCommand
from tests.support.loops import run

pytestmark = pytest.mark.usefixtures("backend")

FIRST, SECOND = (MessageQueue("T", "b", number) for number in range(2))


class Answers:
    """A transport on which everything is answered with one body."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked: list[RemotingCommand] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_s: float, *, about: object = None
    ) -> RemotingCommand:
        return (await self.invoke_all(address, [command], timeout_s))[0]

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]:
        self.asked += requests
        return [RemotingCommand.response(body=self.body) for _ in requests]

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None:
        raise AssertionError("everything here has an answer")


def offsets(body: bytes) -> dict[MessageQueue, tuple[int, int]]:
    remoting = Answers(body)
    api = MQClientAPI(remoting, NameServers(remoting, []))
    found = run(api.topic_offsets, "b:1", "T", "b", 1.0)
    assert [command.ext_fields for command in remoting.asked] == [{"topic": "T", "offsetsOnly": "true"}]
    return {queue: (one.min_offset, one.max_offset) for queue, one in found.items()}


def test_both_answers_say_the_same() -> None:
    table = {FIRST: TopicOffset(max_offset=7, min_offset=3), SECOND: TopicOffset(max_offset=5)}
    expected = {FIRST: (3, 7), SECOND: (0, 5)}
    assert offsets(TopicStatsTable(offset_table=table).encode()) == expected
    assert offsets(TopicOffsets(max_offsets=[7, 5], min_offsets=[3, 0]).encode()) == expected


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"maxOffsets":[1]}', b'{"maxOffsets":[1],"minOffsets":[1,2]}', b'{"maxOffsets":1,"minOffsets":[1]}'],
)
def test_answers_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(BodyInvalid):
        offsets(body)
