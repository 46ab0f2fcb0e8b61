"""Pulls that the fast path does not serve: their group or topic is missing, they are not allowed, C cannot evaluate
their filter, or their queue ends before their offset.

The checks are in the reference's order. A pull that passes all of them lacked only its group, which the checks have
created; it goes back to the fast path.

A consumer whose offset is beyond its queue has it from a log that had more: of another master, or before a power
failure. In the reference it goes on at the end of the queue, and passes over the messages that have come since then.
Here it goes on where its group has committed, if that is in the queue (docs/adr/0131).

Source: RocketMQ 4.9 `PullMessageProcessor`.
"""

from __future__ import annotations

import logging
from collections import Counter

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import FilterInvalid, RocketError
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.sys_flag import PermName
from rocketpy.message.tags import EXPRESSION_TAGS_MAX, has_too_many_tags
from rocketpy.remoting.answers import OVERLOAD, not_supported_remark
from rocketpy.remoting.bodies.client import EXPRESSION_TYPE_SQL92, MessageModel
from rocketpy.remoting.fast_path import PullRequest
from rocketpy.remoting.headers.pull import PullMessageResponseHeader, PullSysFlag

from .. import replies
from ..managers.consumer_filter import is_tag_type
from ..replies import push_reply
from ..services import BrokerServices

logger = logging.getLogger(__name__)

PARSE_FAILED = "parse the consumer's subscription failed"
FILTER_MISSING = "The broker's consumer filter data is not exist!Your expression may be wrong!"
BEYOND = "OFFSET_OVERFLOW_BADLY"
FILTER_OLD = "the consumer's consumer filter data not latest"
COMPILING_MAX = 64  # pulls that wait until their expression is compiled; of a connection as many as are free


@attrs.frozen
class PullRefusal:
    """The code and the remark of the reply to a pull that is refused."""

    code: int
    remark: str


