"""What expressions mean. answers.jsonl holds what the reference answered: the expression, the properties, the result
(`refused`: it does not compile; `fault`: its evaluation fails). tests/interop/test_filter_expressions.py asks again."""

import json
from pathlib import Path

import pytest

from rocketpy.filter.evaluate import matches
from rocketpy.filter.parser import parse
from tests.support.filter_expressions import compiled_result, python_result

ANSWERS = [json.loads(line) for line in (Path(__file__).parent / "answers.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("text", "properties", "answer"), ANSWERS)
def test_the_answer_is_that_of_the_reference(text: str, properties: dict[str, str], answer: str) -> None:
    assert python_result(text, properties) == answer
    assert compiled_result(text, properties) == answer


@pytest.mark.parametrize(
    ("text", "properties", "is_match"),
    [
        ("region = 'eu' AND amount BETWEEN 5 AND 10", {"region": "eu", "amount": "7"}, True),
        ("region = 'eu' AND amount BETWEEN 5 AND 10", {"region": "eu"}, False),  # unknown
        ("region = 'eu' AND amount BETWEEN 5 AND 10", {"region": "eu", "amount": "7.5"}, False),  # fails
        ("NOT (region = 'eu')", {}, False),
    ],
)
def test_only_true_selects_a_message(text: str, properties: dict[str, str], is_match: bool) -> None:
    assert matches(parse(text), properties) is is_match
