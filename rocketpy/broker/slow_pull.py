"""Pulls that the fast path does not serve: their group or topic is missing, they are not allowed, or C cannot evaluate
their filter.

The checks are in the reference's order. A pull that passes all of them lacked only its group, which the checks have
created; it goes back to the fast path.

Source: RocketMQ 4.9 `PullMessageProcessor`.
"""

from __future__ import annotations

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.heartbeat import MessageModel
from rocketpy.remoting.fast_path import FastPath, PullRequest
from rocketpy.remoting.headers.pull import PullSysFlag
from rocketpy.remoting.refusals import not_supported_remark

from . import remarks
from .current_settings import CurrentSettings
from .managers.consumer import ConsumerManager
from .managers.subscription_group import SubscriptionGroupManager
from .managers.topic_config import TopicConfigManager
from .replies import push_reply


@attrs.frozen
class PullRefusal:
    code: int
    remark: str


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == "TAG"


class SlowPull:
    def __init__(
        self,
        settings: CurrentSettings,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        fast_path: FastPath,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._fast_path = fast_path

    def submit(self, request: PullRequest) -> None:
        refusal = self.validate(request)
        if refusal is None:
            self._fast_path.repull(request)
        else:
            push_reply(request, refusal.code, refusal.remark)

    def validate(self, request: PullRequest) -> PullRefusal | None:
        """Check a pull; create its group if the configuration allows it. Returns the refusal, or None."""
        try:
            return self._validate(request)
        except RocketError as exc:  # a group that cannot be created
            return PullRefusal(exc.response_code, str(exc))

    def _validate(self, request: PullRequest) -> PullRefusal | None:
        if request.channel.is_vip:  # the port listenPort - 2 serves everything but pulls
            return PullRefusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported_remark(request.code))
        return self._refuse_group(request) or self._refuse_topic(request) or self._refuse_subscription(request)

    def _refuse_group(self, request: PullRequest) -> PullRefusal | None:
        config = self._settings.broker
        if not config.broker_permission & PermName.READ:
            remark = f"the broker[{config.broker_ip1}] pulling message is forbidden"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.find(request.consumer_group)
        if group is None:
            remark = f"subscription group [{request.consumer_group}] does not exist, {remarks.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {request.consumer_group}"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark)
        return None

    def _refuse_topic(self, request: PullRequest) -> PullRefusal | None:
        topic = self._topics.select(request.topic)
        if topic is None:
            remark = f"topic[{request.topic}] not exist, apply first please! {remarks.FAQ_SUFFIX}"
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
            expression_type = request.expression_type
            if is_tag_type(expression_type) and not is_tag_expression(request.subscription):
                remark = "parse the consumer's subscription failed"
                return PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
            return self._refuse_filter(expression_type)
        entry = self._consumers.group(request.consumer_group)
        if entry is None:
            remark = f"the consumer's group info not exist{remarks.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        group = self._groups.select(request.consumer_group)
        broadcasts = entry.message_model is MessageModel.BROADCASTING
        if broadcasts and group is not None and not group.consume_broadcast_enable:
            remark = f"the consumer group[{request.consumer_group}] can not consume by broadcast way"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark)
        subscription = entry.subscriptions.get(request.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{remarks.FAQ_SUFFIX}"
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < request.sub_version:
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return self._refuse_filter(subscription.expression_type)

    @staticmethod
    def _refuse_filter(expression_type: str | None) -> PullRefusal | None:
        """Only tag filters are supported: any other filter is refused, never ignored."""
        if is_tag_type(expression_type):
            return None
        return PullRefusal(ResponseCode.SYSTEM_ERROR, remarks.unsupported_filter(expression_type or ""))


def is_tag_expression(expression: str) -> bool:
    """Whether the text is a tag expression: `a || b`, `*` or empty. A text without any tag (`||`) is none, as in
    `FilterAPI`."""
    return expression in ("", "*") or any(expression.split("||"))
