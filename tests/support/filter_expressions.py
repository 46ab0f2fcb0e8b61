"""Random SQL92 expressions and properties, most of them meaningful, and both evaluators side by side."""

from __future__ import annotations

import random
from collections.abc import Mapping

from rocketpy.errors import FilterInvalid
from rocketpy.filter.evaluate import EvaluationError, evaluate
from rocketpy.filter.parser import parse
from rocketpy.filter.program import compile_program
from rocketpy.message.properties import encode_properties

from .core_formats import ffi, lib, view_of

NAMES = ("a", "b", "c", "TAGS", "$x_1")
TEXTS = (
    "x",
    "true",
    "FALSE",
    "3",
    "4.5",
    "-1",
    "it's",
    "é😀",
    "NaN",
    "1e2",
    "2147483648",
    "-0.0",
    " 7 ",
    "0x1p3",
    "5f",
)
NUMBERS = ("0", "1", "3", "4.5", "100", "2147483647", "2147483648", "9007199254740993", "1E2", ".5", "3L", "0.5E-3")
ORDERS = ("=", "<>", "<", "<=", ">", ">=")
NAMES_OF_RESULTS = {True: "true", False: "false", None: "null"}
RESULTS = ("false", "true", "null", "fault")  # by rp_filter_result


def random_expression(choose: random.Random, depth: int = 3) -> str:
    """An expression; about one in three is refused, for its operands."""
    kind = choose.random()
    if depth == 0 or kind < 0.15:
        return _comparison(choose, 0)
    one = random_expression(choose, depth - 1)
    if kind < 0.25:
        return f"NOT ({one})"
    if kind < 0.35:
        return f"({one}) IS {choose.choice(('', 'NOT '))}NULL"
    if kind < 0.45:
        return f"({one}) {choose.choice(('=', '<>'))} {_value(choose, 1)}"
    other = random_expression(choose, depth - 1)
    word = choose.choice((" AND ", " OR ", " or ", " = ", " AND "))
    return f"({one}){word}({other})" if choose.random() < 0.5 or word == " = " else f"{one}{word}{other}"


def _comparison(choose: random.Random, depth: int) -> str:
    name, kind = choose.choice(NAMES), choose.random()
    if kind < 0.6:
        left, right = (name, _value(choose, depth)) if choose.random() < 0.7 else (_value(choose, depth), name)
        return f"{left} {choose.choice(ORDERS)} {right}"
    if kind < 0.75:
        low, high = _value(choose, depth), _value(choose, depth)
        return f"{name} {choose.choice(('', 'NOT '))}BETWEEN {low} AND {high}"
    if kind < 0.88:
        values = ", ".join(_quoted(choose.choice(TEXTS)) for _ in range(choose.randint(1, 3)))
        return f"{name} {choose.choice(('', 'not '))}IN ({values})"
    return choose.choice((f"{name} IS NULL", f"{name} IS NOT NULL", name, "TRUE", "FALSE", "NULL"))


def _value(choose: random.Random, depth: int) -> str:
    kind = choose.random()
    if kind < 0.4:
        return choose.choice(("", "", "-", "- +")) + choose.choice(NUMBERS)
    if kind < 0.6:
        return _quoted(choose.choice(TEXTS))
    if kind < 0.9:
        return choose.choice(NAMES) if kind < 0.85 else "-" + choose.choice(NAMES)
    return choose.choice(("TRUE", "FALSE", "NULL", f"({_comparison(choose, depth)})", f"NOT {choose.choice(NAMES)}"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def random_properties(choose: random.Random) -> dict[str, str]:
    return {name: choose.choice(TEXTS) for name in NAMES if choose.random() < 0.7}


def python_result(text: str, properties: Mapping[str, str]) -> str:
    """`refused`, `fault`, `true`, `false` or `null`."""
    try:
        root = parse(text)
    except FilterInvalid:
        return "refused"
    try:
        return NAMES_OF_RESULTS[evaluate(root, properties)]
    except EvaluationError:
        return "fault"


def compiled_result(text: str, properties: Mapping[str, str]) -> str:
    """The same by the compiled core."""
    try:
        program = compile_program(parse(text))
    except FilterInvalid:
        return "refused"
    return run_program(program, encode_properties(properties).encode())


def work_of(text: str, properties: Mapping[str, str]) -> int:
    """What one evaluation by the compiled core counts as work."""
    return _run(compile_program(parse(text)), encode_properties(properties).encode())[1]


def run_program(program: bytes, properties: bytes) -> str:
    return _run(program, properties)[0]


def _run(program: bytes, properties: bytes) -> tuple[str, int]:
    compiled, work = lib.rp_filter_open(view_of(program), len(program)), ffi.new("uint64_t *")
    assert compiled != ffi.NULL
    try:
        result = lib.rp_filter_evaluate(compiled, view_of(properties), len(properties), work)
        return RESULTS[result], int(work[0])
    finally:
        lib.rp_filter_release(compiled)