class SlowPull:
    """Admits pulls that the pull worker diverts to the manager, and hands them back. One per broker."""

    def __init__(self, services: BrokerServices) -> None:
        self._settings = services.settings
        self._topics = services.topics
        self._groups = services.groups
        self._consumers = services.consumers
        self._offsets = services.offsets
        self._store = services.store
        self._filters = services.filters
        self._compiler = services.filters.compiler
        self._fast_path = services.fast_path
        self._nursery: trio.Nursery | None = None
        self._compiling: Counter[int] = Counter()  # by connection
        self._moved = LogLimit()

    def open(self, nursery: trio.Nursery) -> None:
        """Set the nursery for pulls whose SQL92 expression has to be compiled. Called before the first `submit`."""
        self._nursery = nursery

    def submit(self, request: PullRequest) -> None:
        refusal = self.admit(request)
        if refusal is not None:
            push_reply(request, refusal.code, refusal.remark)
        elif self._move_back(request):
            return
        elif not brings_sql(request):
            self._fast_path.repull(request)
        elif self._compiler.is_known(request.subscription):
            self._repull(request)
        elif self._nursery is None or self._is_full(request.channel.connection):
            push_reply(request, ResponseCode.SYSTEM_BUSY, OVERLOAD)
        else:
            self._compiling[request.channel.connection] += 1
            self._nursery.start_soon(self._compile, request)

    def _move_back(self, request: PullRequest) -> bool:
        """Answer a pull beyond its queue with the offset that its group has committed. Returns False if it is not
        beyond, or if there is no such offset: a group that consumes by broadcast has none. A slave cannot tell: its
        master may have the message."""
        queue, store = (request.topic, request.queue_id), self._store
        low, high, end = store.min_offset(*queue), store.max_offset(*queue), store.log_end_of(*queue)
        committed = self._offsets.query(request.consumer_group, *queue)
        entry = self._consumers.group(request.consumer_group)
        broadcasts = entry is not None and entry.message_model is MessageModel.BROADCASTING
        if self._settings.is_slave or end is None:
            return False
        if request.queue_offset <= max(high, end) or broadcasts or not 0 <= committed <= high:
            return False
        answer = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=max(low, committed), min_offset=low, max_offset=high
        )
        push_reply(request, ResponseCode.PULL_OFFSET_MOVED, BEYOND, answer.to_ext_fields())
        if told := self._moved.take():
            text = "group %s: offset %d of topic %s, queue %d, is beyond its end %d: continuing at %d, as committed%s"
            logger.warning(text, request.consumer_group, request.queue_offset, *queue, high, committed, and_more(told))
        return True

    def _is_full(self, connection: int) -> bool:
        return self._compiling[connection] >= COMPILING_MAX - self._compiling.total()

    async def _compile(self, request: PullRequest) -> None:
        try:
            await self._compiler.prepare(request.subscription)
            self._repull(request)
        finally:
            self._compiling -= Counter((request.channel.connection,))  # drops a connection that has none left

    def _repull(self, request: PullRequest) -> None:
        """Hand the pull back with the program of its expression."""
        try:
            program = self._compiler.program(request.subscription)
        except FilterInvalid as exc:
            push_reply(request, exc.response_code, f"{PARSE_FAILED}: {exc}")
        else:
            self._fast_path.repull(request, program)

    def admit(self, request: PullRequest) -> PullRefusal | None:
        """Check a pull; create its group if the configuration allows it. Returns the refusal, or None."""
        try:
            return self._admit(request)
        except RocketError as exc:  # a group that cannot be created
            return PullRefusal(exc.response_code, str(exc))

    def _admit(self, request: PullRequest) -> PullRefusal | None:
        if request.channel.is_vip:  # the port listenPort - 2 serves everything but pulls
            return PullRefusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported_remark(request.code))
        return self._refuse_group(request) or self._refuse_topic(request) or self._refuse_subscription(request)

    def _refuse_group(self, request: PullRequest) -> PullRefusal | None:
        config = self._settings.broker
        if not config.broker_permission & PermName.READ:
            remark = f"the broker[{config.broker_ip1}] pulling message is forbidden"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.find_or_create(request.consumer_group)
        if group is None:
            remark = f"subscription group [{request.consumer_group}] does not exist, {replies.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {request.consumer_group}"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark)
        return None

    def _refuse_topic(self, request: PullRequest) -> PullRefusal | None:
        topic = self._topics.select(request.topic)
        if topic is None:
            remark = f"topic[{request.topic}] not exist, apply first please! {replies.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PermName.READ:
            return PullRefusal(ResponseCode.NO_PERMISSION, f"the topic[{request.topic}] pulling message is forbidden")
        if not 0 <= request.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{request.channel.peer}]"
            )
            return PullRefusal(ResponseCode.SYSTEM_ERROR, remark)
        return None

    def _refuse_subscription(self, request: PullRequest) -> PullRefusal | None:
        if request.sys_flag & PullSysFlag.SUBSCRIPTION:
            return _refuse_tags(request) or self._refuse_filter(request.expression_type)
        entry = self._consumers.group(request.consumer_group)
        if entry is None:
            remark = f"the consumer's group info not exist{replies.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        group = self._groups.select(request.consumer_group)
        broadcasts = entry.message_model is MessageModel.BROADCASTING
        if broadcasts and group is not None and not group.consume_broadcast_enable:
            remark = f"the consumer group[{request.consumer_group}] can not consume by broadcast way"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark)
        subscription = entry.subscriptions.get(request.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{replies.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < request.sub_version:
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if not is_tag_type(subscription.expression_type) and self._filters.is_enabled:
            data = self._filters.find(request.consumer_group, request.topic)
            if data is None:
                return PullRefusal(ResponseCode.FILTER_DATA_NOT_EXIST, FILTER_MISSING)
            if data.client_version < request.sub_version:
                return PullRefusal(ResponseCode.FILTER_DATA_NOT_LATEST, FILTER_OLD)
        return self._refuse_filter(subscription.expression_type)

    def _refuse_filter(self, expression_type: str | None) -> PullRefusal | None:
        """A filter that is not supported is refused, never ignored."""
        if is_tag_type(expression_type) or (expression_type == EXPRESSION_TYPE_SQL92 and self._filters.is_enabled):
            return None
        return PullRefusal(ResponseCode.SYSTEM_ERROR, replies.unsupported_filter(expression_type or ""))


def _refuse_tags(request: PullRequest) -> PullRefusal | None:
    """Check the tag expression that the pull brings. Those of groups are checked in their heartbeats."""
    if not is_tag_type(request.expression_type):
        return None
    if has_too_many_tags(request.subscription):
        remark = f"{PARSE_FAILED}: more than {EXPRESSION_TAGS_MAX} tags"
        return PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
    if not is_tag_expression(request.subscription):
        return PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
    return None


def brings_sql(request: PullRequest) -> bool:
    """Return True if the pull brings a SQL92 expression of its own."""
    return bool(request.sys_flag & PullSysFlag.SUBSCRIPTION) and request.expression_type == EXPRESSION_TYPE_SQL92


def is_tag_expression(expression: str) -> bool:
    """Return True if the text is a tag expression: `a || b`, `*` or empty. A text without any tag (`||`) is not one, as
    in `FilterAPI`."""
    return expression in ("", "*") or any(expression.split("||"))
