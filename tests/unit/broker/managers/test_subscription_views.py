"""Members of a group that subscribe differently: detected with a heartbeat, reported, bounded, and ended."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from rocketpy.broker.managers.subscription_views import TEXT_MAX, TEXTS_MAX, SubscriptionViews
from rocketpy.remoting.bodies.client import ConsumeType, MessageModel, SubscriptionData
from tests.support.slow_path import FakeChannel, SlowPathRig, body_of


def heard(
    views: SubscriptionViews,
    connection: int,
    topics: dict[str, str],
    *,
    model: MessageModel = MessageModel.CLUSTERING,
    kind: str = "TAG",
    version: int = 1,
) -> int:
    subscriptions = [
        SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)
        for topic, text in topics.items()
    ]
    views.heard(connection, ConsumeType.CONSUME_PASSIVELY, model, subscriptions)
    return views.count


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"T": "a || b"}, {"T": "b||a"}),
        ({"T": "*"}, {"T": ""}),
        ({"T": "a", "U": "*"}, {"U": "*", "T": "a"}),
        ({"T": "a", "%RETRY%G": "*"}, {"T": "a"}),
    ],
)
def test_what_means_the_same_is_the_same(first: dict[str, str], second: dict[str, str]) -> None:
    views = SubscriptionViews()
    assert heard(views, 1, first) == heard(views, 2, second, version=2) == 1


def test_what_means_something_else_differs() -> None:
    views = SubscriptionViews()
    assert heard(views, 1, {"T": "a"}) == 1
    assert heard(views, 2, {"T": "b"}) == 2
    assert heard(views, 3, {"T": "a", "U": "*"}) == 3
    assert heard(views, 4, {"T": "a"}, model=MessageModel.BROADCASTING) == 4
    assert heard(views, 5, {"T": "a"}, kind="SQL92") == 5
    assert heard(views, 6, {"T": "a"}) == 5
    assert [view.members for view in views.shown] == [2, 1, 1, 1, 1]
    assert views.describe("c{}".format).startswith("2 like c1: CONSUME_PASSIVELY, CLUSTERING, T 'a'; 1 like c2: ")


def test_a_member_that_changes_or_leaves_ends_its_view() -> None:
    views = SubscriptionViews()
    heard(views, 1, {"T": "a"})
    heard(views, 2, {"T": "b"})
    assert heard(views, 2, {"T": "a"}) == 1
    heard(views, 3, {"T": "b"})
    views.left(3)
    views.left(99)
    assert views.count == 1
    views.left(1)
    views.left(2)
    assert (views.count, views._by_member) == (0, {})


def test_texts_are_bounded_in_number_and_length() -> None:
    views = SubscriptionViews()
    for connection in range(1000):
        heard(views, connection, {f"T{n}": f"tag-{connection}" * 100 for n in range(50)})
    assert views.count == 1000 and len(views.shown) == TEXTS_MAX
    assert max(len(view.text) for view in views.shown) <= TEXT_MAX
    assert views.describe(str).endswith(f"; and {1000 - TEXTS_MAX} more")


class Group:
    def __init__(self, root: Path) -> None:
        self.rig = SlowPathRig(root)

    def beat(self, number: int, tags: str, group: str = "G") -> None:
        channel = FakeChannel(number)
        trio.run(lambda: self.rig.heartbeat(f"c{number}", group=group, topics={"T": tags}, channel=channel))

    @property
    def differing(self) -> list[str]:
        return [entry.group for entry in self.rig.services.consumers.differing]


def test_a_rolling_change_is_reported_when_it_begins_and_when_it_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketpy.broker.managers.consumer")
    group = Group(tmp_path)
    for number in (1, 2, 3):
        group.beat(number, "a")
    assert group.differing == [] and not caplog.records
    group.beat(1, "a || b")
    assert group.differing == ["G"]
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelname == "WARNING" and text.startswith("group G: its members subscribe differently")
    assert "2 like c2: CONSUME_PASSIVELY, CLUSTERING, T 'a'" in text
    assert "1 like c1: CONSUME_PASSIVELY, CLUSTERING, T 'a || b'" in text
    group.beat(2, "a || b")
    group.beat(1, "a || b")
    assert group.differing == ["G"] and len(caplog.records) == 1, "told once"
    group.rig.broker.connection_closed(3)
    assert group.differing == []
    assert caplog.records[-1].getMessage() == "group G: all members subscribe alike again"


def test_lines_about_one_group_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A client that changed its subscription with each heartbeat wrote a line into the log each time."""
    caplog.set_level(logging.INFO, "rocketpy.broker.managers.consumer")
    group = Group(tmp_path)
    group.beat(1, "a")
    for _ in range(10):
        group.beat(2, "b")
        group.beat(2, "a")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    group.rig.clock.advance(61_000)
    group.beat(2, "b")
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2 and "(and 9 more since" in warnings[-1].getMessage()


def test_a_group_that_goes_is_no_longer_listed(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.beat(1, "a")
    group.beat(2, "b")
    for connection in (1, 2):
        group.rig.broker.connection_closed(connection)
    assert group.differing == []


def test_consumer_connection_shows_who_differs(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.beat(1, "a")
    ask = {"consumerGroup": "G"}
    assert "differingSubscriptions" not in body_of(trio.run(lambda: group.rig.ask(203, ask)))
    group.beat(2, "b")
    assert body_of(trio.run(lambda: group.rig.ask(203, ask)))["differingSubscriptions"] == [
        {"clientId": "c1", "members": 1, "text": "CONSUME_PASSIVELY, CLUSTERING, T 'a'"},
        {"clientId": "c2", "members": 1, "text": "CONSUME_PASSIVELY, CLUSTERING, T 'b'"},
    ]
