"""bench.console: shares of a core are those above the idle broker's."""

from __future__ import annotations

import pytest

from bench.console import NAMES_SHOWN, Window, shares


def test_the_share_of_the_console_is_what_the_broker_does_more() -> None:
    idle = Window(50.0, {"manager": 0.5, "send": 0.1})
    busy = Window(100.0, {"manager": 4.0, "send": 0.2, "query 0": 1.0, "acceptor": 0.01})
    assert busy.more_than(idle) == pytest.approx({"manager": 3.0, "send": 0.0, "query 0": 1.0, "acceptor": 0.01})
    rows = list(shares("later", busy, idle))
    assert [row.cells for row in rows] == [
        ("later: manager", "3 % of a core", "≤ 2 % of a core", "missed"),
        ("later: query 0", "1 % of a core", "≤ 2 % of a core", "holds"),
        ("later: send", "0 % of a core", "≤ 2 % of a core", "holds"),
    ]


def test_numbers_of_a_page() -> None:
    found = NAMES_SHOWN.search("10 012 found, page 1 of 201")
    assert found is not None and found[1] == "10 012"
