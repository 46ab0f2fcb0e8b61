"""Values of etcd: what is written is read back, and nothing else is taken."""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pytest

from rocketpy.failover.rules.records import (
    GroupConfig,
    GroupState,
    MasterRecord,
    MemberRecord,
    RecordInvalid,
    SwitchRequest,
    from_json,
    to_json,
)
from rocketpy.failover.rules.settings import Settings, differences, overruled
from tests.support.cases import cases

RECORDS: list[Any] = [
    GroupConfig(format=1, mode="sync", file_size=1 << 30, members=("a", "b")),
    MemberRecord(address="h:1", ha_address="h:2", broker_id=1, incarnation="i", epoch=-1, end=0, lease=7),
    MasterRecord(member="a", epoch=3, lease=(1 << 63) - 1),
    GroupState(epoch=3, master="a", in_sync={"a": "i", "b": "k"}),
    SwitchRequest(from_epoch=3, to="b", until_ms=1),
]
STRANGE: list[Any] = [None, -2, 1.5, True, 1 << 64, "x" * 300, ["a", "a"], [[]], {"a": 1}, {}, []]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip(record: Any) -> None:
    assert from_json(type(record), to_json(record)) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_later_version_may_have_more_fields(record: Any) -> None:
    fields = json.loads(to_json(record)) | {"mood": "good", "more": {"a": [1]}}
    assert from_json(type(record), json.dumps(fields).encode()) == record


@cases("record, strange", itertools.product(RECORDS, STRANGE))
def test_strange_fields_are_refused_and_named(record: Any, strange: Any) -> None:
    """Each field in turn; a value that fits another kind of field must not fit this one by accident."""
    for field in attrs.fields(type(record)):
        value = {**json.loads(to_json(record)), field.name: strange}
        if field.name == "in_sync" and strange == {}:
            continue  # an empty set is a set
        with pytest.raises(RecordInvalid, match=type(record).__name__):
            from_json(type(record), json.dumps(value).encode())


@cases("value", [b"", b"[]", b"3", b"\xff", b"{", b"[" * 100_000, b'{"member":"a"}', b" " * 70_000])
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(RecordInvalid):
        from_json(MasterRecord, value)


OWN = GroupConfig(format=1, mode="sync", file_size=1024, members=("a", "b"), in_sync_min=1, flush="ASYNC_FLUSH")


@cases(
    "change, text",
    [
        ({}, ""),
        ({"mode": "async"}, "brokerRole is SYNC_MASTER here and ASYNC_MASTER in the group"),
        ({"file_size": 2048}, "mappedFileSizeCommitLog is 1024 here and 2048 in the group"),
        ({"format": 2}, "the format of the keys is 1 here and 2 in the group"),
        ({"members": ("b", "c")}, "haMember is a here, and the group has b,c: mqadmin haConfigure adds it"),
        ({"members": ("b", "a")}, ""),
        ({"in_sync_min": 2}, ""),
        ({"flush": "ASYNC_FLUSH"}, ""),
        ({"flush": "SYNC_FLUSH"}, "flushDiskType is ASYNC_FLUSH here and SYNC_FLUSH in the group"),
        ({"flush": "", "in_sync_min": 0}, ""),
    ],
)
def test_settings_that_differ_are_named(change: dict[str, Any], text: str) -> None:
    assert differences(OWN, attrs.evolve(OWN, **change), "a") == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"members": ("a", "b", "c")}, "haMembers is a,b here and a,b,c in the group"),
        ({"in_sync_min": 2}, "minInSyncReplicas is 1 here and 2 in the group"),
        ({"in_sync_min": 0, "flush": ""}, ""),  # an earlier version has written it
    ],
)
def test_what_the_group_agrees_on_overrules_the_file(change: dict[str, Any], text: str) -> None:
    """Fault: A slave with another flush mode or a master with another minInSyncReplicas silently weakened its group."""
    group = attrs.evolve(OWN, **change)
    assert overruled(OWN, group) == text
    settings = Settings(member="a", config=OWN, in_sync_min=1).in_group(group)
    assert settings.config.members == group.members and settings.in_sync_min == max(1, group.in_sync_min)


def test_an_earlier_version_has_not_said_everything() -> None:
    text = b'{"file_size":1024,"format":1,"members":["a","b"],"mode":"sync"}'
    found = from_json(GroupConfig, text)
    assert (found.in_sync_min, found.flush) == (0, "") and not differences(OWN, found, "a")
