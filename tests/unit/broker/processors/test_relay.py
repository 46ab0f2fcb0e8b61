"""Requests that a client answers: passed on and back unread."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import Credentials, sign
from tests.support.slow_path import FakeChannel, SlowPathRig, record

ASK = {"consumerGroup": "G", "clientId": "a", "jstackEnable": "true"}


def test_running_info_is_relayed(tmp_path: Path) -> None:
    """Holds: answer, calls to clients (307, 309)."""
    rig, client = SlowPathRig(tmp_path), FakeChannel(2)

    async def main() -> None:
        offline = await rig.ask(307, ASK)
        assert (offline.code, offline.remark) == (1, "The Consumer <G> <a> not online")
        await rig.heartbeat("a", group="G", topics={"T": "*"}, channel=client)
        late = await rig.ask(307, ASK)
        assert late.code == 207
        client.answer = RemotingCommand.response(0, "not set any response code", body=b"not json")
        answer = await rig.ask(307, ASK)
        assert (answer.code, answer.remark, answer.body) == (0, "not set any response code", b"not json")
        assert client.invoked[-1].code == 307 and client.invoked[-1].ext_fields == ASK

    trio.run(main)


def test_the_signature_of_the_operator_stays_with_the_broker(tmp_path: Path) -> None:
    """A consumer gets neither the access key nor the signature of the request that is relayed to it."""
    rig, client = SlowPathRig(tmp_path), FakeChannel(2)
    client.answer = RemotingCommand.response(0, None, body=b"{}")
    request = RemotingCommand.request(307, ext_fields=dict(ASK))
    sign(request, Credentials("operator", "secret-of-operator", "a-token"))

    async def main() -> None:
        await rig.heartbeat("a", group="G", topics={"T": "*"}, channel=client)
        assert (await rig.ask(307, request.ext_fields)).code == 0
        assert client.invoked[-1].ext_fields == ASK

    trio.run(main)


def test_old_clients_cannot(tmp_path: Path) -> None:
    """Holds: answer, calls to clients (307, 309)."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        body = {"clientID": "a", "consumerDataSet": [{"groupName": "G"}]}
        await rig.ask(34, None, body, version=61)
        answer = await rig.ask(307, ASK)
        assert answer.code == 1 and "too low to finish, please upgrade it to V3_1_8_SNAPSHOT" in (answer.remark or "")

    trio.run(main)


def test_consume_directly_carries_the_message(tmp_path: Path) -> None:
    rig, client = SlowPathRig(tmp_path), FakeChannel(2)
    rig.store.records[1000] = record()
    client.answer = RemotingCommand.response(0, None, body=b"{}")
    message_id = encode_offset_message_id(("127.0.0.1", 10911), 1000)

    async def main() -> None:
        await rig.heartbeat("a", group="G", topics={"T": "*"}, channel=client)
        assert (await rig.ask(309, ASK | {"msgId": message_id})).code == 0
        passed = client.invoked[-1]
        assert passed.body == rig.store.records[1000]
        assert passed.ext_fields == ASK | {"msgId": message_id, "brokerName": "broker-a"}
        assert (await rig.ask(309, ASK | {"msgId": "xyz"})).code == 1
        gone = encode_offset_message_id(("127.0.0.1", 10911), 5)
        assert (await rig.ask(309, ASK | {"msgId": gone})).remark == "can not find message by the offset, 5"

    trio.run(main)
