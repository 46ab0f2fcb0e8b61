"""What expressions mean. answers.jsonl holds what the reference answered: the expression, the properties, the result
(`refused`: it does not compile; `fault`: its evaluation fails). tests/interop/test_filter_expressions.py asks again."""

import json
from pathlib import Path

import pytest

from rocketpy.filter.evaluate import matches
from rocketpy.filter.parser import parse
from tests.support.cases import cases
from tests.support.filter_expressions import compiled_result, python_result, work_of

ANSWERS = [json.loads(line) for line in (Path(__file__).parent / "answers.jsonl").read_text().splitlines()]


@cases("text, properties, answer", ANSWERS)
def test_the_answer_is_that_of_the_reference(text: str, properties: dict[str, str], answer: str) -> None:
    """Holds: filter, SQL92 over properties; trap, a missing property in SQL, left and right; trap, whole numbers in
    SQL are exact."""
    assert python_result(text, properties) == answer
    assert compiled_result(text, properties) == answer


@cases(
    "text, properties, answer",
    [
        ("a <> 'x'", {}, "null"),
        ("'x' <> a", {}, "true"),
        ("a = 'x'", {}, "null"),
        ("'x' = a", {}, "false"),
        ("a = b", {}, "true"),
        ("a <> b", {"b": "1"}, "null"),
        ("a <> b", {"a": "1"}, "true"),
        ("3 > a", {}, "null"),
    ],
)
def test_a_missing_property_is_unknown_on_the_left_and_unequal_on_the_right(
    text: str, properties: dict[str, str], answer: str
) -> None:
    """Holds: trap, a missing property in SQL, left and right."""
    assert python_result(text, properties) == compiled_result(text, properties) == answer


@cases(
    "text, value, answer",
    [
        ("a = 9007199254740993", "9007199254740993", "true"),  # a double has no such number
        ("a = 9007199254740993", "9007199254740992", "false"),
        ("a < 9007199254740993", "9007199254740992", "true"),
        ("a = 9223372036854775807", "9223372036854775807", "true"),
        ("a = 9223372036854775807", "9223372036854775808", "fault"),
        ("a = 3", "3.0", "fault"),
        ("a = 3.0", "3", "true"),
        ("a > 3", "2147483648", "fault"),  # compared as numbers of 32 bits
        ("a > 3L", "2147483648", "fault"),
        ("a > 2147483648", "2147483649", "true"),
    ],
)
def test_whole_numbers_are_compared_exactly(text: str, value: str, answer: str) -> None:
    """Holds: trap, whole numbers in SQL are exact."""
    assert python_result(text, {"a": value}) == compiled_result(text, {"a": value}) == answer


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


@pytest.mark.parametrize("number", ["0" * 255, "0" * 256, " " * 256 + "0.0", "0." + "0" * 254, " " * 252 + "0.0"])
@pytest.mark.parametrize("text", ["a = 0", "a >= 9999999999", "a = 1.5", "a > a", "a = 1 OR a < 1"])
def test_a_text_of_more_than_255_bytes_is_no_number(text: str, number: str) -> None:
    """Fault: Comparing a property of 32 KB with numbers took 100 ms per message and held up dispatch."""
    result = compiled_result(text, {"a": number})
    assert python_result(text, {"a": number}) == result
    assert len(number) <= 255 or result == "fault"


def test_the_work_of_reading_numbers_is_counted() -> None:
    """So that neither dispatch nor a pull is held up by an expression that reads one long number again and again."""
    assert work_of(" OR ".join(["a > 1"] * 300), {"a": "0" * 255}) > 300 * 255


@cases(
    "text, answer",
    [
        ("a > 3", True),
        ("a = 5000000000", True),
        ("a < 4999999999.5", False),
        ("a = b", True),
        ("a IN ('5000000000')", True),
        ("a NOT IN ('5')", True),
        ("a = 'x'", False),  # not a number
        ("a IS NULL", False),
        ("a BETWEEN 4999999999 AND 5000000000", True),
    ],
)
def test_numbers_beside_properties_have_64_bits(text: str, answer: bool) -> None:
    assert matches(parse(text), {"a": 5_000_000_000, "b": "5000000000"}) is answer
