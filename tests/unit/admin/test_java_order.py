"""The order of Java's hash tables, with lists that mqadmin 4.9.7 printed."""

import pytest

from rocketpy.admin.java_order import hash_order, string_hash


def test_string_hash() -> None:
    assert string_hash("") == 0 and string_hash("a") == 97 and string_hash("Aa") == string_hash("BB") == 2112
    assert string_hash("orders") - (1 << 32) == -1008770331
    assert string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00, "by UTF-16 code units"


@pytest.mark.parametrize(
    ("put", "listed"),
    [
        ("audit billing puller radio stopped", "puller stopped audit billing radio"),
        ("KEYS TAGS UNIQ_KEY colour CLUSTER", "colour KEYS UNIQ_KEY CLUSTER TAGS"),
        (
            "KEYS TAGS UNIQ_KEY colour CLUSTER MIN_OFFSET MAX_OFFSET",
            "MIN_OFFSET colour MAX_OFFSET KEYS UNIQ_KEY CLUSTER TAGS",
        ),
        ("10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.3 10.0.0.2 10.0.0.1"),
    ],
)
def test_lists_of_java(put: str, listed: str) -> None:
    assert hash_order(put.split()) == listed.split()


def test_names_in_one_bucket_stand_as_they_were_put() -> None:
    assert hash_order(["BB", "Aa"]) == ["BB", "Aa"] and hash_order(["Aa", "BB"]) == ["Aa", "BB"]


def test_the_table_grows() -> None:
    """Of more than 12 names the order follows from 32 buckets: `a` is 97, `A` is 65."""
    few = ["a", "A", *(chr(ord("b") + number) for number in range(10))]
    assert hash_order(few)[:2] == ["a", "A"], "bucket 1 of 16"
    assert hash_order([*few, "\x11"])[:3] == ["a", "A", "b"] and hash_order([*few, "\x11"])[-1] == "\x11"
