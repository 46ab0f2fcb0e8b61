"""Hook of MkDocs: the pages of the site, and its menu.

A page has the place that it has in the repository, so a link that leads somewhere on GitHub does so in the site:

    README.md, docs/, and pages elsewhere that they link to    as they are
    reference/                                                 the API, from docstrings
    sources and directories that a page links to               a page with the text, or with a list of links
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = "docs/progress.md"
ELSEWHERE = frozenset({LEFT_OUT, "README.md", "docs/adr/README.md"})  # not in the section that names them
ASSETS = ("docs/site/iframe-worker.js", "docs/site/style.css")
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".ipynb": "json", ".conf": "properties", ".sh": "sh"}
COPIED = frozenset({".svg", ".png", ".js", ".css"})
FENCE = "~" * 12  # longer than any in a source
UNSEARCHED = "---\nsearch: {exclude: true}\n---\n"


@attrs.frozen
class Reference:
    """A page of the reference: the public names of `package` that `modules` define, and `more` definitions."""

    title: str
    package: str
    modules: tuple[str, ...]
    more: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"reference/{self.title.lower().replace(' ', '-')}.md"


CLIENT, SPARK = "rocketpy.client", "rocketpy.spark"


def of(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names)


REFERENCES = (
    Reference("Producers", CLIENT, of(CLIENT, "producer", "transaction_producer", "sending")),
    Reference("Consumers", CLIENT, of(CLIENT, "push_consumer", "pull_consumer", "consuming")),
    Reference(
        "Options",
        CLIENT,
        (*of(CLIENT, "options", "allocation", "security"), "rocketpy.remoting"),
        of(CLIENT, "options.ConsumerOptions"),
    ),
    Reference(
        "Messages and results",
        CLIENT,
        of(CLIENT, "messages", "results"),
        ("rocketpy.message.message_queue.MessageQueue", f"{CLIENT}.results.ConsumeAction"),
    ),
    Reference("Helpers", CLIENT, ("rocketpy",)),
    Reference("Blocking clients", f"{CLIENT}.sync", of(CLIENT, "sync")),
    Reference("Admin", "rocketpy.admin.admin", ("rocketpy.admin.admin",), of("rocketpy.admin.core", "PartialFailure")),
    Reference(
        "Spark",
        SPARK,
        (SPARK,),
        of(
            SPARK,
            "topic_options.TopicOptions",
            "store_options.StoreOptions",
            "outgoing.SinkOptions",
            "connection.ConnectionOptions",
            "decoding.DecodingOptions",
        ),
    ),
    Reference("Errors", "rocketpy.errors", ("rocketpy.errors",)),
)
"""Each public name is on the first page that it fits."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write the menu: the sections of docs/README.md, the decisions, the reference."""
    page = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    menu: list[dict[str, Any]] = [{"Start": "README.md"}]
    for title, text in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", page, re.MULTILINE):
        linked = (place for line in re.findall(r"^- .+", text, re.MULTILINE) for place in links("docs/README.md", line))
        menu.append({title: [place for place in dict.fromkeys(linked) if is_page(place) and place not in ELSEWHERE]})
    decisions = sorted(path_of(page) for page in (ROOT / "docs/adr").glob("[0-9]*.md"))
    menu.append({"Decisions": ["docs/adr/README.md", *decisions]})
    menu.append({"Reference": [{each.title: each.path} for each in REFERENCES if names_of(each)]})
    config.nav = menu
    config.extra["polyfills"] = [ASSETS[0]]
    config.extra_css = [ASSETS[1]]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of the site, in place of those that MkDocs has found in docs/."""
    found = Files([file for file in files if file.src_dir != config.docs_dir])  # of the theme
    waiting = ["README.md", *ASSETS, *(path_of(page) for page in sorted((ROOT / "docs").rglob("*.md")))]
    seen = {LEFT_OUT}
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        if page_of(place) == place:
            found.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
        else:
            found.append(File.generated(config, page_of(place), content=source_page(place)))
        if is_page(place):
            waiting += links(place, (ROOT / place).read_text(encoding="utf-8"))
        elif (ROOT / place).is_dir():
            waiting += entries(place)
    for reference in filter(names_of, REFERENCES):
        found.append(File.generated(config, reference.path, content=reference_page(reference)))
    return found


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to sources and directories lead to their pages."""
    place = page.file.src_uri
    folder = posixpath.dirname(place) or "."
    if not is_page(place):
        return markdown

    def target(link: re.Match[str]) -> str:
        linked = next(links(place, f"]({link[0]})"), "")
        return posixpath.relpath(page_of(linked), folder) if linked else link[0]

    markdown = re.sub(r"^(\*\*.+\*\*)\n(?=- )", r"\1\n\n", markdown, flags=re.MULTILINE)  # a list begins a paragraph
    left_out = re.escape(posixpath.relpath(LEFT_OUT, folder))
    return LINK.sub(target, re.sub(rf"\[([^]]+)\]\({left_out}\)", r"\1", markdown))


