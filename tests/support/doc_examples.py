"""Examples of the documentation as bytes: what a page shows is what the code reads and writes."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
_HEX_LINE = re.compile(r"^(?:([0-9a-f]{4})  )?((?:(?:[0-9a-f]{2})+ {1,2})*(?:[0-9a-f]{2})+)(?:  .*)?$")
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Page:
    """One file under docs/."""

    text: str

    @classmethod
    def read(cls, name: str) -> Page:
        return cls((ROOT / "docs" / name).read_text())

    def section(self, heading: str) -> str:
        found = re.search(rf"^## {heading}.*?(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert found, f"no section {heading}"
        return found[0]

    def blocks(self, heading: str) -> list[str]:
        """The code blocks of a section."""
        return _BLOCK.findall(self.section(heading))

    def examples(self, heading: str) -> list[bytes]:
        """The hex examples of a section, one per line, or per block where lines carry their positions."""
        found: list[bytes] = []
        for block in self.blocks(heading):
            lines = [_HEX_LINE.match(line) for line in block.splitlines()]
            parts = [bytes.fromhex(line[2]) for line in lines if line]
            places = [int(line[1], 16) for line in lines if line and line[1]]
            assert places in ([], [sum(map(len, parts[:n])) for n in range(len(parts))]), f"positions: {block}"
            found += [b"".join(parts)] if places else parts
        return found

    def first_column(self, heading: str, title: str) -> list[int]:
        """The numbers in the first column of the table with this title."""
        table = self.section(heading).split(f"| {title} |", 1)[1].split("\n\n")[0]
        return [int(at) for at in re.findall(r"^\| (\d+)[ |]", table, re.MULTILINE)]
