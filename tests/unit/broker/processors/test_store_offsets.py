"""Offsets and times of queues: codes 29 to 32, from the store alone."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.support.slow_path import NOW_MS, SlowPathRig

QUEUE = {"topic": "T", "queueId": "0"}


def test_ends_of_a_queue_and_search_by_time(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.fill("T", 0, 9, low=2)

    async def main() -> None:
        assert (await rig.ask(30, QUEUE)).ext_fields == {"offset": "9"}
        assert (await rig.ask(31, QUEUE)).ext_fields == {"offset": "2"}
        assert (await rig.ask(32, QUEUE)).ext_fields == {"timestamp": str(NOW_MS + 2)}
        assert (await rig.ask(29, QUEUE | {"timestamp": str(NOW_MS + 5)})).ext_fields == {"offset": "5"}
        unknown = {"topic": "none", "queueId": "7"}
        assert (await rig.ask(30, unknown)).ext_fields == {"offset": "0"}
        assert (await rig.ask(31, unknown)).ext_fields == {"offset": "0"}
        assert (await rig.ask(32, unknown)).ext_fields == {"timestamp": "-1"}
        assert (await rig.ask(29, unknown | {"timestamp": "1"})).ext_fields == {"offset": "0"}

    trio.run(main)


def test_a_request_without_its_queue_is_refused(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    answer = trio.run(lambda: rig.ask(30, {"topic": "T"}))
    assert answer.code == 1 and "queueId" in (answer.remark or "")
