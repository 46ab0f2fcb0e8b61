"""Subscriptions: their expressions, their form in heartbeats, and the comparison of tags in the client.

The broker filters by the hash of a tag; two tags may share one, so the client compares the text again.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rocketpy.errors import ClientError
from rocketpy.message.tags import expression_tags, string_hash
from rocketpy.remoting.bodies.client import SubscriptionData

from ..messages import ReceivedMessage

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


@attrs.frozen
class Sql92:
    """A subscription by SQL92 expression over message properties; needs `enablePropertyFilter` on the broker."""

    expression: str


def build_subscription(topic: str, expression: str | Sql92 | None, sub_version: int) -> SubscriptionData:
    """The subscription as heartbeats carry it.

    Args:
        expression: `*` or nothing for all, `TagA || TagB`, or Sql92.
        sub_version: ms; of two members that disagree the higher one wins on the broker.
    Raises:
        ClientError: an expression in which no tag is left.
    Source: RocketMQ 4.9 `FilterAPI#buildSubscriptionData`.
    """
    if isinstance(expression, Sql92):
        if not expression.expression.strip():
            raise ClientError(f"the SQL92 expression for topic {topic} is empty")
        return SubscriptionData(
            topic=topic, sub_string=expression.expression, sub_version=sub_version, expression_type=SQL92
        )
    if expression is None or expression.strip() in ("", ALL):
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=sub_version, expression_type=TAG)
    tags = expression_tags(expression)
    if not tags:
        raise ClientError(f"the expression {expression!r} for topic {topic} holds no tag")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=list(dict.fromkeys(tags)),
        code_set=list(dict.fromkeys(string_hash(tag) for tag in tags)),
        sub_version=sub_version,
        expression_type=TAG,
    )


def keep_subscribed(messages: Iterable[ReceivedMessage], subscription: SubscriptionData) -> list[ReceivedMessage]:
    """Messages whose tag is in the subscription, compared by text. A message without a tag matches no tag; the broker
    decides about SQL92."""
    if subscription.expression_type != TAG or not subscription.tags_set:
        return list(messages)
    wanted = frozenset(subscription.tags_set)
    return [message for message in messages if message.tags in wanted]
