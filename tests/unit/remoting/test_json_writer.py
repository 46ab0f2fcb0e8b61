"""JSON in pieces: the same text as in one, and no piece holds more than its share of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpy.codes import LanguageCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.json_writer import (
    SORTED_MAX,
    VALUES_PER_PIECE,
    Members,
    compact_pieces,
    dumps,
    pretty_pieces,
)

TABLES: list[Any] = [
    {f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(5_000)},
    {"offsetTable": {f"T{number}@G": {0: number, 7: 1} for number in range(5_000)}},
    {"one": dict.fromkeys(range(65_536), 9)},
    {"list": [{"a": number} for number in range(5_000)]},
    {MessageQueue("T", "b", number): {"maxOffset": 1} for number in range(5_000)},
    [[[]] * 5_000],
    Members(lambda: ((f"k{number}", number) for number in range(5_000))),
]


@pytest.mark.parametrize("pieces_of", [compact_pieces, pretty_pieces])
@pytest.mark.parametrize("table", TABLES, ids=range(len(TABLES)))
def test_no_piece_holds_more_than_its_share(table: Any, pieces_of: Any) -> None:
    """Fault: Saving a million offsets blocked the manager for 8 s, until the supervisor replaced it."""
    pieces = list(pieces_of(table))
    most = max(piece.count(",") + piece.count("[") + piece.count("{") for piece in pieces)
    assert most <= 12 * VALUES_PER_PIECE, "a value is one number, text or flat object of a dozen members"
    assert len(pieces) >= 5_000 / VALUES_PER_PIECE


def test_pieces_are_the_whole_text() -> None:
    table = {f"T{number}": {"b": None, "a": [1, True, LanguageCode.JAVA]} for number in range(3_000)}
    text = "".join(compact_pieces(table))
    assert text == fastjson.dump_text(table)
    assert json.loads(text) == {name: {"a": [1, True, "JAVA"]} for name in table}
    assert json.loads("".join(pretty_pieces(table))) == {name: {"b": None, "a": [1, True, "JAVA"]} for name in table}


def test_keys_are_sorted_until_that_would_take_long() -> None:
    assert dumps({"b": 1, "a": 2}) == b'{"a":2,"b":1}' and dumps({3: 1, 1: 2}) == b"{1:2,3:1}"
    large = {f"{number:06}": 1 for number in range(SORTED_MAX, -1, -1)}
    assert list(json.loads(dumps(large))) == list(large)


def test_members_are_looked_up_when_their_turn_comes() -> None:
    table = {f"k{number}": 1 for number in range(2 * VALUES_PER_PIECE)}

    def members() -> Iterator[tuple[str, object]]:
        for key in list(table):
            if key in table:
                yield key, table[key]

    pieces = compact_pieces(Members(members))
    first = next(pieces)
    table.update({"k0": 2, f"k{2 * VALUES_PER_PIECE - 1}": 2})
    del table[f"k{2 * VALUES_PER_PIECE - 2}"]
    read = json.loads(first + "".join(pieces))
    assert (read["k0"], read[f"k{2 * VALUES_PER_PIECE - 1}"], len(read)) == (1, 2, 2 * VALUES_PER_PIECE - 1)


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        dumps({"a": object()})
    assert dumps("\ud800") == b'"?"' and dumps([b"ab", float("nan"), None]) == b'["YWI=",null,null]'
