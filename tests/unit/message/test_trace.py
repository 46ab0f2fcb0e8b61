"""Trace records as Java writes and reads them."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.message.trace import (
    ContextCode,
    EndTransaction,
    MessageKind,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_records,
)

PUB = Pub(1000, "Region", "pg", "T", "ID", "A", "k1 k2", "10.0.0.1:10911", 5, 3, MessageKind.DELAY, "OFF", True)
BEFORE = SubBefore(2000, "Region", "cg", "REQ", "ID", 2, "k1")
AFTER = SubAfter("REQ", "ID", 7, False, "k1", ContextCode.FAILED, 3000, "cg")

END = EndTransaction(
    4000, "Region", "pg", "T", "ID", "A", "k1", "10.0.0.1:10911", MessageKind.TRANSACTION_COMMIT, "TX", "UNKNOW", True
)


def test_a_record_is_its_fields_between_separators() -> None:
    assert PUB.encode().split("\x01") == (
        ["Pub", "1000", "Region", "pg", "T", "ID", "A", "k1 k2", "10.0.0.1:10911", "5", "3", "3", "OFF", "true\x02"]
    )
    assert BEFORE.encode() == "SubBefore\x012000\x01Region\x01cg\x01REQ\x01ID\x012\x01k1\x02"
    assert AFTER.encode() == "SubAfter\x01REQ\x01ID\x017\x01false\x01k1\x014\x013000\x01cg\x02"
    assert END.encode().split("\x01")[:8] == ["EndTransaction", "4000", "Region", "pg", "T", "ID", "A", "k1"]
    assert END.encode().split("\x01")[8:] == ["10.0.0.1:10911", "2", "TX", "UNKNOW", "true\x02"]


def test_missing_text_is_the_word_null_and_separators_within_text_are_dropped() -> None:
    """An empty last field breaks Java's reader, and a separator in a key would tear the record."""
    assert SubBefore(1, "R", "g", "Q", "I", 0, "").encode().endswith("\x01null\x02")
    torn = SubBefore(1, "R", "g", "Q", "I", 0, "a\x01b\x02c")
    (read,) = decode_records(torn.encode())
    assert isinstance(read, SubBefore) and read.keys == "abc"


@pytest.mark.parametrize("record", [PUB, BEFORE, AFTER, END])
def test_what_is_written_is_read_again(record: TraceRecord) -> None:
    assert decode_records(record.encode()) == [record]


def test_a_body_holds_records_of_many_messages() -> None:
    assert decode_records(PUB.encode() + BEFORE.encode() + AFTER.encode()) == [PUB, BEFORE, AFTER]


def test_the_host_of_the_client_may_follow() -> None:
    """The Go client writes it."""
    (read,) = decode_records(PUB.encode().removesuffix("\x02") + "\x0110.0.0.21\x02")
    assert isinstance(read, Pub) and read.client_host == "10.0.0.21"
    assert decode_records(read.encode()) == [read]


def test_records_of_the_cloud_end_with_the_context_code() -> None:
    assert decode_records("SubAfter\x01REQ\x01ID\x017\x01true\x01k1\x010\x02") == [
        SubAfter("REQ", "ID", 7, True, "k1", 0)
    ]


@pytest.mark.parametrize(
    "text", ["", "\x02", "Pub\x021", "Pub\x01too\x01few\x02", "EndTransaction\x011\x02", "\x01" * 40]
)
def test_other_records_and_torn_ones_are_passed_over(text: str) -> None:
    assert decode_records(text) == []
    assert decode_records(text + "\x02" + AFTER.encode()) == [AFTER]


def test_numbers_that_are_none_count_as_0() -> None:
    (read,) = decode_records("SubAfter\x01R\x01I\x01x\x01true\x01k\x01y\x01z\x01g\x02")
    assert read == SubAfter("R", "I", 0, True, "k", 0, 0, "g")


def test_numbers_have_64_bits() -> None:
    """As the Spark job reads them."""
    (read,) = decode_records("SubBefore\x015000000000\x01R\x01g\x01Q\x01I\x016000000000\x01k\x02")
    assert read == SubBefore(5_000_000_000, "R", "g", "Q", "I", 6_000_000_000, "k")


def test_fields_after_the_last_are_passed_over() -> None:
    assert decode_records(PUB.encode()[:-1] + "\x01host\x01later\x02") == [attrs.evolve(PUB, client_host="host")]
