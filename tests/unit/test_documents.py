"""The documents are true where a machine can tell: what they link to, name and cite is there, and no page is stale."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.doc_links import Link, anchors, code_paths, defines, documents, links, without_fences
from tests.support.rules import ROOT, enough, hold, name_of, text_of

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
GENERATED = dict(re.findall(r"^\t\$\(BIN\)/python (.+) > (\S+\.md)$", MAKEFILE, re.MULTILINE))
DECISIONS = {path.name[:4] for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
SOURCES = sorted(
    path
    for folder in ("rocketpy", "csrc", "tests", "bench", "deploy")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".c", ".h", ".txt", ".conf", ".service", ".sh"} and "__pycache__" not in path.parts
)


def test_links_lead_somewhere() -> None:
    def leads_nowhere(link: Link) -> bool:
        return not link.path.exists() or bool(
            link.anchor and link.path.suffix == ".md" and link.anchor not in anchors(link.path)
        )

    found = enough((link for page in documents() for link in links(page)), 400, "links")
    hold(
        (f"{name_of(link.page)}: {link.target}" for link in found if leads_nowhere(link)),
        "link to a file and a heading that are there",
    )


def test_the_readme_of_the_pages_leads_to_every_page() -> None:
    """A page that nothing leads to is not read."""
    assert ROOT / "docs/README.md" in {link.path for link in links(ROOT / "README.md")}
    linked = {link.path for link in links(ROOT / "docs/README.md")}
    pages = [page for room in ("use", "run", "understand") for page in sorted((ROOT / "docs" / room).glob("*.md"))]
    missing = (page for page in enough(pages, 20, "pages") if page not in linked)
    hold((name_of(page) for page in missing), "link the page from docs/README.md")


def test_definitions_that_are_linked_are_in_their_files() -> None:
    """[`rp_frame_cut`](../csrc/wire/header.c) says that the file defines the name."""
    named = [link for page in documents() for link in links(page) if link.identifier and link.path.exists()]
    hold(
        (
            f"{name_of(link.page)}: {link.identifier} in {link.target}"
            for link in enough(named, 100, "definitions")
            if not defines(link.path, link.identifier)
        ),
        "link to the file that defines the name",
    )


def test_files_that_are_named_are_there() -> None:
    """From the root of the repository, or, in the pages of the tests, from tests/."""

    def is_there(page: Path, path: str) -> bool:
        roots = (ROOT, ROOT / "tests") if "tests" in page.relative_to(ROOT).parts else (ROOT,)
        return any((root / path).exists() for root in roots)

    named = enough(((page, path) for page in documents() for path in code_paths(page)), 250, "names of files")
    hold(
        (f"{name_of(page)}: {path}" for page, path in named if not is_there(page, path)),
        "name a file that is there, from the root of the repository",
    )


def test_a_table_is_not_interrupted() -> None:
    """After a blank line rows are shown as text: a table begins with its titles and a line of dashes."""
    found, tables = [], 0
    for page in documents():
        lines = without_fences(page).splitlines()
        begins = [n for n, line in enumerate(lines) if line.startswith("|") and not lines[n - 1].startswith("|")]
        tables += len(begins)
        cut = [lines[n] for n in begins if not re.match(r"\|[ :]*---", "".join(lines[n + 1 : n + 2]))]
        found += [f"{name_of(page)}: {line}" for line in cut]
    assert tables > 50, "the rule finds no tables"
    hold(found, "a table begins with its titles and a line of dashes: remove the blank line above this row")


def test_tests_in_commands_are_there() -> None:
    """`pytest tests/unit/x.py -k y` runs a test: the file is there, and so is each word behind -k."""
    named = [
        (page, path, re.findall(r"[\w-]+", chosen.strip("\"'")))
        for page in documents()
        for command in re.findall(r"`([^`\n]*pytest [^`\n]*)`", text_of(page))
        for paths, chosen in re.findall(r"((?:\btests/[\w/.-]+\s*)+)(?:-k (\"[^\"]+\"|'[^']+'|\S+))?", command)
        for path in [paths.split()]
    ]
    enough(named, 2, "commands with tests")
    missing = [f"{name_of(page)}: {path}" for page, paths, _ in named for path in paths if not (ROOT / path).exists()]
    hold(missing, "name the file that holds the test now")
    missing = [
        f"{name_of(page)}: {' '.join(paths)} -k {word}"
        for page, paths, words in named
        for word in words
        if word not in ("and", "or", "not") and not any(word in text for path in paths for text in texts_below(path))
    ]
    hold(missing, "name the test as it is called now")


@cache
def texts_below(path: str) -> list[str]:
    """The text of a test file, or of those in a directory, each with its name."""
    place = ROOT / path
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [f"{file.name}\n{text_of(file)}" for file in files]


def test_make_targets_that_are_named_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    named = [
        (page, target)
        for page in documents()
        for line in re.findall(r"(?:^|`)make ((?:[a-z-]+ ?)+)(?=[`#\n ])", text_of(page), re.MULTILINE)
        for target in line.split()
    ]
    enough((page for page, _ in named if page.name == "CONTRIBUTING.md"), 10, "targets in CONTRIBUTING.md")
    missing = (f"{name_of(page)}: make {target}" for page, target in enough(named, 50, "targets"))
    hold((place for place in missing if place.split()[-1] not in targets), "name a target that `make help` lists")


def test_code_cites_documents_that_are_there() -> None:
    """A comment names a page of this repository, or says the fact itself."""
    names = {page.name for page in documents()}
    found = ((path, cited) for path in SOURCES for cited in re.findall(r"\b[\w-]+\.md\b", text_of(path)))
    missing = (f"{name_of(path)}: {cited}" for path, cited in enough(found, 80, "pages") if cited not in names)
    hold(missing, "cite a page that is there, or say the fact itself")


def test_decisions_that_are_cited_are_there() -> None:
    found = (
        (path, number)
        for path in [*SOURCES, *documents()]
        for number in re.findall(r"\b(?:adr/|ADR )(\d{4})\b", text_of(path))
    )
    cited = enough(found, 120, "decisions")
    hold(
        (f"{name_of(path)}: {number}" for path, number in cited if number not in DECISIONS),
        "cite a decision that docs/adr has",
    )


def test_decisions_have_a_title_and_say_why() -> None:
    def is_decision(page: Path) -> bool:
        heading = rf"# {int(page.name[:4])}\. [A-Za-z].*[^.]\n\n\*\*Context\.\*\*"
        return bool(re.match(heading, text_of(page))) and "\n**Decision.**" in text_of(page)

    pages = enough(sorted((ROOT / "docs/adr").glob("[0-9]*.md")), 30, "decisions")
    hold((name_of(page) for page in pages if not is_decision(page)), "`# N. Title`, **Context.**, then **Decision.**")


def test_the_readme_of_the_core_names_every_file() -> None:
    text, core = text_of(ROOT / "csrc/README.md"), ROOT / "csrc"
    sections = dict(re.findall(r"^### ([\w/]+): (.*?)(?=^#)", text, re.MULTILINE | re.DOTALL))
    files = enough(sorted(core.rglob("*.[ch]")), 100, "files of C")
    unnamed = {
        f"`{path.stem}` in section `### {room}`"
        for path in files
        if f"`{path.stem}`" not in sections.get(room := path.parent.relative_to(core).as_posix(), "")
    }
    hold(sorted(unnamed), "name the file in csrc/README.md")


@pytest.mark.parametrize("picture", enough(sorted((ROOT / "docs").rglob("*.svg")), 2, "pictures"), ids=name_of)
def test_a_picture_fits_a_phone(picture: Path) -> None:
    """Narrow, with letters that can be read there, a text for those who cannot see it, and a background of its own."""
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(picture).getroot()
    sizes = [float(node.attrib["font-size"]) for node in root.iter() if "font-size" in node.attrib]
    background = next(root.iter(f"{svg}rect"))
    assert float(root.attrib["width"]) <= 400 and min(sizes) >= 11
    assert root.findtext(f"{svg}title") and root.findtext(f"{svg}desc")
    assert background.attrib["fill"] != "none" and float(background.attrib["width"]) > 0.99 * float(
        root.attrib["width"]
    )


def test_the_glossary_explains_a_word_once() -> None:
    text = (ROOT / "docs/understand/glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"^- \*\*([^*]+)\*\*.*: ", text, re.MULTILINE)
    words = enough((word for each in named for word in each.split(", ")), 50, "words")
    hold((word for word in sorted(set(words)) if words.count(word) > 1), "explain the word once")


@pytest.mark.parametrize("command", GENERATED)
def test_generated_pages_are_current(command: str) -> None:
    run = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT / GENERATED[command]).read_text(encoding="utf-8") == run.stdout, "run `make docs`"


def test_make_docs_makes_every_generated_page() -> None:
    """A page that says it is generated is made by `make docs`, so the test above holds it."""
    made = (name_of(page) for page in documents() if "\nGenerated by `" in page.read_text(encoding="utf-8"))
    pages = set(enough(made, 4, "generated pages"))
    assert pages == set(GENERATED.values()), "let `make docs` make each page that says it is generated"
