"""The table of consumers: who joins, leaves, falls silent, and who is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.managers.client_channel import CHANNEL_EXPIRED_MS
from rocketpy.broker.managers.notify import MEMBERS_PER_STEP
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import FakeChannel, SlowPathRig


class Members(SlowPathRig):
    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        self.a, self.b = FakeChannel(1), FakeChannel(2)

    def beat(self, client_id: str, channel: FakeChannel, topics: dict[str, str] | None = None, **more: object) -> None:
        trio.run(lambda: self.heartbeat(client_id, group="G", topics=topics or {"T": "*"}, channel=channel, **more))  # type: ignore[arg-type]  # passed on
        self.tell_members()

    def notified(self, channel: FakeChannel) -> int:
        self.tell_members()
        return sum(command.code == 40 for command in channel.pushed)


def test_a_new_member_is_told_to_all_including_itself(tmp_path: Path) -> None:
    """Holds: broker, clients and their subscriptions."""
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("b", rig.b)
    assert (rig.notified(rig.a), rig.notified(rig.b)) == (2, 1)
    command = rig.a.last
    assert command.is_oneway and command.ext_fields == {"consumerGroup": "G"}
    rig.beat("a", rig.a)
    assert (rig.notified(rig.a), rig.notified(rig.b)) == (2, 1), "an unchanged heartbeat is no news"


def test_a_changed_topic_is_told_but_a_newer_version_is_not(tmp_path: Path) -> None:
    """Holds: trap, differing subscriptions overwrite each other."""
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("a", rig.a, {"T": "TagA"}, sub_version=2)
    assert rig.notified(rig.a) == 1
    entry = rig.services.consumers.group("G")
    assert entry is not None and entry.subscriptions["T"].sub_string == "TagA"
    rig.beat("a", rig.a, {"T": "TagB"}, sub_version=1)
    assert entry.subscriptions["T"].sub_string == "TagA", "an older version replaces nothing"
    rig.beat("a", rig.a, {"U": "*"})
    assert rig.notified(rig.a) == 2 and set(entry.subscriptions) == {"U"}


def test_the_last_heartbeat_sets_the_model(tmp_path: Path) -> None:
    """Holds: client, contents of a heartbeat."""
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("a", rig.a, model="BROADCASTING")
    group, told = rig.fast_path.named("group_changed")[-1]
    assert group == "G" and told["is_online"] and told["is_broadcasting"]


def test_a_reconnected_client_has_one_entry_and_its_old_connection_changes_nothing(tmp_path: Path) -> None:
    """Holds: trap, the connection ends a registration, not the address."""
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("a", rig.b)
    entry = rig.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["a"] and list(entry.channels) == [2]
    before = rig.notified(rig.b)
    rig.broker.connection_closed(1)
    assert entry.client_ids == ["a"] and rig.notified(rig.b) == before


def test_a_closed_connection_is_told_to_the_rest(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("b", rig.b)
    rig.broker.connection_closed(1)
    assert rig.notified(rig.b) == 2
    rig.broker.connection_closed(2)
    assert rig.services.consumers.group("G") is None
    assert rig.fast_path.named("subscription_removed") == [("G", "T")]
    assert rig.fast_path.named("group_changed")[-1][1]["is_online"] is False


def test_unregister(tmp_path: Path) -> None:
    """Holds: answer, clients (34, 35, 46)."""
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.beat("b", rig.b)
    fields = {"clientID": "a", "consumerGroup": "G"}
    response = trio.run(lambda: rig.ask(35, fields, channel=rig.a))
    assert response.code == 0 and response.ext_fields == {}
    assert rig.notified(rig.b) == 2
    entry = rig.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["b"]


def test_silent_clients_are_swept_closed_and_told(tmp_path: Path) -> None:
    """Holds: trap, silent members are swept without a word."""
    rig = Members(tmp_path)
    rig.beat("a", rig.a)
    rig.clock.advance(CHANNEL_EXPIRED_MS)
    rig.beat("b", rig.b)
    trio.run(rig.broker._sweep_clients)
    assert not rig.a.is_closed, "120 s are allowed"
    rig.clock.advance(1)
    before = rig.notified(rig.b)
    trio.run(rig.broker._sweep_clients)
    assert rig.a.is_closed and not rig.b.is_closed
    assert rig.notified(rig.b) == before + 1


def test_a_large_group_is_told_in_steps_and_once_for_many_changes(tmp_path: Path) -> None:
    """Fault: A large group was told of its change in one step of the manager's loop."""
    rig = Members(tmp_path)
    channels = [FakeChannel(n) for n in range(1, 2 * MEMBERS_PER_STEP + 2)]
    for channel in channels:
        trio.run(lambda channel=channel: rig.heartbeat(f"c{channel.connection}", group="G", channel=channel))
    told = [sum(len(channel.pushed) for channel in channels) for _ in rig.broker.notifier.tell()]
    assert told == [MEMBERS_PER_STEP, 2 * MEMBERS_PER_STEP]
    assert all(rig.notified(channel) == 1 for channel in channels)


def test_members_are_told_by_a_duty_of_the_broker(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    (duty,) = (duty for duty in rig.broker.duties() if duty.name == "telling members of changes")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(duty.run)
            for client_id, channel in (("a", rig.a), ("b", rig.b)):
                await rig.heartbeat(client_id, group="G", topics={"T": "*"}, channel=channel)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert [command.code for command in rig.a.pushed] == [40, 40] and [command.code for command in rig.b.pushed] == [40]


class FailingChannel(FakeChannel):
    def push(self, command: RemotingCommand) -> None:
        raise OSError("no ring")


def test_a_push_that_fails_does_not_keep_other_groups_waiting(tmp_path: Path) -> None:
    """Fault: After a failed notification of group members, other changed groups were told only at the next change."""
    rig = Members(tmp_path)

    async def main() -> None:
        await rig.heartbeat("a", group="G", topics={"T": "*"}, channel=FailingChannel(1))
        await rig.heartbeat("b", group="H", topics={"T": "*"}, channel=rig.b)
        with pytest.raises(OSError, match="no ring"):
            await rig.broker.notifier.run()
        assert rig.b.pushed == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker.notifier.run)  # as the duty does it a moment later
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert [command.code for command in rig.b.pushed] == [40]


def test_notification_can_be_switched_off_for_the_broker_and_for_a_group(tmp_path: Path) -> None:
    rig = Members(tmp_path, notify_consumer_ids_changed_enable=False)
    rig.beat("a", rig.a)
    assert rig.notified(rig.a) == 0
    rig = Members(tmp_path)
    body = {"groupName": "G", "notifyConsumerIdsChangedEnable": False}
    assert trio.run(lambda: rig.ask(200, None, body)).code == 0
    rig.beat("a", rig.a)
    assert rig.notified(rig.a) == 0


def test_subscriptions_are_told_as_differences(tmp_path: Path) -> None:
    rig = Members(tmp_path)
    for _ in range(3):
        rig.beat("a", rig.a)
    assert len(rig.fast_path.named("subscription_changed")) == 1
    group, topic, told = rig.fast_path.named("subscription_changed")[0]
    assert (group, topic) == ("G", "T")
    assert told == {"expression_type": "TAG", "sub_string": "*", "sub_version": 1, "program": None, "place": None}
