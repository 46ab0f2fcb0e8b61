"""Options: what is read, and what each wrong one says."""

from __future__ import annotations

import re

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.options import boolean, json_object, numbers, one_of, parse_options, seconds, size, whole, words
from rocketpy.spark.store_options import StoreOptions


def test_options_of_a_store() -> None:
    given = {
        "PATH": "/s",
        "splitbytes": "64m",
        "CheckCRC": "True",
        "topics": "A, B",
        "queueIds": "0,3",
        "columns": "min",
    }
    options = parse_options(StoreOptions, given)
    assert (str(options.path), options.split_bytes, options.check_crc) == ("/s", 64 << 20, True)
    assert (options.topics, options.queue_ids) == ({"A", "B"}, {0, 3})
    assert options.ddl(diagnostics=True) == "queueId int, queueOffset bigint, physicalOffset bigint, body binary"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "path: this option is required: root of the store, on every executor"),
        ({"path": "/s", "splitBites": "1"}, 'splitBites: unknown option; did you mean "splitBytes"?'),
        ({"path": "/s", "nameServer": "x"}, "nameServer: unknown option"),
        (
            {"path": "/s", "splitBytes": "many"},
            'splitBytes: "many" is no size from 1 to 1099511627776',
        ),
        ({"path": "/s", "onCorrupt": "ignore"}, 'onCorrupt: "ignore" is none of fail, skip, truncate'),
        ({"path": "/s", "checkCRC": "1"}, 'checkCRC: "1" is neither true nor false'),
        ({"path": "/s", "columns": "body,tag"}, 'columns: "tag" is no column; did you mean "tags"?'),
        (
            {"path": "/s", "startPhysicalOffset": "9", "endPhysicalOffset": "9"},
            "startPhysicalOffset: must be before endPhysicalOffset",
        ),
        ({"path": "/s", "toStoreTimestamp": "-1"}, 'toStoreTimestamp: "-1" is no whole number from 0 to'),
    ],
)
def test_a_wrong_option_names_itself_and_the_remedy(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_options(StoreOptions, given)


def test_kinds_of_values() -> None:
    assert [size(1, 1 << 40)(text) for text in ("7", "2k", "3MB", "1 g")] == [7, 2048, 3 << 20, 1 << 30]
    assert [seconds(0, 9999)(text) for text in ("250ms", "1.5s", "15m", "2h", "3")] == [0.25, 1.5, 900, 7200, 3]
    assert words(" a,b ,,a") == {"a", "b"}
    assert numbers("1, 2") == {1, 2}
    assert one_of("fail", "Skip")("SKIP") == "Skip"
    assert json_object('{"T": 1}') == {"T": 1}
    for parse, text in (
        (whole(0, 5), "6"),
        (whole(0, 5), "1e0"),
        (whole(0, 5), "\u0661"),
        (seconds(1, 2), "3s"),
        (boolean, "yes"),
        (words, ","),
        (json_object, "[1]"),
        (json_object, "{"),
    ):
        with pytest.raises(ValueError):
            parse(text)
