"""Texts that are refused, with the reason; most others are in answers.jsonl."""

import subprocess
import sys

import pytest

from rocketpy.codes import ResponseCode
from rocketpy.errors import FilterInvalid
from rocketpy.filter.parser import DEPTH_MAX, LENGTH_MAX, NODES_MAX, PROPERTIES_MAX, parse


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a LIKE 'x'", "character 3: 'LIKE' does not fit; expected "),
        ("a > 3)", "character 6: ')' does not fit; expected the end"),
        ("a > 1 b", "character 7: 'b' does not fit"),
        ("a-b = 3", "character 2: '-b' does not fit"),
        ("a = 007", "character 5: '007' is no name, number, 'text' or operator"),
        ("a = 0x10", "character 5: '0x10' is no name"),
        ("a > 5.", "character 5: '5.' is no name"),
        ("a = 3lx", "character 5: '3lx' is no name"),
        ('a = "x"', "character 5: '\"x\"' is no name"),
        ("a = 'x", 'character 5: "\'x" is no name'),
        ("a >", "the expression ends too early: "),
        ("", "the expression ends too early: "),
        ("--3 = a", "the expression ends too early: "),  # a comment
        ("a /* x", "character 3: '/*' is no name"),
        ("a = NULL", "nothing is equal to NULL; write IS NULL or IS NOT NULL"),
        ("a > 'x'", "the text 'x' is not a number: < <= > >= and BETWEEN compare numbers and properties"),
        ("a > 3 > 2", "a condition is not a number"),
        ("a BETWEEN 3 AND 1", "BETWEEN 3 AND 1: the first number is greater than the second"),
        ("a > 0.0", "the number 0.0 is smaller than every number but 0; write 0"),
        ("a > 1E400", "the number 1E400 is too large"),
        ("a > 99999999999999999999", "the number 99999999999999999999 is greater than 9223372036854775807"),
        ("5", "the number 5 is not a condition"),
        ("TRUE = 'x'", "TRUE cannot be compared with the text 'x'"),
        ("'a' IN ('x')", "the text 'a' is not a property"),
    ],
)
def test_a_refused_text(text: str, reason: str) -> None:
    """Holds: trap, a SQL text need not be read to its end."""
    with pytest.raises(FilterInvalid) as caught:
        parse(text)
    assert str(caught.value).startswith(reason), str(caught.value)
    assert caught.value.response_code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    ("make", "limit", "reason"),
    [
        (lambda n: "a" * n, LENGTH_MAX, "characters"),
        (lambda n: "a IN (" + ", ".join(["'x'"] * (n - 2)) + ")", NODES_MAX, "values and operators"),
        (lambda n: "NOT " * (n - 1) + "a", DEPTH_MAX, "levels"),
        (lambda n: " OR ".join(f"p{i}" for i in range(n)), PROPERTIES_MAX, "different properties"),
    ],
)
def test_bounds(make, limit: int, reason: str) -> None:  # type: ignore[no-untyped-def]
    parse(make(limit))
    with pytest.raises(FilterInvalid, match=f"{limit + 1} {reason}"):
        parse(make(limit + 1))


def test_a_text_of_signs_alone_does_not_exhaust_the_stack() -> None:
    for text in ("- " * 4000 + "3 = a", "(" * 4000 + "a" + ")" * 4000, "NOT " * 2000 + "a", "a = " * 2000 + "a"):
        try:
            parse(text)
        except FilterInvalid:
            continue


def test_comments_end_with_the_line_or_the_text() -> None:
    assert parse("a > 3 -- why\n AND b -- x") == parse("a > 3 /* *** */ AND b")


def test_the_parser_library_is_imported_with_the_first_text() -> None:
    code = "import sys, rocketpy.filter.parser; assert 'lark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
