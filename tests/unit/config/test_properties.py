"""The .properties text form, by example, and the round trip."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.config import properties
from tests.support.cases import cases


@cases(
    "text, key, value",
    [
        ("a=b", "a", "b"),
        ("  a = b  ", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb c", "a", "b c"),
        ("a == b", "a", "= b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        (r"a\ b=c", "a b", "c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a=C\:\\store", "a", r"C:\store"),
        (r"a=x\ty\n", "a", "x\ty\n"),
        (r"a=\u4e2d\uD83D\uDE00", "a", "中😀"),
        ("a=1,\\\n    2,\\\n\t3", "a", "1,2,3"),
        ("a=b\\", "a", "b"),
        ("a=b\r", "a", "b"),
        ("a=b\\ ", "a", "b "),
        ("a=b\\\\", "a", "b\\"),
        ("namesrvAddr=10.0.0.1:9876;10.0.0.2:9876", "namesrvAddr", "10.0.0.1:9876;10.0.0.2:9876"),
    ],
)
def test_one_entry(text: str, key: str, value: str) -> None:
    [entry] = properties.parse(text)
    assert (entry.key, entry.value) == (key, value)


def test_comments_blank_lines_and_line_numbers() -> None:
    entries = properties.parse("# c\n\n  ! c\\\na=1\nb=2,\\\n  # no comment\nc=3")
    assert [(e.key, e.value, e.line) for e in entries] == [("a", "1", 4), ("b", "2,# no comment", 5), ("c", "3", 7)]


def test_the_last_of_equal_keys_counts() -> None:
    assert properties.as_mapping("a=1\na=2") == {"a": "2"}


def test_bad_escape_names_its_line() -> None:
    with pytest.raises(properties.PropertiesError, match=r"line 2: .*'12'"):
        properties.parse("a=1\nb=\\u12")


def test_replace_keeps_comments_and_order() -> None:
    text = "# head\na=1\nb=2,\\\n  3\n# tail\na=4\n"
    assert properties.replace(text, {"a": "9", "c": "x:y"}) == "# head\nb=2,\\\n  3\n# tail\na=9\nc=x:y\n"
    assert properties.replace(text, {"b": "5"}) == "# head\na=1\nb=5\n# tail\na=4\n"


def test_only_line_ends_of_java_end_a_line() -> None:
    """Fault: A configuration change split lines at U+2028 and form feeds, so it could damage or inject other keys."""
    for other in "\v\f\x1c\x1d\x1e\x85\u2028\u2029":
        assert properties.as_mapping(f"a=1{other}b=2\nc=3") == {"a": f"1{other}b=2", "c": "3"}
        assert properties.replace(f"a=1{other}b=2\nc=3", {"c": "4"}) == f"a=1{other}b=2\nc=4\n"
        assert properties.replace(f"a=1{other}b=2\r\n", {"c": "4"}) == f"a=1{other}b=2\r\nc=4\n"


def test_a_new_line_never_goes_on_with_the_last_one() -> None:
    for text in ("a=1\\", "a=1\\\n", "a=1\\\r", "a=1\\\r\n", "\\", "  \\"):
        assert properties.as_mapping(properties.replace(text, {"c": "4"})) == properties.as_mapping(text) | {"c": "4"}


SPECIAL = st.text(st.sampled_from("ab=: \t\\\n\r\f\v\x1c\x85\u2028\u2029#!u0d\u00e9"), max_size=60)
TEXTS = SPECIAL | st.text() | st.lists(SPECIAL | st.sampled_from(["a=1", "b : 2", "# c", "a=x\\"])).map("\n".join)


@given(TEXTS, st.dictionaries(SPECIAL | st.sampled_from("ab"), SPECIAL | st.text(), min_size=1, max_size=3))
def test_replace_changes_what_it_is_told_and_nothing_else(text: str, changes: dict[str, str]) -> None:
    try:
        before = properties.parse(text)
    except properties.PropertiesError:
        return
    after = properties.replace(text, changes)
    others = [(entry.key, entry.value) for entry in before if entry.key not in changes]
    assert [(entry.key, entry.value) for entry in properties.parse(after) if entry.key not in changes] == others
    assert properties.as_mapping(after) == properties.as_mapping(text) | changes
    assert properties.replace(after, changes) == after
    touched = {line for entry in before if entry.key in changes for line in range(entry.line, entry.line_end)}
    lines = [line for number, line in enumerate(re.split("\r\n|\r|\n", text), 1) if number not in touched]
    left = iter(re.split("\r\n|\r|\n", after))
    assert all(line in left for line in lines if line), "a line that no change is about is not there as it was"


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert properties.as_mapping(properties.format_mapping(values)) == values


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        properties.parse(text)
    except properties.PropertiesError as exc:
        assert exc.line >= 1


@pytest.mark.parametrize("body", [b"a=1\n" * 20_000, b"\xff", b"a=\\u12"])
def test_changes_that_are_not_read(body: bytes) -> None:
    """Fault: A configuration update with a body of 16 MB blocked the manager or the name server for up to 16 s."""
    with pytest.raises(properties.PropertiesError):
        properties.read_changes(body)


def test_changes_are_read() -> None:
    assert properties.read_changes(b"a=1\nb = x") == {"a": "1", "b": "x"}
    assert properties.read_changes(None) == {}