def links(place: str, text: str) -> Iterator[str]:
    """Yield the places in the repository that `text`, of the page at `place`, links to."""
    for link in LINK.finditer(text):
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(place), link[0]))
        if "://" not in link[0] and (ROOT / linked).exists():
            yield linked


def path_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_page(place: str) -> bool:
    return place.endswith(".md") and (ROOT / place).is_file()


def page_of(place: str) -> str:
    """Return the file of the site that shows a file or a directory of the repository."""
    if (ROOT / place).is_dir():
        return f"{place}/README.md" if is_page(f"{place}/README.md") else f"{place}/index.md"
    return place if is_page(place) or Path(place).suffix in COPIED else f"{place}.md"


def entries(place: str) -> list[str]:
    """Return the places in a directory."""
    return [path_of(path) for path in sorted((ROOT / place).iterdir()) if not path.name.startswith((".", "__"))]


def source_page(place: str) -> str:
    """Return the page of a source or of a directory, as Markdown."""
    if (ROOT / place).is_dir():
        lines = (
            f"- [{posixpath.basename(entry)}]({posixpath.relpath(page_of(entry), place)})" for entry in entries(place)
        )
        return "\n".join([f"{UNSEARCHED}# {place}", "", *lines, ""])
    text = (ROOT / place).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(place).suffix, "text")
    return f"{UNSEARCHED}# {posixpath.basename(place)}\n\n`{place}`\n\n{FENCE} {language}\n{text}\n{FENCE}\n"


def reference_page(reference: Reference) -> str:
    """Return a page of the reference, as Markdown for mkdocstrings."""
    module, shown = importlib.import_module(reference.package), names_of(reference)
    imported = textwrap.fill(", ".join(shown), 72, initial_indent="    ", subsequent_indent="    ")
    parts = [f"# {reference.title}", f"``` python\nfrom {reference.package} import (\n{imported}\n)\n```"]
    for name, path in shown.items():
        bases = {base.__name__ for base in getattr(getattr(module, name), "__mro__", ())[1:]}
        options = "inherited_members: false" if bases & shown.keys() else "inherited_members: true, show_bases: false"
        parts.append(f"::: {path}\n    options: {{{options}}}")
    parts += [f"::: {path}\n    options: {{inherited_members: false}}" for path in reference.more]
    return "\n\n".join([*parts, ""])


def names_of(reference: Reference) -> dict[str, str]:
    """Return the names on a page of the reference, and the paths of their definitions."""
    module = importlib.import_module(reference.package)
    names = (name for name in public_names(module) if page_for(reference.package, place_of(module, name)) is reference)
    return {name: place_of(module, name) for name in sorted(names, key=partial(order_of, reference, module))}


def public_names(module: ModuleType) -> list[str]:
    """Return the names in `__all__`, or the public classes of a module."""
    own = [
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def place_of(module: ModuleType, name: str) -> str:
    """Return the path of the definition of a name that a module has."""
    return f"{getattr(module, name).__module__}.{name}"


def order_of(reference: Reference, module: ModuleType, name: str) -> tuple[int, int]:
    """Return the place of a name on its page: by module; the name of the module, then the order of definitions."""
    place = place_of(module, name)
    defined_in = place.rpartition(".")[0]
    number = next(number for number, prefix in enumerate(reference.modules) if place.startswith(prefix))
    is_first = defined_in.rpartition(".")[2].replace("_", "") == name.lower()
    return number, -1 if is_first else [*vars(sys.modules[defined_in])].index(name)


def page_for(package: str, path: str) -> Reference | None:
    """Return the page of the reference that has a definition."""
    of_package = (reference for reference in REFERENCES if reference.package == package)
    return next((reference for reference in of_package if path.startswith(reference.modules)), None)
