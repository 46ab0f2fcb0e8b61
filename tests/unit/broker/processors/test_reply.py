"""Replies of request-reply: pushed to the client that waits, stored, and bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketpy.broker.broker import ManagerProcess
from rocketpy.broker.processors.reply import CLIENT_TIMEOUT_S, PUSHES_PER_CLIENT
from rocketpy.message.properties import decode_properties, encode_properties
from rocketpy.remoting.abc import Detached
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import NOW_MS, FakeChannel, SlowPathRig
from tests.unit.broker.test_access import control

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "MSG_TYPE": "reply", "WAIT": "true"}
FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def header(properties: dict[str, str] | None = None, **changes: str) -> dict[str, str]:
    return {
        "producerGroup": "P",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "1",
        "bornTimestamp": "77",
        "flag": "5",
        "properties": encode_properties(PROPERTIES if properties is None else properties),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    } | changes


def waiting_client(rig: SlowPathRig, connection: int = 2) -> FakeChannel:
    client = FakeChannel(connection, answer=RemotingCommand.response(0))
    trio.run(lambda: rig.heartbeat("asker", producer="A", channel=client))
    return client


def ask(rig: SlowPathRig, code: int = 324, **changes: Any) -> RemotingCommand:
    return trio.run(lambda: rig.ask(code, header(**changes), b"answer"))


def test_a_reply_is_pushed_to_the_client_and_stored(tmp_path: Path) -> None:
    """Holds: answer, replies (324, 325)."""
    rig = SlowPathRig(tmp_path)
    client = waiting_client(rig)
    answer = ask(rig)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields == FIELDS | {
        "msgId": "7F00000100002A9F0000000000000384",
        "queueId": "0",
        "queueOffset": "7",
    }
    (push,) = client.invoked
    assert (push.code, push.body, push.is_oneway) == (326, b"answer", False)
    fields = dict(push.ext_fields or {})
    properties = decode_properties(fields.pop("properties"))
    assert properties.pop("PUSH_REPLY_TIME") == str(NOW_MS)
    assert properties == {name: value for name, value in PROPERTIES.items() if name != "WAIT"}
    assert fields == {
        "producerGroup": "P",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "1",
        "bornTimestamp": "77",
        "flag": "5",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": "10.0.0.1:4000",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": str(NOW_MS),
    }
    (stored,) = rig.fast_path.puts
    assert (stored.topic, stored.queue_id, stored.body, stored.sys_flag) == (TOPIC, 0, b"answer", 1)
    assert "PUSH_REPLY_TIME" not in decode_properties(stored.properties.decode()) and stored.wait_store


def test_the_short_header_says_the_same(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    client = waiting_client(rig)
    short = dict(zip("abcdefghijkm", header().values(), strict=True))
    assert trio.run(lambda: rig.ask(325, short, b"answer")).code == 0
    assert (client.invoked[0].ext_fields or {})["flag"] == "5"


def test_without_storing_the_answer_names_no_message(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, store_reply_message_enable=False)
    waiting_client(rig)
    answer = ask(rig)
    assert answer.ext_fields == FIELDS | {"msgId": "0", "queueId": "0", "queueOffset": "0"} and not rig.fast_path.puts


def test_a_store_that_fails_does_not_undo_the_push(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    client = waiting_client(rig)
    rig.fast_path.put_code = 14
    answer = ask(rig)
    assert answer.code == 0 and (answer.ext_fields or {})["msgId"] == "0" and len(client.invoked) == 1


@pytest.mark.parametrize("answer", [None, RemotingCommand.response(1, "no")])
def test_a_client_that_does_not_take_it(tmp_path: Path, answer: RemotingCommand | None) -> None:
    rig = SlowPathRig(tmp_path)
    waiting_client(rig).answer = answer
    refused = ask(rig)
    assert (refused.code, refused.remark) == (1, "push reply message to <asker>fail.")
    assert len(rig.fast_path.puts) == 1, "stored all the same, as in the reference"


def test_the_log_line_about_a_refusal_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A client that refused a reply with a long remark wrote 256 KiB to the log each minute."""
    rig = SlowPathRig(tmp_path)
    waiting_client(rig).answer = RemotingCommand.response(1, "no\n<0>" + "x" * 200_000)
    ask(rig)
    (line,) = [record.getMessage() for record in caplog.records if "refused a reply" in record.getMessage()]
    assert len(line) < 1000 and "1 no\\n<0>xxx" in line


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": " "}, 1, "The specified topic is blank."),
        ({"topic": "a b"}, 1, "illegal characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"topic": "Unknown", "defaultTopic": "Unknown"}, 17, "topic[Unknown] not exist"),
        ({"queueId": "1"}, 1, "request queueId[1] is illegal"),
        ({"properties": "A\x01b"}, 1, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"properties": "REPLY_TO_CLIENT\x01b"}, 1, "push reply message fail, channel of <b> not found."),
        ({"properties": "REPLY_TO_CLIENT\x01asker\x02A\x01" + "x" * 32_768}, 13, "the message is illegal"),
        ({"properties": "REPLY_TO_CLIENT\x01asker\x02A\x01\0"}, 13, "the message is illegal"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, str], code: int, remark: str) -> None:
    """Holds: answer, replies (324, 325)."""
    rig = SlowPathRig(tmp_path)
    client = waiting_client(rig)
    answer = trio.run(lambda: rig.ask(324, header() | changes, b"answer"))
    assert answer.code == code and remark in (answer.remark or "")
    assert not client.invoked and not rig.fast_path.puts


