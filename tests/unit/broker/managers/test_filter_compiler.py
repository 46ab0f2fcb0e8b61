"""Programs by text: made once, in a thread, and kept within a bound."""

from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import trio

from rocketpy.broker.managers import filter_compiler
from rocketpy.broker.managers.filter_compiler import FilterCompiler
from rocketpy.errors import FilterInvalid
from rocketpy.filter.parser import LENGTH_MAX
from tests.support.tracing import traced


def test_programs_and_refusals_are_kept() -> None:
    compiler = FilterCompiler()
    assert not compiler.is_known("a > 1") and not compiler.is_known("a >")
    trio.run(compiler.prepare, "a > 1")
    trio.run(compiler.prepare, "a >")
    assert compiler.is_known("a > 1") and compiler.is_known("a >")
    assert compiler.program("a > 1") is compiler.program("a > 1")
    with pytest.raises(FilterInvalid, match="ends too early"):
        compiler.program("a >")


def test_the_last_used_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_compiler, "TEXTS_MAX", 2)
    compiler = FilterCompiler()
    for text in ("a = 1", "a = 2", "a = 1", "a = 3"):
        compiler.program(text)
    assert [compiler.is_known(f"a = {n}") for n in (1, 2, 3)] == [True, False, True]
    monkeypatch.setattr(filter_compiler, "BYTES_MAX", 1000)
    compiler.program("a = 4")
    assert compiler._bytes <= 1000


def test_the_programs_of_registered_filters_are_not_displaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_compiler, "TEXTS_MAX", 2)
    compiler = FilterCompiler()
    compiler.program("a = 1")
    for text in ("a = 1", "a = 1", "a = 2"):  # compiled before, and afterwards
        compiler.hold(text)
    held = compiler.program("a = 1"), compiler.program("a = 2")
    for number in range(3, 9):
        compiler.program(f"a = {number}")
    compiler.keep({"a = 1": held[0]})
    assert (compiler.program("a = 1"), compiler.program("a = 2")) == held
    assert [number for number in range(1, 9) if compiler.is_known(f"a = {number}")] == [1, 2, 7, 8]
    compiler.release("a = 1")
    compiler.program("a = 9")
    compiler.program("a = 10")
    assert compiler.is_known("a = 1"), "another filter has it"
    compiler.release("a = 1")
    assert [number for number in range(1, 11) if compiler.is_known(f"a = {number}")] == [1, 2, 10]
    compiler.program("a = 9")
    compiler.program("a = 10")
    assert not compiler.is_known("a = 1")
    compiler.hold("a = 11")
    compiler.release("a = 11")
    assert not compiler.is_known("a = 11"), "it was not compiled"
    monkeypatch.setattr(filter_compiler, "TEXTS_MAX", 0)
    compiler.program("a = 12")
    assert compiler._bytes == 0


def instructions(act: Callable[[], object]) -> int:
    """How many instructions of Python `act` takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    with traced(trace):
        act()
    assert count, "nothing was traced"
    return count


def test_the_end_of_a_filter_takes_as_long_in_a_large_table_as_in_a_small_one() -> None:
    def steps(texts: int) -> int:
        compiler = FilterCompiler()
        for number in range(texts):
            compiler.hold(f"a = {number}")
        compiler.keep({f"a = {number}": b"code" for number in range(texts)})
        found = instructions(lambda: compiler.release("a = 1"))
        assert list(compiler._known) == ["a = 1"] and len(compiler._held) == len(compiler._registered) == texts - 1
        return found

    assert steps(2000) < 2 * steps(2)


def test_a_text_that_is_too_long_is_refused_at_once() -> None:
    compiler = FilterCompiler()
    text = "a" * (LENGTH_MAX + 1)
    assert compiler.is_known(text)
    with pytest.raises(FilterInvalid, match="at most"):
        compiler.program(text)
    assert compiler._bytes == 0


def test_the_texts_of_clients_are_compiled_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with many texts delays another by one of them."""
    compiled: list[str] = []
    monkeypatch.setattr(filter_compiler, "_compile", lambda text: compiled.append(text) or b"code")
    compiler = FilterCompiler()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for client in "abc":
                nursery.start_soon(compiler.prepare_all, [f"{client}{number}" for number in range(4)])

    trio.run(main)
    assert [sorted(compiled[at : at + 3]) for at in range(0, 12, 3)] == [
        [f"{client}{number}" for client in "abc"] for number in range(4)
    ]


def test_programs_are_given_back_though_others_have_taken_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_compiler, "TEXTS_MAX", 1)
    compiler = FilterCompiler()
    compiled = trio.run(compiler.prepare_all, ["a = 1", "a =", "x" * (LENGTH_MAX + 1)])
    assert list(map(type, compiled.values())) == [bytes, str, str]
    monkeypatch.setattr(filter_compiler, "TEXTS_MAX", 2)
    compiler.keep(compiled)
    assert compiler.is_known("a = 1") and compiler.is_known("a =") and len(compiler._known) == 2
