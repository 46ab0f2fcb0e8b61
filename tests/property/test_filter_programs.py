"""SQL92: the compiled evaluator against the Python one, and both against SQLite where the two languages agree."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rocketpy.filter.evaluate import floating
from rocketpy.filter.parser import parse
from rocketpy.filter.program import compile_program
from rocketpy.message.properties import encode_properties
from tests.support.core_formats import ffi, lib, view_of
from tests.support.filter_expressions import (
    compiled_result,
    python_result,
    random_expression,
    random_properties,
    run_program,
)


@given(st.randoms(use_true_random=False))
def test_both_evaluators_agree(choose: random.Random) -> None:
    text = random_expression(choose)
    for _ in range(3):
        properties = random_properties(choose)
        assert compiled_result(text, properties) == python_result(text, properties)


NUMBER_LIKE = st.one_of(
    st.text("0123456789.eE+-xXpPfFdDaN Infinity", max_size=12),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(float.hex),
    st.text("0123456789", min_size=200, max_size=300),
)


@given(NUMBER_LIKE)
def test_both_read_the_same_numbers(text: str) -> None:
    value, data = ffi.new("double *"), text.encode()
    status = lib.rp_parse_double(view_of(data), len(data), value)
    expected = floating(text)
    assert (repr(value[0]) if status == 0 else None) == (None if expected is None else repr(expected))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_program_that_ends(code: bytes, properties: bytes) -> None:
    program = b"\x01\x01" + len(code).to_bytes(2, "big") + b"\x00\x01a" + code
    run_program(program, properties)


@given(st.binary(max_size=60))
def test_a_program_that_is_not_whole_is_refused(program: bytes) -> None:
    compiled = lib.rp_filter_open(view_of(program), len(program))
    if compiled != ffi.NULL:
        assert program[0] == 1
        lib.rp_filter_release(compiled)


def test_the_last_of_several_values_counts() -> None:
    program = compile_program(parse("a = '2'"))
    assert run_program(program, b"a\x011\x02ab\x012\x02a\x012\x02a\x01\x02a\x02") == "true"


def test_work_grows_with_what_is_looked_at() -> None:
    work = ffi.new("uint64_t *")
    program = compile_program(parse("a IN ('x', 'y') AND a = b"))
    compiled = lib.rp_filter_open(view_of(program), len(program))
    seen = []
    for size in (1, 1000):
        properties = encode_properties({"a": "x" * size, "b": "x" * size}).encode()
        work[0] = 0
        lib.rp_filter_evaluate(compiled, view_of(properties), len(properties), work)
        seen.append(work[0])
    lib.rp_filter_release(compiled)
    assert seen[1] > seen[0] + 1900


# --- SQLite -----------------------------------------------------------------------------------------------------------

COLUMNS = {"n": "INTEGER", "m": "INTEGER", "t": "TEXT"}


def _common(choose: random.Random, depth: int) -> str:
    """An expression that means the same to both. SQLite's NOT binds otherwise, and its properties have types."""
    if depth:
        one, other = _common(choose, depth - 1), _common(choose, depth - 1)
        return choose.choice(
            (f"(({one}) AND ({other}))", f"(({one}) OR ({other}))", f"(NOT ({one}))", f"(({one}) IS NULL)")
        )
    number, other = choose.randint(-3, 3), choose.randint(-3, 3)
    name, order = choose.choice("nm"), choose.choice(("=", "<>", "<", "<=", ">", ">="))
    return choose.choice(
        (
            f"{name} {order} {number}",
            f"n {choose.choice(('<', '<=', '>', '>='))} m",
            f"{name} {choose.choice(('', 'NOT '))}BETWEEN {min(number, other)} AND {max(number, other)}",
            f"t {choose.choice(('', 'NOT '))}IN ('x', 'it''s')",
            f"t {choose.choice(('=', '<>'))} 'x'",
            f"{choose.choice('nmt')} IS {choose.choice(('', 'NOT '))}NULL",
        )
    )


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as opened:
        yield opened


@given(choose=st.randoms(use_true_random=False))
def test_both_agree_with_sqlite(database: sqlite3.Connection, choose: random.Random) -> None:
    text = _common(choose, 3)
    row = {
        "n": choose.choice((None, -2, 0, 1, 3)),
        "m": choose.choice((None, -2, 0, 1, 3)),
        "t": choose.choice((None, "x", "it's", "y")),
    }
    columns = ", ".join(f"CAST(:{name} AS {kind}) AS {name}" for name, kind in COLUMNS.items())
    found = database.execute(f"SELECT {text} FROM (SELECT {columns})", row).fetchone()[0]
    properties = {name: str(value) for name, value in row.items() if value is not None}
    assert python_result(text, properties) == {None: "null", 0: "false", 1: "true"}[found]
    assert compiled_result(text, properties) == python_result(text, properties)
