"""Long work lets others run, and stops where its result would be of no use. Servers have it, under trio alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import trio

from rocketpy.errors import BodyInvalid, RequestRefused
from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.fastjson import JsonValue
from rocketpy.remoting.json_writer import VALUES_PER_PIECE
from rocketpy.transport.steps import Steps, TextWriter, encoded_body, read_body


async def turns_during(work: trio.Event) -> int:
    turns = 0
    while not work.is_set():
        await trio.lowlevel.checkpoint()
        turns += 1
    return turns


def turns_of(work: object) -> int:
    """How often another task runs while `work`, an async function, does."""
    turns = 0

    async def main() -> None:
        nonlocal turns
        ended = trio.Event()

        async def count() -> None:
            nonlocal turns
            turns = await turns_during(ended)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await work()  # type: ignore[operator]  # an async function
            ended.set()

    trio.run(main)
    return turns


def test_others_run_after_each_step() -> None:
    async def work() -> None:
        steps = Steps(10)
        for _ in range(1_000):
            await steps.did()

    assert turns_of(work) >= 90


def test_others_run_while_a_table_is_encoded() -> None:
    async def work() -> None:
        body = await encoded_body({str(number): number for number in range(100 * VALUES_PER_PIECE)})
        assert body.startswith(b'{"0":0')

    assert turns_of(work) >= 90


def test_a_body_that_fits_no_frame_is_given_up_early() -> None:
    taken = 0

    def pieces() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "x" * 100

    async def main() -> None:
        with pytest.raises(RequestRefused, match="larger than 1000 bytes"):
            await TextWriter(1_000).write(pieces())

    trio.run(main)
    assert taken == 11


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
