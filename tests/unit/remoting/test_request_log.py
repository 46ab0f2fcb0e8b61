"""Every Nth request is logged with its answer; the answers are the same with and without."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.logs import fields_of, serving
from rocketpy.remoting.abc import Channel, Detached, Processor, Response
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.request_log import sampled
from tests.support.name_server import FakeChannel

CHANNEL = FakeChannel(0xC5)
SERVED = "served request SEND_MESSAGE of client 127.0.0.1:50197: "


class ByTopic:
    """Answers as the topic of the request says."""

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        topic = (request.ext_fields or {}).get("topic")
        if topic == "refused":
            raise RequestRefused(ResponseCode.NO_PERMISSION, "no")
        if topic == "waits":
            return Detached(self.finish, "store", 1.0)
        return None if topic == "oneway" else RemotingCommand.response(7)

    async def finish(self) -> RemotingCommand:
        return RemotingCommand.response(8)


def ask(processors: Mapping[int, Processor], **fields: str) -> RemotingCommand | None:
    return trio.run(RequestTable(processors).answer, RemotingCommand.request(10, ext_fields=fields), CHANNEL)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().rpartition(", duration ")[0] for record in caplog.records]


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_every_third_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    processors = sampled({10: ByTopic(), 11: ByTopic()}, 3)
    answers = [ask(processors, topic=f"T{number}") for number in range(1, 9)]
    assert [answer.code if answer else None for answer in answers] == [7] * 8
    assert lines(caplog) == [SERVED + f"topic T{number}, group -, queue -, offset -, answered 7" for number in (3, 6)]


def test_each_outcome_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    processors = sampled({10: ByTopic()}, 1)
    codes = [getattr(ask(processors, topic=topic), "code", None) for topic in ("refused", "oneway", "waits")]
    assert codes == [ResponseCode.NO_PERMISSION, None, 8]
    outcomes = [line.partition("topic ")[2] for line in lines(caplog)]
    assert outcomes == [
        f"refused, group -, queue -, offset -, answered {ResponseCode.NO_PERMISSION}",
        "oneway, group -, queue -, offset -, answered nothing",
        "waits, group -, queue -, offset -, answered later",
    ]


def test_names_of_a_client_cannot_forge_lines(caplog: pytest.LogCaptureFixture) -> None:
    ask(sampled({10: ByTopic()}, 1), b="T\nforged", consumerGroup="g" * 1_000, queueId="3")
    (line,) = lines(caplog)
    assert line.startswith(SERVED + "topic T\\nforged, group ggg") and len(line) < 400


def test_a_line_names_its_request_and_the_numbers_of_its_header(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving_then: list[object] = []
    monkeypatch.setattr(caplog.handler, "filters", [lambda _: serving_then.append(serving.get()) or True])
    ask(sampled({10: ByTopic()}, 1), topic="T", queueId="3", commitOffset="12")
    ask(sampled({10: ByTopic()}, 1), topic="T", queueId="x\n", queueOffset="9" * 30)
    assert [line.partition("group -, ")[2] for line in lines(caplog)] == [
        "queue 3, offset 12, answered 7",
        f"queue x\\n, offset {'9' * 30}, answered 7",
    ]
    found = fields_of(caplog.records[0])
    assert [found[name] for name in ("request", "topic", "queue", "offset", "code")] == ["SEND_MESSAGE", "T", 3, 12, 7]
    assert serving_then == [(CHANNEL.connection, 0)] * 2 and serving.get() is None


def test_without_sampling_nothing_is_wrapped() -> None:
    processors = {10: ByTopic()}
    assert sampled(processors, 0) is processors
