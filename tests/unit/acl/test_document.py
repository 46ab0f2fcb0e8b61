"""YAML files within bounds: what is read, and what careless and hostile files get."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.acl import document
from rocketpy.acl.document import Entry, read_document, write_document
from rocketpy.errors import ConfigError
from tests.support.cases import cases

SECRET = "do-not-show-me"


def read(text: str | bytes) -> Entry:
    return read_document(text if isinstance(text, bytes) else text.encode(), "f.yml")


def fault(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as refused:
        read(text)
    return str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb:\n- x\n- 'y'\nc: {d: true, e: null}\n",
        "a: 1\r\nb:\r\n- x\r\n- 'y'\r\nc: {d: true, e: ~}\r\n",
        "\ufeff# a comment\na: 1\nb: [x, 'y']\nc:\n  d: yes\n  e:\n",
        '--- \n{a: 1, b: [x, "y"], c: {d: on, e: }}\n...\n',
    ],
)
def test_forms_of_the_same(text: str) -> None:
    assert read(text).plain() == {"a": 1, "b": ["x", "y"], "c": {"d": True, "e": None}}


@pytest.mark.parametrize("value", ["2020-13-45", "!!timestamp x", "!!bool x", "!!int x", "!!int ''"])
def test_a_value_that_is_not_what_its_tag_says(value: str) -> None:
    """Fault: PyYAML raised AttributeError, KeyError and IndexError for such values."""
    with pytest.raises(ConfigError, match=r"f\.yml:1: a: expected a text"):
        read(f"a: {value}\n").mapping()["a"].text()


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "\ufeff", "---\n", "~"])
def test_nothing(text: str) -> None:
    assert read(text).plain() is None and read(text).mapping() == {} and read(text).items() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x [1]\nb: *x\n", "f.yml:1: anchors and aliases"),
        ("a: 1\nb: *x\n", "f.yml:2: "),
        ("a: &x {<<: *x}\n", "f.yml:1: anchors and aliases"),
        ("a: 1\nb: 2\na: 3\n", "f.yml:3: a: the key is there twice"),
        ("a: 1\n2: x\n", "f.yml:2: a key that is not a text"),
        ("? [a]\n: 1\n", "f.yml:1: a key that is not a text"),
        ("a: {'x': 1, [b]: 2}", "a: a key that is not a text"),
        ("a: {true: 1}", "a: a key that is not a text"),
        ("a: !!set {x}\n", "f.yml:1: a: the tag !!set is not allowed"),
        ("a: !!python/object/apply:os.system [id]\n", "the tag !!python/object/apply:os.system is not allowed"),
        ("a: !!python/name:os.system x\n", "f.yml:1: not YAML: could not determine a constructor"),
        ("a: [1\nb: 2\n", "f.yml:2: not YAML: "),
        ("a: 'x\n", "not YAML: "),
        ("\ta: 1\n", "f.yml:1: not YAML: "),
        ("a: 1\n---\nb: 2\n", "not YAML: "),
        ("a: \0\n", "f.yml: not YAML: ReaderError"),
        (b"a: 1\nb: \xff\n", "f.yml:2: not UTF-8; save the file in this encoding"),
        ("a: 1".encode("utf-16"), "f.yml:1: not UTF-8"),
        ("[" * 9, "f.yml:1: nested more than 8 deep"),
        ("a: " + "[" * 200_000, "nest"),
        ("- x\n" * 150_001, "more than 150000 values"),
        ("#" * ((1 << 20) + 1), "more than 1048576 bytes"),
    ],
)
def test_files_that_are_refused(text: str | bytes, reason: str) -> None:
    begun_s = time.monotonic()
    assert reason in fault(text)
    assert time.monotonic() - begun_s < 10


def test_what_is_just_within_the_bounds() -> None:
    assert read("[" * 8 + "]" * 8).plain() == [[[[[[[[]]]]]]]]
    assert len(read("- x\n" * 149_990).items()) == 149_990
    assert read("#" * (1 << 20)).plain() is None
    assert "f.yml:1: not UTF-8" in fault(b"\xff\n")


def test_a_bomb_of_aliases_is_not_built() -> None:
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    levels += [f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(20)]
    assert "f.yml:1: anchors and aliases" in fault("\n".join(levels))


@cases("end", ["'", ": [", "\n\tx", "\n- *a", "\n{", ' "', "\n? x\n: !!set {y}", "\\x"])
def test_an_error_shows_no_line_of_the_file(end: str) -> None:
    for text in (f"secretKey: {SECRET}{end}", f'secretKey: "{SECRET}{end}', f"a: [{SECRET}{end}"):
        try:
            read(text)
        except ConfigError as error:
            assert SECRET not in str(error)


@pytest.mark.parametrize("has_c", [True, False])
@pytest.mark.parametrize("value", ["!{}", "!!{}", "!{} a", "!{}!a", "!<{}> a"])
def test_an_error_shows_no_value_that_is_a_tag(value: str, has_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: A secret that begins with `!`, without quotes, was in the error and so in the log."""
    import yaml

    monkeypatch.setattr(document, "_loader", lambda: yaml.CSafeLoader if has_c else yaml.SafeLoader)
    found = fault(f"secretKey: {value.format(SECRET)}\n")
    assert "f.yml:1: not YAML: " in found and SECRET not in found
    assert "write a value with ! in quotes" in found or "undefined tag handle" in found


