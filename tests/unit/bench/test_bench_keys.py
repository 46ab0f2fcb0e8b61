"""docs/use/bench.md lists every key of scenario files, as it is declared."""

from __future__ import annotations

import attrs

from rocketpy.bench.scenario import KEYS, Scenario
from tests.support.rules import ROOT

PAGE = ROOT / "docs/use/bench.md"


def test_the_page_has_the_table_of_keys() -> None:
    fields = attrs.fields_dict(Scenario)
    rows = [
        (key, fields[name].default if name != "broker" else {}, fields[name].metadata["text"])
        for key, name in KEYS.items()
    ]
    table = "\n".join(f"| `{key}` | {_shown(default)} | {text} |" for key, default, text in rows)
    assert f"|---|---|---|\n{table}\n" in PAGE.read_text(encoding="utf-8"), f"docs/use/bench.md should have\n{table}"


def _shown(default: object) -> str:
    return str(default).lower() if default not in ("", {}) else "-"
