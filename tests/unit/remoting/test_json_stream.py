"""Members one by one: whatever the chunks, never more than a window, and nothing that is no JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketpy.errors import BodyInvalid
from rocketpy.remoting.json_stream import VALUE_CHARS_MAX, JsonStream, chunks_of
from tests.support.cases import cases

DOCUMENT: dict[str, Any] = {
    "a": {"x": [1, 2.5, {"y": None}], "ü€😀": 'text \\ " \u0001', "n": -12},
    "empty": {},
    "b": {"1": 123456789, "t": True},
}


def two_levels(stream: JsonStream) -> dict[str, Any]:
    found = {key: {name: stream.value() for name in stream.members()} for key in stream.members()}
    stream.end()
    return found


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_any_chunks_give_the_same(size: int, indent: int | None) -> None:
    data = json.dumps(DOCUMENT, ensure_ascii=False, indent=indent).encode()
    chunks = [data[position : position + size] for position in range(0, len(data), size)]
    assert two_levels(JsonStream(chunks)) == DOCUMENT
    assert JsonStream(chunks).value() == DOCUMENT


def test_tables_of_bare_integers_as_the_reference_writes_them() -> None:
    data = b'{\n\t"offsetTable":{\n\t\t"T@G":{0:12,3:7\n\t\t},\n\t\t"U@G":{1:-9\n\t\t}\n\t}\n}'
    for size in (1, 5, 100):
        chunks = [data[position : position + size] for position in range(0, len(data), size)]
        assert two_levels(JsonStream(chunks)) == {"offsetTable": {"T@G": {"0": 12, "3": 7}, "U@G": {"1": -9}}}


def test_null_has_no_members() -> None:
    stream = JsonStream([b'{"a":null,"b":1}'])
    assert {key: list(stream.members()) if key == "a" else stream.value() for key in stream.members()} == {
        "a": [],
        "b": 1,
    }


@cases(
    "data",
    [
        b"",
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":{}',
        b'{"a":{}}x',
        b'{"a":{},}',
        b"{1:{}}",
        b"[1]",
        b'{"a":{"b":tru}}',
        b'{"a":{"b":"\xff"}}',
        b'{"a":{"b":"\xc3',
        b'{"a":{"b":' + b"9" * 5000 + b"}}",
        b'{"a":{"b":' + b"[" * 50_000,
    ],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(BodyInvalid):
        two_levels(JsonStream(chunks_of(data)))


def test_a_value_larger_than_the_window_is_refused() -> None:
    large = b'{"a":{"b":"' + b"x" * (3 * VALUE_CHARS_MAX)
    taken = 0

    def chunks() -> Any:
        nonlocal taken
        for chunk in chunks_of(large):
            taken += len(chunk)
            yield chunk

    with pytest.raises(BodyInvalid):
        two_levels(JsonStream(chunks()))
    assert taken < 2 * VALUE_CHARS_MAX, "the rest is not even looked at"


def test_lone_surrogates_become_question_marks() -> None:
    stream = JsonStream([b'{"\\ud800":{"x":"\\udfff"}}'])
    assert two_levels(stream) == {"?": {"x": "?"}}
