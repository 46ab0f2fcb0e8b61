"""The .properties text form, by example, and the round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.config import properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
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


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    values = {key: value.rstrip(" ") for key, value in values.items()}
    assert properties.as_mapping(properties.format_mapping(values)) == values


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        properties.parse(text)
    except properties.PropertiesError as exc:
        assert exc.line >= 1
