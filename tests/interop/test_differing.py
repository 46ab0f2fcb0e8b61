"""Members of one group that subscribe differently: the broker says so, and official tools read its answers."""

from __future__ import annotations

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, wait_until
from tests.interop.mqadmin import MqAdmin
from tests.interop.programs import Launcher


def test_differing_subscriptions_are_reported_and_their_end(
    launch: Launcher, broker: AnyBroker, target: str, make_topic: TopicMaker, names: NameMaker, mqadmin: MqAdmin
) -> None:
    """Holds: trap, differing subscriptions overwrite each other."""
    topic, group = make_topic("differing", 2), names("differing_group")
    members = [
        launch.start(name, "push", topic=topic, group=group, expression=tag, instance=f"member-{name}")
        for name, tag in (("java-4.9.8", "TagA"), ("go", "TagB"))
    ]
    for member in members:
        member.wait_ready()
    shown = mqadmin(broker, "consumerConnection", "-g", group)
    assert topic in shown and "CLUSTERING" in shown
    if target == "rocketpy":
        wait_until(lambda: f"group {group}: its members subscribe differently" in broker.text(), "the warning")
        members.pop().leave()
        wait_until(lambda: f"group {group}: all members subscribe alike again" in broker.text(), "its end")
    for member in members:
        member.leave()