@pytest.mark.parametrize("is_of_broker", [True, False])
def test_without_write_permission_a_reply_is_refused(tmp_path: Path, is_of_broker: bool) -> None:
    rig = SlowPathRig(tmp_path, broker_permission=4 if is_of_broker else 6)
    client = waiting_client(rig)
    if not is_of_broker:
        rig.services.topics.update(TopicConfig(topic_name=TOPIC, perm=4))
    answer = ask(rig)
    assert answer.code == 16 and "sending message is forbidden" in (answer.remark or "") and not client.invoked


def test_a_client_that_only_consumes_gets_no_reply(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    trio.run(lambda: rig.heartbeat("asker", group="G", topics={"T": "*"}, channel=FakeChannel(2)))
    assert ask(rig).remark == "push reply message fail, channel of <asker> not found."


class SlowClient(FakeChannel):
    """Counts the pushes that it holds at once, and answers each when its gate opens."""

    def __init__(self, connection: int) -> None:
        super().__init__(connection)
        self.gate = trio.Event()
        self.at_once = self.at_once_max = 0

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        assert timeout_s == CLIENT_TIMEOUT_S
        self.invoked.append(command)
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await self.gate.wait()
        self.at_once -= 1
        return RemotingCommand.response(0)


def test_a_burst_for_one_client_takes_turns_and_all_arrive(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    client = SlowClient(2)
    answers: list[int] = []

    async def main() -> None:
        await rig.heartbeat("asker", producer="A", channel=client)

        async def reply() -> None:
            answers.append((await rig.ask(324, header(), b"answer")).code)

        async with trio.open_nursery() as nursery:
            for _ in range(3 * PUSHES_PER_CLIENT):
                nursery.start_soon(reply)
            await trio.testing.wait_all_tasks_blocked()
            assert len(client.invoked) == PUSHES_PER_CLIENT
            client.gate.set()

    trio.run(main)
    assert answers == [0] * 3 * PUSHES_PER_CLIENT and client.at_once_max == PUSHES_PER_CLIENT


def test_waiting_holds_no_task_of_the_pool(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    client = waiting_client(rig)

    async def main() -> None:
        request = RemotingCommand(code=324, ext_fields=header(), body=b"answer", version=409)
        rest = await rig.processors[324].process(request, rig.channel)
        assert isinstance(rest, Detached) and rest.waits_for == client.connection
        assert not client.invoked and rest.timeout_s > CLIENT_TIMEOUT_S

    trio.run(main)


@pytest.mark.parametrize("strict", [True, False, None])
def test_with_accounts_replies_are_for_the_reply_topic_of_the_cluster(tmp_path: Path, strict: bool | None) -> None:
    """Fault: An account that could send to any topic could push forged replies to any client."""

    class Rig(SlowPathRig):
        def process(self) -> ManagerProcess:
            access = None if strict is None else control(strict=strict)[1]
            return attrs.evolve(super().process(), access=access)

    rig = Rig(tmp_path)
    client = waiting_client(rig)
    forged = ask(rig, topic="Mine")
    assert forged.code == (1 if strict else 0) and len(client.invoked) == (0 if strict else 1)
    assert not strict or forged.remark == f"replies are for topic {TOPIC}, not Mine"
    assert ask(rig).code == ask(rig, topic=f"space%{TOPIC}").code == 0
