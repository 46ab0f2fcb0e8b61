"""Bodies of requests: none is read in the loop beyond a few kilobytes."""

from __future__ import annotations

import threading

import pytest
import trio

from rocketpy.errors import BodyInvalid
from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.broker import KVTable
from rocketpy.remoting.fastjson import JsonValue
from rocketpy.transport.bodies import read_body


def table(entries: int) -> bytes:
    return fastjson.dumps({"table": {f"key {number}": "value" for number in range(entries)}})


@pytest.mark.parametrize(("entries", "is_in_loop"), [(10, True), (1000, False)])
def test_a_large_body_is_read_outside_of_the_loop(
    entries: int, is_in_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    real = fastjson.loads_text

    def loads_text(text: str, *, is_strict: bool = False) -> JsonValue:
        threads.append(threading.current_thread() is threading.main_thread())
        return real(text, is_strict=is_strict)

    monkeypatch.setattr(fastjson, "loads_text", loads_text)

    async def main() -> None:
        assert len((await read_body(KVTable, table(entries))).table) == entries

    trio.run(main)
    assert threads == [is_in_loop]


def test_without_a_body() -> None:
    with pytest.raises(BodyInvalid, match="missing"):
        trio.run(read_body, KVTable, None)
