"""NOTIFY_CONSUMER_IDS_CHANGED (40): notifies the members of a group of a change, so that they rebalance.

Source: RocketMQ 4.9 `DefaultConsumerIdsChangeListener`, `Broker2Client#notifyConsumerIdsChanged`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

import trio

from rocketpy.codes import RequestCode
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader
from rocketpy.transport.steps import finished

from ..current_settings import CurrentSettings

MEMBERS_PER_STEP = 50  # some 10 microseconds each


class Members(Protocol):
    """A group's members, now."""

    @property
    def group(self) -> str: ...

    @property
    def member_channels(self) -> list[Channel]: ...


class MembersNotifier:
    """Tells whole groups in the background, in steps: a group may have 50 000 members."""

    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings
        self._changed: dict[str, Members] = {}  # groups that are to be told, each once however often it changed
        self._wake = trio.Event()

    def members_changed(self, members: Members) -> None:
        if self._settings.broker.notify_consumer_ids_changed_enable:
            self._changed[members.group] = members
            self._wake.set()

    async def run(self) -> None:
        """Tell groups as they change; for ever."""
        while True:
            while not self._changed:  # a call that failed may have left some
                self._wake = trio.Event()
                await self._wake.wait()
            await finished(self.tell())

    def tell(self) -> Generator[None, None, None]:
        """Tell all groups that have changed. The notification is a hint: a member that misses it rebalances within 20
        s. Work in steps."""
        told = 0
        while self._changed:
            group, members = next(iter(self._changed.items()))
            del self._changed[group]
            for channel in members.member_channels:
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
                channel.push(RemotingCommand.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
                told += 1
                if told % MEMBERS_PER_STEP == 0:
                    yield
