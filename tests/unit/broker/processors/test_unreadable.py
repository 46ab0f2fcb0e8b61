"""Sends and pulls that the codec leaves as commands learn what is wrong with their header."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.slow_path import SlowPathRig

SEND = {
    "producerGroup": "g",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1",
    "flag": "0",
}
V2 = dict(zip("abcdefgh", SEND.values(), strict=True))
PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "0",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}


@pytest.mark.parametrize(("code", "fields"), [(10, SEND), (310, V2), (320, V2), (11, PULL), (361, PULL)])
def test_what_is_wrong_is_named(tmp_path: Path, code: int, fields: dict[str, str]) -> None:
    rig = SlowPathRig(tmp_path)

    async def remark_to(asked: dict[str, str]) -> str:
        answer = await rig.ask(code, asked)
        assert answer.code == 1 and answer.remark
        return answer.remark

    async def main() -> None:
        for name in fields.keys() - {"defaultTopic", "c"}:
            assert f": the field {name} is missing" in await remark_to({k: v for k, v in fields.items() if k != name})
        number = "e" if fields is V2 else "queueId"
        assert f".{number}: " in await remark_to(fields | {number: "zz"})
        assert "encoded in a way that is not supported" in await remark_to(fields)
        # Never stored: so no later send of the connection, which the codec can read, overtakes it.
        assert rig.fast_path.puts == [] == rig.fast_path.named("resend")

    rig.run(main)
