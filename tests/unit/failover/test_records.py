"""Values of etcd: what is written is read back, and nothing else is taken."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from rocketpy.failover.records import (
    GroupConfig,
    GroupState,
    MasterRecord,
    MemberRecord,
    RecordInvalid,
    SwitchRequest,
    differences,
    from_json,
    to_json,
)

RECORDS: list[Any] = [
    GroupConfig(format=1, mode="sync", file_size=1 << 30, members=("a", "b")),
    MemberRecord(address="h:1", ha_address="h:2", broker_id=1, incarnation="i", epoch=-1, end=0, lease=7),
    MasterRecord(member="a", epoch=3, lease=(1 << 63) - 1),
    GroupState(epoch=3, master="a", in_sync={"a": "i", "b": "k"}),
    SwitchRequest(from_epoch=3, to="b", until_ms=1),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip(record: Any) -> None:
    assert from_json(type(record), to_json(record)) == record


def test_a_later_version_may_have_more_fields() -> None:
    text = b'{"member":"a","epoch":3,"lease":4,"mood":"good"}'
    assert from_json(MasterRecord, text) == MasterRecord(member="a", epoch=3, lease=4)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize(
    "strange", [None, -2, 1.5, True, 1 << 64, "x" * 300, ["a", "a"], [[]], {"a": 1}, {}, []], ids=repr
)
def test_strange_fields_are_refused_and_named(record: Any, strange: Any) -> None:
    """Each field in turn; a value that fits another kind of field must not fit this one by accident."""
    for field in attrs.fields(type(record)):
        value = {**json.loads(to_json(record)), field.name: strange}
        if field.name == "in_sync" and strange == {}:
            continue  # an empty set is a set
        with pytest.raises(RecordInvalid, match=type(record).__name__):
            from_json(type(record), json.dumps(value).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"3", b"\xff", b"{", b"[" * 100_000, b'{"member":"a"}', b" " * 70_000])
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(RecordInvalid):
        from_json(MasterRecord, value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"mode": "async"}, "brokerRole is SYNC_MASTER here and ASYNC_MASTER in the group"),
        ({"file_size": 2048}, "mappedFileSizeCommitLog is 1024 here and 2048 in the group"),
        ({"format": 2}, "the format of the keys is 1 here and 2 in the group"),
        ({"members": ("b", "a")}, "haMembers is a,b here and b,a in the group"),
    ],
)
def test_settings_that_differ_are_named(change: dict[str, Any], text: str) -> None:
    own = GroupConfig(format=1, mode="sync", file_size=1024, members=("a", "b"))
    assert differences(own, attrs.evolve(own, **change)) == text
