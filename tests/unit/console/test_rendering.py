from __future__ import annotations

import re
from pathlib import Path

from rocketpy import console
from rocketpy.console.rendering import (
    BODY_SHOWN,
    HEX_SHOWN,
    PAGE_ROWS,
    Paging,
    address,
    body_text,
    duration,
    moment,
    number,
    rate,
    size,
)
from tests.support.cases import cases


@cases(
    "shown, text",
    [
        (number(None), "-"),
        (number(1234567), "1\u202f234\u202f567"),
        (rate(0.25), "0.2"),
        (rate(1234.5), "1\u202f234"),
        (duration(250), "250 ms"),
        (duration(90_000), "2 min"),
        (duration(10 * 3_600_000), "10.0 h"),
        (duration(72 * 3_600_000), "3.0 d"),
        (size(10), "10 B"),
        (size(5 << 20), "5.0 MiB"),
        (size(1 << 60), "1048576.0 TiB"),
        (moment(0), "-"),
        (moment(1e18), "-"),
    ],
)
def test_values(shown: str, text: str) -> None:
    assert shown == text


def test_addresses_hold_any_name() -> None:
    assert address("/topic", name='a&b="<%', page=None) == "/topic?name=a%26b%3D%22%3C%25"
    assert address("/topics", search="", page=0) == "/topics?page=0"


def test_a_body_is_text_or_a_dump_and_bounded() -> None:
    assert body_text("grün <b>".encode()) == ("grün <b>", "text")
    text, note = body_text("ü".encode() * BODY_SHOWN)
    assert len(text.encode()) <= BODY_SHOWN
    assert note == f"the first {BODY_SHOWN} of {2 * BODY_SHOWN} bytes"
    for body in (b"\xff" * 20, b"\xff" * (2 * BODY_SHOWN), b"a\xff" * BODY_SHOWN):
        dump, note = body_text(body)
        assert dump.startswith("000000  ")
        assert len(dump) < 5 * HEX_SHOWN
        assert note.startswith("no UTF-8 text")


def test_ten_thousand_names_come_in_parts() -> None:
    names = [f"topic-{n:05}" for n in range(10_000)]
    first = Paging.of(names, "", 0)
    assert (first.rows, first.last) == (tuple(names[:PAGE_ROWS]), 10_000 // PAGE_ROWS - 1)
    assert Paging.of(names, "", 10**6).rows == tuple(names[-PAGE_ROWS:])
    found = Paging.of(names, " TOPIC-0999 ", 0)
    assert (found.count, found.last, found.rows[0]) == (10, 0, "topic-09990")
    assert Paging.of(names, "none", 3) == Paging("none", 0, 0, ())


def test_templates_and_static_files_are_small() -> None:
    """Browsers load the pages over slow lines, too."""
    package = Path(console.__file__).parent
    files = [path for part in ("static", "templates") for path in (package / part).rglob("*") if path.is_file()]
    assert len(files) > 10
    assert sum(path.stat().st_size for path in files) < 200_000


def test_wide_tables_scroll_by_themselves() -> None:
    """Fault: With wide fonts the brokers of a topic made the whole page wider than a phone."""
    templates = sorted((Path(console.__file__).parent / "templates").glob("*.html"))
    found = [
        (path.name, bool(region))
        for path in templates
        for region in re.findall(r'(<div class="scroll"[^>]*>\s*)?<table', path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 15
    assert [name for name, scrolls in found if not scrolls] == []
