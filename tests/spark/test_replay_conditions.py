"""Conditions of a replay see properties as texts and columns as they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.jobs.replay.conditions import parse_where, row_filter
from rocketpy.spark.jobs.replay.plan import Wanted

ROW: dict[str, Any] = {
    "queueId": 3,
    "queueOffset": 5_000_000_000,
    "physicalOffset": 1 << 40,
    "msgId": "0A",
    "keys": "k1 k2",
    "tags": "paid",
    "flag": -1,
    "reconsumeTimes": 0,
    "bornTimestamp": None,
    "storeTimestamp": datetime(2026, 11, 22, 10, tzinfo=UTC),
    "properties": [("region", "eu"), ("amount", "12"), ("tags", "hidden"), ("bornTimestamp", "hidden")],
}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("region = 'eu' AND amount BETWEEN 5 AND 12", True),
        ("amount > 12", False),
        ("queueOffset >= 5", True),  # a number of 64 bits beside one of 32
        ("queueOffset >= 5000000001", False),
        ("queueId IN ('3', '4')", True),
        ("queueId NOT IN ('3', '4')", False),
        ("tags = 'paid'", True),
        ("bornTimestamp IS NULL", True),
        ("storeTimestamp >= 1795341600000", True),
        ("storeTimestamp > 1795341600000", False),
        ("reconsumeTimes = 0 AND flag < 0", True),
        ("nothing = 1", False),
        ("region > 1", False),  # not a number
    ],
)
def test_rows_that_match_are_sent(where: str, expected: bool) -> None:
    assert row_filter(Wanted(topics={}, where=where))(ROW) is expected


def test_all_conditions_count() -> None:
    assert row_filter(Wanted(topics={}))(ROW)
    assert row_filter(Wanted(topics={}, keys=frozenset({"k2"}), where="amount = 12"))(ROW)
    assert not row_filter(Wanted(topics={}, keys=frozenset({"k3"}), where="amount = 12"))(ROW)
    assert not row_filter(Wanted(topics={}, keys=frozenset({"k2"}), where="amount = 13"))(ROW)
    stored_ms = 1_795_341_600_000
    assert row_filter(Wanted(topics={}, from_ms=stored_ms, to_ms=stored_ms + 1))(ROW)
    assert not row_filter(Wanted(topics={}, to_ms=stored_ms))(ROW)


def test_what_is_no_condition_is_refused() -> None:
    assert parse_where(None) is None
    with pytest.raises(ConfigError, match="is no SQL92 condition"):
        parse_where("amount >")