@pytest.mark.parametrize(
    ("written", "text"),
    [("x", "x"), ("12345678", "12345678"), ("'012'", "012"), ('"1e8"', "1e8"), ("~", None), ("", None), ("'~'", "~")],
)
def test_texts(written: str, text: str | None) -> None:
    assert read(f"a: {written}\n").mapping()["a"].text() == text


@cases(
    "written",
    [
        *(
            "true",
            "no",
            "1.5",
            ".inf",
            "1e8",
            "+12e34",
            "-.5",
            "1.5e8",
            "012",
            "0x12",
            "1_000",
            "+7",
            "1:30",
            "9" * 5000,
        ),
        *("2020-01-02", "2020-13-45", "!!binary aGVsbG8=", "[x]", "{x: y}"),
    ],
)
def test_what_is_no_text_is_refused_with_the_remedy(written: str) -> None:
    """The reference would take `1e8` for the key 1.0E8, and `012` for 10."""
    entry = read(f"x: 1\na: {written}\n").mapping()["a"]
    with pytest.raises(ConfigError, match=r"^f\.yml:2: a: expected a text: write it in quotes"):
        entry.text()


def test_flags_lists_and_mappings() -> None:
    members = read("a: on\nb: 'false'\nc:\nother: 1\n").mapping()
    assert [members[name].flag() for name in "abc"] == [True, False, False]
    for call in (members["other"].flag, members["other"].items, members["other"].mapping):
        with pytest.raises(ConfigError, match=r"^f\.yml:4: other: expected "):
            call()


PRINTED = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30)


@given(st.dictionaries(PRINTED, st.lists(PRINTED | st.booleans() | st.none(), max_size=4), max_size=4))
def test_what_is_written_can_be_read(content: dict[str, list[Any]]) -> None:
    assert (read(write_document(content)).plain() or {}) == content


@cases("text", ["1e8", "12345678E9", "-.5", "+1.5e8", "._", "1.5", "012", "true", "2020-01-02", "~", ""])
def test_texts_are_written_so_that_java_reads_texts(text: str) -> None:
    """PyYAML itself would write 1e8 without quotes.

    Compared once with SnakeYAML 1.30, for 60 000 texts of such characters."""
    assert write_document({"a": text}).decode() == f"a: '{text}'\n"


def test_texts_are_written_as_they_are() -> None:
    assert write_document({"b": "ä日本", "a": ["x: y"]}).decode() == "b: ä日本\na:\n- 'x: y'\n"


def test_shared_values_are_written_twice() -> None:
    shared = ["x"]
    assert read(write_document({"a": shared, "b": shared})).plain() == {"a": ["x"], "b": ["x"]}


def test_without_libyaml_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    monkeypatch.setattr(document, "_loader", lambda: yaml.SafeLoader)
    test_forms_of_the_same("a: 1\nb: [x, y]\nc: {d: true, e: }\n")
    assert "f.yml:1: anchors and aliases" in fault("a: &x [1]\nb: *x\n")
    assert "nested more than 8 deep" in fault("[" * 1000)
    assert SECRET not in fault(f"secretKey: {SECRET}\n\t{SECRET}")


def test_the_library_is_imported_with_the_first_file() -> None:
    """Brokers, clients and tools without access control do without it."""
    code = (
        "import sys, rocketpy.client.sync, rocketpy.admin.cli, rocketpy.admin.base, rocketpy.acl.files\n"
        "assert 'yaml' not in sys.modules\n"
        "rocketpy.acl.document.read_document(b'a: 1', 'f'); assert 'yaml' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
