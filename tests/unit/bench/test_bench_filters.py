"""What bench.filters sends: one message in a hundred matches, by its tag and by the expression alike."""

from __future__ import annotations

from bench.filters import BATCH, MATCHING, SQL, TAG, Figures, message_properties, rows
from rocketpy.filter.evaluate import evaluate
from rocketpy.filter.parser import parse


def test_one_message_in_a_hundred_matches() -> None:
    expression = parse(SQL)
    for number in range(3 * BATCH):
        properties = message_properties(number, "0" * 16)
        is_wanted = number % BATCH == MATCHING
        assert (properties["TAGS"] == TAG) == is_wanted
        assert (evaluate(expression, properties) is True) == is_wanted


def test_bars_are_checked_against_medians() -> None:
    def runs(*units_per_s: float) -> list[Figures]:
        return [Figures(value, value, 1, 1, 1, 1, 1, {}) for value in units_per_s]

    slow, fast = runs(2e6, 4e6, 9e6), runs(1e6, 6e6, 7e6)
    names = ("tag", "SQL92", "SQL92 with filter bits")
    found = {(target, name): runs for target, runs in (("rocketpy", slow), ("java", fast)) for name in names}
    missed = [line for line in rows(found) if line[-1]]
    assert [(line[0], line[1], line[-1]) for line in missed] == [
        ("tag", "units_per_core_s", "missed"),
        ("SQL92 with filter bits", "units_per_s", "missed"),
    ]
    found |= {("rocketpy", name): runs(18e6) for name in names}
    assert [line[-1] for line in rows(found) if line[-1]] == ["holds", "holds"]
