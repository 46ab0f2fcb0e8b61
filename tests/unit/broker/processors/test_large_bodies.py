"""Bodies of 15 MiB to every code of the broker: refused, or read outside of the loop, never in one step of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.schema import REQUEST_BYTES_MAX
from rocketpy.remoting.fastjson import JsonValue
from rocketpy.transport.steps import AT_ONCE_BYTES_MAX
from tests.support.slow_path import SlowPathRig

SIZE = 15 * 1024 * 1024
SUBSCRIPTION = b'{"topic":"T","subString":"*"},'
BODIES = {
    "heartbeat": b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":['
    + SUBSCRIPTION * (SIZE // len(SUBSCRIPTION))
    + b'{"topic":"T"}]}]}',
    "lock": b'{"clientId":"c","consumerGroup":"G","mqSet":['
    + b'{"topic":"T","brokerName":"b","queueId":1},' * (SIZE // 43)
    + b'{"topic":"T"}]}',
    "long text": b'{"clientID":"' + b"c" * SIZE + b'"}',
    "lenient": b"{" + b"a:{b:'c'}," * (SIZE // 10) + b"}",
    "unquoted numbers": b"{" + b"1:2," * (SIZE // 4) + b"}",
    "no end of a string": b'{"' + b'\\"' * (SIZE // 2),
    "deep": b"[" * SIZE,
    "keys in keys": b"{" * (SIZE // 5) + b'"a":1' + b"}:1" * (SIZE // 5),
    "blanks": b" " * SIZE,
    "lone surrogates": b'["' + b"\\ud800" * (SIZE // 6) + b'"]',
}


@pytest.mark.parametrize("kind", BODIES)
def test_no_code_reads_a_large_body_in_the_loop(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: A heartbeat of 2 MiB or a lock request for thousands of queues blocked the manager's loop for 0.2 s."""
    rig = SlowPathRig(tmp_path)
    real = fastjson.loads_text

    def loads_text(text: str, *, is_strict: bool = False) -> JsonValue:
        is_in_loop = threading.current_thread() is threading.main_thread()
        assert len(text) <= (AT_ONCE_BYTES_MAX if is_in_loop else REQUEST_BYTES_MAX)
        return real(text, is_strict=is_strict)

    monkeypatch.setattr(fastjson, "loads_text", loads_text)
    answers: dict[int, int] = {}

    async def main() -> None:
        for code in sorted(rig.processors):
            with trio.move_on_after(5):  # those that wait for others
                answers[code] = (await rig.ask(code, {}, BODIES[kind])).code

    trio.run(main)
    assert {answers[code] for code in (34, 41, 42, 46, 200)} == {1}
    assert len(rig.services.locks) == 0 and rig.services.consumers.group("G") is None


def test_bodies_of_official_clients_are_taken(tmp_path: Path) -> None:
    """4 000 subscriptions, 8 000 queues."""
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        topics = {f"Topic-of-some-length-{number}": "*" for number in range(4000)}
        assert (await rig.heartbeat("10.0.0.1@1234#5678", group="G", topics=topics)).code == 0
        queues = [{"topic": "T", "brokerName": "broker-a", "queueId": number} for number in range(8_000)]
        answer = await rig.ask(41, None, {"clientId": "c", "consumerGroup": "G", "mqSet": queues})
        assert answer.code == 0 and answer.body is not None and answer.body.count(b"queueId") == 8_000

    trio.run(main)
