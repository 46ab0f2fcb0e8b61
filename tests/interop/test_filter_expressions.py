"""SQL92: the reference's evaluator, ours and the compiled one give the same answers (filter_java/FilterTool.java)."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.test_store_java import JVM, library
from tests.support.filter_expressions import compiled_result, python_result, random_expression, random_properties

ANSWERS = Path(__file__).parents[1] / "unit" / "filter" / "answers.jsonl"
SEEDS = range(1, 6)
EXPRESSIONS = 4000
Case = tuple[str, dict[str, str]]
# Expressions that we refuse or read otherwise (docs/understand/compatibility/messages.md), with the reference's answer.
DIFFERENT: list[tuple[str, dict[str, str], str]] = [
    ("a LIKE 'x'", {"a": "x"}, "false"),
    ("a = 3)", {"a": "3"}, "true"),
    ("a = 3 b = 4", {"a": "3"}, "true"),
    ("a + 1 = 3", {"a": "2"}, "false"),
    ("a = 2 + 1", {"a": "2"}, "true"),
    ("a > 5.", {"a": "1"}, "false"),
    ("a = 0x10", {"a": "16"}, "false"),
    ("a = 010", {"a": "0"}, "true"),
    ("a = 3lx", {"a": "3"}, "true"),
    ("--3 = a", {"a": "3"}, "true"),
]


@pytest.fixture(scope="module")
def tool() -> list[str]:
    return ["java", *JVM, "-cp", library(), str(Path(__file__).parent / "filter_java" / "FilterTool.java")]


def ask(tool: list[str], cases: Sequence[Case]) -> list[str]:
    lines = [
        " ".join([_word(text), *(_word(part) for pair in properties.items() for part in pair)])
        for text, properties in cases
    ]
    done = subprocess.run(tool, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()


def _word(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


def ours(text: str, properties: dict[str, str]) -> str:
    assert compiled_result(text, properties) == python_result(text, properties)
    return python_result(text, properties)


def test_the_answers_on_file_are_those_of_the_reference(tool: list[str]) -> None:
    answers = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    assert ask(tool, [(text, properties) for text, properties, _ in answers]) == [answer for *_, answer in answers]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions(tool: list[str], seed: int) -> None:
    """Holds: filter, SQL92 over properties."""
    choose = random.Random(seed)
    cases = [(random_expression(choose), random_properties(choose)) for _ in range(EXPRESSIONS)]
    theirs = ask(tool, cases)
    assert len(theirs) == EXPRESSIONS and set(theirs) == {"refused", "fault", "true", "false", "null"}
    different = [(case, answer) for case, answer in zip(cases, theirs, strict=True) if ours(*case) != answer]
    assert different == []


def test_what_is_different_on_purpose(tool: list[str]) -> None:
    """Holds: trap, a SQL text need not be read to its end."""
    assert ask(tool, [(text, properties) for text, properties, _ in DIFFERENT]) == [answer for *_, answer in DIFFERENT]
    assert {ours(text, properties) for text, properties, _ in DIFFERENT} == {"refused"}
    arabic_three: Case = ("a = 3", {"a": "\u0663"})
    assert ask(tool, [arabic_three]) == ["true"]
    assert ours(*arabic_three) == "fault"
