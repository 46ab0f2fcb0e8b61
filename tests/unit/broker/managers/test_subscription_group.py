"""Groups: built in, from the file, and created on first use where that is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from rocketpy.errors import ConfigError
from tests.support.slow_path import SlowPathRig


def test_built_in_groups(tmp_path: Path) -> None:
    """Holds: broker, built-in topics and groups."""
    assert set(SlowPathRig(tmp_path).services.groups.groups) == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }


def test_find_creates_where_allowed(tmp_path: Path) -> None:
    """Holds: answer, lookup of subscription groups."""
    rig = SlowPathRig(tmp_path)
    created = rig.services.groups.find_or_create("G")
    assert created is not None and created.retry_max_times == 16
    assert rig.services.groups.find_or_create("") is None
    group, told = rig.fast_path.named("group_changed")[-1]
    assert group == "G" and told["is_online"] is False and told["consume_enable"] is True


def test_find_without_auto_creation_makes_system_groups_only(tmp_path: Path) -> None:
    """Holds: answer, lookup of subscription groups."""
    groups = SlowPathRig(tmp_path, auto_create_subscription_group=False).services.groups
    assert groups.find_or_create("G") is None
    assert groups.find_or_create("CID_RMQ_SYS_TRANS") is not None
    assert groups.find_or_create("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "[]",
        '{"subscriptionGroupTable":[1]}',
        '{"subscriptionGroupTable":{"X":1}}',
        '{"subscriptionGroupTable":{"X":{"perm":[],"brokerId":[]}}}',
        '{"dataVersion":[1]}',
    ],
)
def test_a_damaged_file_refuses_to_load(tmp_path: Path, document: str) -> None:
    """Fault: A member that is not of its type ended the start without the name of the file."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "subscriptionGroup.json").write_text(document)
    with pytest.raises(ConfigError, match=r"subscriptionGroup\.json"):
        SlowPathRig(tmp_path).services.groups.load()


def test_the_file_keeps_unknown_fields(tmp_path: Path) -> None:
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.parent.mkdir()
    table = {"G": {"groupName": "G", "retryQueueNums": 3, "groupRetryPolicy": {"type": "CUSTOMIZED"}}}
    path.write_text(json.dumps({"dataVersion": {"counter": 2, "timestamp": 5}, "subscriptionGroupTable": table}))
    groups = SlowPathRig(tmp_path).services.groups
    groups.load()
    loaded = groups.select("G")
    assert loaded is not None and loaded.retry_queue_nums == 3 and loaded.consume_enable
    groups.find_or_create("OTHER")
    trio.run(groups.file.save)
    written = json.loads(path.read_text())["subscriptionGroupTable"]
    assert written["G"]["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert "OTHER" in written


def test_delete_is_told(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.services.groups.find_or_create("G")
    assert rig.services.groups.delete("G") and not rig.services.groups.delete("G")
    assert rig.fast_path.named("group_removed") == ["G"]
