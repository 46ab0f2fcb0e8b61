"""The table of consumers: who joins, leaves, falls silent, and who is told."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.broker.managers.client_channel import CHANNEL_EXPIRED_MS
from tests.support.slow_path import FakeChannel, SlowPathRig


def notified(channel: FakeChannel) -> int:
    return sum(command.code == 40 for command in channel.pushed)


class Members(SlowPathRig):
    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        self.a, self.b = FakeChannel(1), FakeChannel(2)

    def beat(self, client_id: str, channel: FakeChannel, topics: dict[str, str] | None = None, **more: object) -> None:
        trio.run(lambda: self.heartbeat(client_id, group="G", topics=topics or {"T": "*"}, channel=channel, **more))  # type: ignore[arg-type]  # passed on


def test_a_new_member_is_told_to_all_including_itself(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("b", rig.b)
    assert (notified(rig.a), notified(rig.b)) == (2, 1)
    command = rig.a.last
    assert command.is_oneway and command.ext_fields == {"consumerGroup": "G"}
    rig.beat("a", rig.a)
    assert (notified(rig.a), notified(rig.b)) == (2, 1), "an unchanged heartbeat is no news"


def test_a_changed_topic_is_told_but_a_newer_version_is_not(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("a", rig.a, {"T": "TagA"}, sub_version=2)
    assert notified(rig.a) == 1
    entry = rig.services.consumers.group("G")
    assert entry is not None and entry.subscriptions["T"].sub_string == "TagA"
    rig.beat("a", rig.a, {"T": "TagB"}, sub_version=1)
    assert entry.subscriptions["T"].sub_string == "TagA", "an older version replaces nothing"
    rig.beat("a", rig.a, {"U": "*"})
    assert notified(rig.a) == 2 and set(entry.subscriptions) == {"U"}


def test_the_last_heartbeat_sets_the_model(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("a", rig.a, model="BROADCASTING")
    group, told = rig.fast_path.named("group_changed")[-1]
    assert group == "G" and told["is_online"] and told["is_broadcasting"]


def test_a_reconnected_client_has_one_entry_and_its_old_connection_changes_nothing(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("a", rig.b)
    entry = rig.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["a"] and list(entry.channels) == [2]
    before = notified(rig.b)
    rig.broker.connection_closed(1)
    assert entry.client_ids == ["a"] and notified(rig.b) == before


def test_a_closed_connection_is_told_to_the_rest(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("b", rig.b)
    rig.broker.connection_closed(1)
    assert notified(rig.b) == 2
    rig.broker.connection_closed(2)
    assert rig.services.consumers.group("G") is None
    assert rig.fast_path.named("subscription_removed") == [("G", "T")]
    assert rig.fast_path.named("group_changed")[-1][1]["is_online"] is False


def test_unregister(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("b", rig.b)
    fields = {"clientID": "a", "consumerGroup": "G"}
    response = trio.run(lambda: rig.ask(35, fields, channel=rig.a))
    assert response.code == 0 and response.ext_fields == {}
    assert notified(rig.b) == 2
    entry = rig.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["b"]


def test_silent_clients_are_swept_closed_and_told(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.clock.advance(CHANNEL_EXPIRED_MS)
    rig.beat("b", rig.b)
    trio.run(rig.broker._sweep_clients)
    assert not rig.a.is_closed, "120 s are allowed"
    rig.clock.advance(1)
    before = notified(rig.b)
    trio.run(rig.broker._sweep_clients)
    assert rig.a.is_closed and not rig.b.is_closed
    assert notified(rig.b) == before + 1


def test_notification_can_be_switched_off_for_the_broker_and_for_a_group(tmp_path: Path) -> None:
    rig = Members(tmp_path, notify_consumer_ids_changed_enable=False)
    rig.beat("a", rig.a)
    assert notified(rig.a) == 0
    rig = Members(tmp_path)
    body = {"groupName": "G", "notifyConsumerIdsChangedEnable": False}
    assert trio.run(lambda: rig.ask(200, None, body)).code == 0
    rig.beat("a", rig.a)
    assert notified(rig.a) == 0


def test_subscriptions_are_told_as_differences(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    for _ in range(3):
        rig.beat("a", rig.a)
    assert len(rig.fast_path.named("subscription_changed")) == 1
    group, topic, told = rig.fast_path.named("subscription_changed")[0]
    assert (group, topic, told) == ("G", "T", {"expression_type": "TAG", "sub_string": "*", "sub_version": 1})
