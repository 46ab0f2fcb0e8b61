"""NOTIFY_CONSUMER_IDS_CHANGED (40): tell the members of a group that it has changed, so that they share queues anew.

Source: RocketMQ 4.9 `DefaultConsumerIdsChangeListener`, `Broker2Client#notifyConsumerIdsChanged`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketpy.codes import RequestCode
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader

from ..current_settings import CurrentSettings


class MembersNotifier:
    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings

    def members_changed(self, group: str, channels: Iterable[Channel]) -> None:
        """A hint only: a member that does not get it rebalances within 20 s anyway."""
        if not self._settings.broker.notify_consumer_ids_changed_enable:
            return
        for channel in channels:
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
            channel.push(RemotingCommand.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
