"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from tests.support.slow_path import SlowPathRig, body_of


def lock_body(client_id: str, *queue_ids: int) -> dict[str, Any]:
    queues = [{"brokerName": "x", "queueId": queue_id, "topic": "T"} for queue_id in queue_ids]
    return {"clientId": client_id, "consumerGroup": "G", "mqSet": queues, "onlyThisBroker": False}


def test_lock_answers_what_the_caller_holds_as_it_was_named(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        first = await rig.ask(41, None, lock_body("a", 0))
        assert body_of(first) == {"lockOKMQSet": [{"brokerName": "x", "queueId": 0, "topic": "T"}]}
        second = await rig.ask(41, None, lock_body("b", 0, 1))
        assert [queue["queueId"] for queue in body_of(second)["lockOKMQSet"]] == [1]
        assert body_of(await rig.ask(41, None, lock_body("c", 0, 1))) == {"lockOKMQSet": []}
        assert (await rig.ask(42, None, lock_body("a", 0))).code == 0
        assert len(body_of(await rig.ask(41, None, lock_body("b", 0)))["lockOKMQSet"]) == 1
        assert (await rig.ask(41)).code == 1

    trio.run(main)
