"""Comparison of the subscriptions of a group's members.

A group has one table of subscriptions, which each heartbeat replaces. Members that disagree overwrite one another's:
pulls are refused (24, 25) or filtered by the tags of another member, and messages are missed. The reference does the
same and does not show it.

Members are compared by a hash of their subscriptions, without versions. Texts are kept of the first few differing
subscriptions of a group, cut to a length, so that memory is bounded by a few bytes for each member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from rocketpy.message.names import is_retry_topic
from rocketpy.message.tags import expression_tags
from rocketpy.remoting.bodies.client import ConsumeType, MessageModel, SubscriptionData

TEXT_MAX = 300  # characters of the text of a view
READ_MAX = 1000  # characters of a tag expression whose tags are compared in any order
TEXTS_MAX = 5  # differing subscriptions of one group that are shown


@attrs.define
class View:
    """The equal subscriptions of some members of a group."""

    connection: int  # of one of them
    text: str  # for people; "" beyond TEXTS_MAX
    members: int = 0


@attrs.define(eq=False)
class SubscriptionViews:
    """The views of one group's members. Members restored from the previous manager are compared again with their next
    heartbeat."""

    _by_member: dict[int, int] = attrs.field(init=False, factory=dict)  # connection -> hash of its view
    _views: dict[int, View] = attrs.field(init=False, factory=dict)

    def heard(
        self,
        connection: int,
        consume_type: ConsumeType,
        model: MessageModel,
        subscriptions: Iterable[SubscriptionData],
    ) -> None:
        """A member has sent a heartbeat."""
        own = [each for each in subscriptions if not is_retry_topic(each.topic)]
        key = hash((consume_type, model, frozenset(map(_meaning, own))))
        if self._by_member.get(connection) == key:
            return
        self.left(connection)
        view = self._views.get(key)
        if view is None:
            text = _text(consume_type, model, own) if len(self._views) < TEXTS_MAX else ""
            view = self._views[key] = View(connection, text)
        view.members += 1
        self._by_member[connection] = key

    def left(self, connection: int) -> None:
        """A member has left. Does nothing for other connections."""
        key = self._by_member.pop(connection, None)
        if key is None:
            return
        view = self._views[key]
        view.members -= 1
        if view.members == 0:
            del self._views[key]
        elif view.connection == connection:
            view.connection = next(other for other, its in self._by_member.items() if its == key)

    @property
    def count(self) -> int:
        """The number of differing subscriptions; with 1 or 0 the members agree."""
        return len(self._views)

    @property
    def shown(self) -> list[View]:
        """The differing subscriptions with a text."""
        return [view for view in self._views.values() if view.text]

    def describe(self, client_id: Callable[[int], str]) -> str:
        """Describe the views for the log; `client_id` names the member of a connection."""
        said = [f"{view.members} like {client_id(view.connection)}: {view.text}" for view in self.shown]
        more = self.count - len(said)
        return "; ".join(said) + (f"; and {more} more" if more else "")


def _meaning(subscription: SubscriptionData) -> tuple[object, ...]:
    """Return the messages that the subscription selects, in a form that is equal for equal selections; a long text as
    it is."""
    kind = subscription.expression_type or "TAG"
    text = subscription.sub_string.strip()
    if len(text) > READ_MAX:
        return subscription.topic, kind, text
    tags = expression_tags(text) if kind == "TAG" else None
    return subscription.topic, kind, text if kind != "TAG" else "*" if tags is None else frozenset(tags)


def _text(consume_type: ConsumeType, model: MessageModel, subscriptions: list[SubscriptionData]) -> str:
    pieces = [f"{model.value}"]
    size = 0
    for each in sorted(subscriptions, key=lambda each: each.topic):
        pieces.append(f"{each.topic} {each.sub_string[:TEXT_MAX]!r}")
        size += len(pieces[-1])
        if size > TEXT_MAX:
            break
    text = f"{consume_type.value}, " + ", ".join(pieces)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
