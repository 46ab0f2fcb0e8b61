"""Heartbeats, and the check of a subscription."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.support.slow_path import SlowPathRig


def test_a_heartbeat_makes_group_and_retry_topic_and_both_are_on_the_disk(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    response = trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"}, producer="P"))
    assert response.code == 0 and response.version == 409
    retry = rig.services.topics.select("%RETRY%G")
    assert retry is not None and (retry.write_queue_nums, retry.perm) == (1, 6)
    assert '"%RETRY%G"' in (tmp_path / "config" / "topics.json").read_text()
    assert '"G"' in (tmp_path / "config" / "subscriptionGroup.json").read_text()
    assert rig.services.producers.find_channel("a") is rig.channel


def test_a_heartbeat_of_a_group_that_may_not_be_created_is_entered_all_the_same(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, auto_create_subscription_group=False)
    assert trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"})).code == 0
    assert rig.services.topics.select("%RETRY%G") is None
    assert rig.services.consumers.group("G") is not None


def test_a_group_name_too_long_for_a_record_gets_no_retry_topic(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    group = "g" * 121
    assert trio.run(lambda: rig.heartbeat("a", group=group, topics={"T": "*"})).code == 0
    assert rig.services.topics.select("%RETRY%" + group) is None


@pytest.mark.parametrize("body", [None, b"{", b"[]"])
@pytest.mark.parametrize("code", [34, 46])
def test_a_body_that_is_none_is_refused(tmp_path: Path, code: int, body: bytes | None) -> None:
    assert trio.run(lambda: SlowPathRig(tmp_path).ask(code, None, body)).code == 1


@pytest.mark.parametrize(
    ("expression_type", "code", "remark"),
    [
        (None, 0, None),
        ("TAG", 0, None),
        ("SQL92", 1, "The broker does not support consumer to filter message by SQL92"),
    ],
)
def test_check_client_config(tmp_path: Path, expression_type: str | None, code: int, remark: str | None) -> None:
    rig = SlowPathRig(tmp_path)
    body = {"clientId": "a", "group": "G", "subscriptionData": {"topic": "T", "expressionType": expression_type}}
    response = trio.run(lambda: rig.ask(46, None, body))
    assert (response.code, response.remark) == (code, remark)


@pytest.mark.parametrize(
    ("kind", "text", "code", "remark"),
    [
        ("SQL92", "a > 1", 0, None),
        ("SQL92", "a > 1 b", 23, "character 7: 'b' does not fit"),
        ("CLASS", "x", 1, "The broker does not support consumer to filter message by CLASS"),
    ],
)
def test_check_client_config_with_sql(tmp_path: Path, kind: str, text: str, code: int, remark: str | None) -> None:
    rig = SlowPathRig(tmp_path, enable_property_filter=True)
    data = {"topic": "T", "expressionType": kind, "subString": text}
    response = trio.run(lambda: rig.ask(46, None, {"clientId": "a", "group": "G", "subscriptionData": data}))
    assert response.code == code and (response.remark or "").startswith(remark or "")
