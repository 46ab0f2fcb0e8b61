"""The count of sentences that hide their subject finds them in pages, decisions and docstrings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sentences
from tests.support.sentences import (
    BARS,
    Count,
    Sentence,
    beyond_bars,
    counted,
    first_lines_of_module,
    is_odd,
    is_odd_docstring,
    main,
    sentences_of_page,
)

PAGE = """# What a heading says is not a sentence

Start the broker with an empty store. What the old store has more
can be sent again: whoever needs it keeps [a copy, whatever the size](README.md).

| What | a table says | is not a sentence |

- Those that answer are **asked** first.
- Set `What it says` to 1 and restart.

```sh
echo What an example prints is no sentence
```

1. That one is the master.
Short one.
"""
MODULE = '''"""What a worker does."""

class Slave:
    """A connected slave.

    What comes after the first line does not count.
    """

    def is_open(self):
        """Whether it is open."""

    async def lag(self):
        """Return the lag in bytes."""

def bare(): ...
'''


@pytest.mark.parametrize(
    "text",
    [
        "Who may write these keys decides who is master.",
        "So it is with a message whose record is damaged.",
        "The answer is that of the broker, or of those that follow it.",
        "There is one send worker, whatever the setting says.",
        "Neither is stored when the disk is full.",
    ],
)
def test_a_sentence_without_a_named_subject_is_odd(text: str) -> None:
    assert is_odd(text)


@pytest.mark.parametrize(
    "text",
    [
        "Anyone who can write these keys can choose the master.",
        "When the disk is full, the broker refuses sends.",
        "The query also fails if a broker skips a record.",
        "Normally a restart takes a second.",
    ],
)
def test_a_sentence_with_a_named_subject_is_not_odd(text: str) -> None:
    assert not is_odd(text)


@pytest.mark.parametrize(
    ("first_line", "odd"),
    [
        ("Whether the connection is usable.", True),
        ("Where the log ends.", True),
        ("How often the file was written.", True),
        ("Return True if the connection is usable.", False),
        ("A follower's acknowledged position.", False),
        ("Return the place where the log ends, and how often it was cut.", False),
    ],
)
def test_a_docstring_begins_with_a_verb_or_a_noun(first_line: str, odd: bool) -> None:
    assert is_odd_docstring(first_line) == odd


def test_the_sentences_of_a_page_are_its_prose_with_their_lines() -> None:
    assert list(sentences_of_page(PAGE)) == [
        Sentence(3, "Start the broker with an empty store."),
        Sentence(3, "What the old store has more can be sent again:"),
        Sentence(4, "whoever needs it keeps a copy, whatever the size."),
        Sentence(8, "Those that answer are asked first."),
        Sentence(9, "Set it to 1 and restart."),
        Sentence(15, "That one is the master."),
    ]


def test_a_fence_of_tildes_and_code_over_two_lines_are_left_out() -> None:
    page = "~~~\nWhat it prints is nothing\n~~~\nThe value of `one\ntwo` is a text.\nThe next line is the last."
    assert [(one.line, one.text) for one in sentences_of_page(page)] == [
        (4, "The value of it is a text."),
        (6, "The next line is the last."),
    ]


def test_the_first_lines_of_all_docstrings_of_a_module_are_read() -> None:
    assert sorted(first_lines_of_module(MODULE), key=lambda one: one.line) == [
        Sentence(1, "What a worker does."),
        Sentence(4, "A connected slave."),
        Sentence(10, "Whether it is open."),
        Sentence(13, "Return the lag in bytes."),
    ]


def test_pages_decisions_and_docstrings_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "adr").mkdir()
    (tmp_path / "adr" / "README.md").write_text("Nor is the log ever cut. The log is the truth.\n")
    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "other.txt").write_text("What is in it does not count.\n")
    found = counted([tmp_path])
    assert {kind: (len(count.odd), count.sentences) for kind, count in found.items()} == {
        "pages": (4, 6),
        "decisions": (1, 2),
        "docstrings": (2, 4),
    }
    assert found["decisions"].of_1000 == 500
    assert f"{tmp_path / 'README.md'}:8: Those that answer are asked first." in found["pages"].odd


def test_a_kind_is_beyond_its_bar_only_above_it() -> None:
    at_bar = {kind: Count(1000, ["odd"] * bar) for kind, bar in BARS.items()}
    assert beyond_bars(at_bar) == []
    at_bar["docstrings"].odd.append("one more")
    assert beyond_bars(at_bar) == ["docstrings"]
    assert Count().of_1000 == 0


def test_given_paths_are_listed_without_a_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "README.md"
    page.write_text("What is stored is sent again.\n")
    assert main([str(page)]) == 0
    assert capsys.readouterr().out == f"{page}:1: What is stored is sent again.\nodd sentences of 1 000: pages 1000\n"
    assert main(["--count", str(page)]) == 0
    assert capsys.readouterr().out == "odd sentences of 1 000: pages 1000\n"


def test_the_project_fails_beyond_a_bar_with_the_sentences_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("What is stored is sent again.\n")
    (tmp_path / "rocketpy").mkdir()
    (tmp_path / "rocketpy" / "module.py").write_text('"""Return the end of the log."""\n')
    monkeypatch.setattr(sentences, "ROOT", tmp_path)
    monkeypatch.setattr(sentences, "PROJECT", ("docs", "rocketpy"))
    assert main(["--count"]) == 1
    told = capsys.readouterr()
    assert told.out == (
        "docs/README.md:1: What is stored is sent again.\nodd sentences of 1 000: pages 1000, docstrings 0\n"
    )
    assert told.err.startswith(f"pages: more than {BARS['pages']} of 1 000 sentences are odd: name the thing")
    (tmp_path / "docs" / "README.md").write_text("The broker sends stored messages again.\n")
    assert main([]) == 0


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "missing")])
