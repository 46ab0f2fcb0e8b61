"""The site of `make site` (docs/site): built without a warning, links lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.rules import ROOT, enough, hold

pytest.importorskip("mkdocs", reason="`make site` installs mkdocs")

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}  # by a browser, without a click
OF_ITSELF = frozenset({"canonical", "prev", "next"})  # relations of a <link> that load nothing


class Page(HTMLParser):
    """The ids of a page, its links, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if given.get(LOADED.get(tag, "")) and given.get("rel") not in OF_ITSELF:
            self.loaded.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make site` builds it, in another directory."""
    target = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/site/mkdocs.yml", "-d", str(target)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = enough(sorted(site.rglob("*.html")), 200, "pages")
    return {path: Page(path) for path in found if path.name != "404.html"}  # whose links begin at a server's root


def targets(page: Page, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Yield links inside of the site, each with its file and its anchor."""
    for link in links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            yield link, path / "index.html" if path.is_dir() else path, unquote(parts.fragment)


def test_links_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    found = [(page, *target) for page in pages.values() for target in targets(page, page.links + page.loaded)]
    hold(
        (
            f"{page.path.relative_to(site)}: {link}"
            for page, link, path, anchor in enough(found, 10_000, "links")
            if not path.is_file() or (anchor and path in pages and anchor not in pages[path].ids)
        ),
        "link to a page and to a heading that the site has",
    )


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    """A reader without a network sees all of it, and nobody else learns who reads."""
    loaded = enough(((page, address) for page in pages.values() for address in page.loaded), 1000, "loaded files")
    foreign = ((page, address) for page, address in loaded if urlsplit(address).netloc)
    hold((f"{page.path.relative_to(site)}: {address}" for page, address in foreign), "keep a copy beside the site")


def test_every_page_and_every_public_name_is_there(site: Path, pages: dict[Path, Page]) -> None:
    import rocketpy.client
    from rocketpy import errors
    from rocketpy.admin.admin import Admin
    from rocketpy.client import sync

    names = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    missing = {str(name).replace("README.html", "index.html") for name in names} - {
        path.relative_to(site / "docs").as_posix() for path in pages if path.is_relative_to(site / "docs")
    }
    assert missing == {"progress.html"}, "a page is missing; progress.md alone is for those who work on it"
    reference = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "reference"))
    wanted = [(rocketpy.client, name) for name in rocketpy.client.__all__]
    wanted += [(sync, name) for name in sync.__all__] + [(errors, "BrokerError")]
    places = [f"{getattr(module, name).__module__}.{name}" for module, name in wanted]
    methods = [f"{Admin.__module__}.Admin.topic_stats", "rocketpy.client.sync.Producer.send"]
    hold((place for place in [*places, *methods] if place not in reference), "docs/site/pages.py: give it a page")
    hidden = [place for place in reference if place.startswith("rocketpy.") and "._" in place]
    hold(hidden, "leave private names out")


def test_the_search_works_without_a_server(site: Path, pages: dict[Path, Page]) -> None:
    """Its index is a script, which a browser loads from a file as well. Sources are not searched."""
    text = (site / "search/search_index.js").read_text(encoding="utf-8")
    places = {entry["location"].split("#")[0] for entry in json.loads(text.removeprefix("var __index = "))["docs"]}
    assert {"docs/use/client.html", "reference/options.html", "docs/run/metrics.html"} <= places
    assert not [place for place in places if place.endswith((".py.html", ".c.html"))]
    assert any("iframe-worker.js" in address for address in pages[site / "index.html"].loaded)
