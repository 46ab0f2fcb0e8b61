"""Rendering: templates with autoescape, and how values are shown.

Every name of the cluster may hold markup: it is escaped by Jinja in templates, by `quote` in addresses, and by
`Markup.format` in charts. No page has a script or a style of its own; the numbers of charts are in attributes.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined

from rocketpy.message.properties import SYSTEM_PROPERTIES

STATIC = Path(__file__).resolve().parent / "static"
VERSION_DIGITS = 12  # of a hash
BODY_SHOWN = 64 * 1024
HEX_SHOWN = 2048
ROW_BYTES = 16
PAGE_ROWS = 50
SEARCH_MAX = 255  # characters


def number(value: float | None) -> str:
    """Show a count with spaces between thousands."""
    return "-" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    if value is None:
        return "-"
    return number(value) if value >= 100 else f"{value:.1f}"


def duration(ms: float | None) -> str:
    """Show a time span in its largest unit."""
    if ms is None:
        return "-"
    for limit, size, unit in ((1000, 1, "ms"), (60_000, 1000, "s"), (3_600_000, 60_000, "min")):
        if ms < limit:
            return f"{ms / size:.0f} {unit}"
    return f"{ms / 3_600_000:.1f} h" if ms < 86_400_000 * 2 else f"{ms / 86_400_000:.1f} d"


def size(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def moment(ms: float | None) -> str:
    """Show a time of the console's time zone."""
    if not ms or not 0 < ms < 253_402_300_799_000:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))


def address(path: str, **query: object) -> str:
    """Return a path with a query string."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


@functools.cache
def static(name: str) -> str:
    """Return the address of a file in STATIC, which changes with the file: browsers need not ask for it again.

    Raises:
        OSError: the file cannot be read.
    """
    version = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:VERSION_DIGITS]
    return address(f"/static/{name}", v=version)


def body_text(body: bytes) -> tuple[str, str]:
    """Return a body as text or as a hex dump, and a note on its kind and what is left out."""
    try:
        text = body[:BODY_SHOWN].decode() if len(body) <= BODY_SHOWN else body[:BODY_SHOWN].decode("utf-8", "ignore")
        if len(body) > BODY_SHOWN and len(text.encode()) < BODY_SHOWN - 4:
            raise ValueError("no UTF-8")
    except ValueError:
        rows = (body[at : at + ROW_BYTES] for at in range(0, min(len(body), HEX_SHOWN), ROW_BYTES))
        dump = "\n".join(f"{ROW_BYTES * n:06x}  {row.hex(' ')}" for n, row in enumerate(rows))
        return dump, f"no UTF-8 text, the first {min(len(body), HEX_SHOWN)} of {len(body)} bytes"
    return text, "text" if len(body) <= BODY_SHOWN else f"the first {BODY_SHOWN} of {len(body)} bytes"


@attrs.frozen
class Paging:
    """A part of a list of names that hold `search`, and where the other parts are."""

    search: str
    page: int
    count: int
    rows: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], search: str, page: int) -> Paging:
        """Choose the names. A page beyond the last one is the last one."""
        wanted = search.strip()[:SEARCH_MAX]
        folded = wanted.casefold()
        found = [name for name in names if folded in name.casefold()] if folded else names
        page = max(0, min(page, (len(found) - 1) // PAGE_ROWS))
        return cls(wanted, page, len(found), tuple(found[page * PAGE_ROWS : (page + 1) * PAGE_ROWS]))

    @property
    def last(self) -> int:
        return max(0, (self.count - 1) // PAGE_ROWS)


class Renderer:
    """The templates of this package."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("rocketpy.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals |= {
            "address": address,
            "is_system_property": SYSTEM_PROPERTIES.__contains__,
            "number": number,  # for sparklines
            "rate": rate,
            "static": static,
        }
        self._environment.filters |= {
            "number": number,
            "rate": rate,
            "duration": duration,
            "size": size,
            "moment": moment,
        }

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(template).render(values)
