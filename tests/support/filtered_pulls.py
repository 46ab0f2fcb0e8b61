"""A group with a SQL92 subscription, on one connection: its heartbeat, and pulls that get what it has subscribed to."""

from __future__ import annotations

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import UnregisterClientRequestHeader
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullSysFlag

from .wire import Wire, max_offset, records_of, send_request, until

SUSPEND = PullSysFlag.SUSPEND


def put(wire: Wire, topic: str, first: int, count: int) -> None:
    """Messages number `first` and up, with their number as body and as the properties n and mod (n modulo 10); all are
    in queue 0 after this, from offset `first` on."""
    for n in range(first, first + count):
        request = send_request(topic, b"%d" % n, properties=f"n\x01{n}\x02mod\x01{n % 10}\x02")
        assert wire.ask(request).code == ResponseCode.SUCCESS
    until(lambda: max_offset(wire, topic) == first + count, "dispatch")


@attrs.frozen
class FilteredGroup:
    wire: Wire
    topic: str
    expression: str
    group: str = "CG"
    version: int = 1

    @property
    def client_id(self) -> str:
        return f"{self.group}@1"

    def join(self) -> None:
        data = SubscriptionData(
            topic=self.topic, sub_string=self.expression, expression_type="SQL92", sub_version=self.version
        )
        consumer = ConsumerData(group_name=self.group, subscription_data_set=[data])
        body = HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer]).encode()
        answer = self.wire.ask(RemotingCommand.request(RequestCode.HEART_BEAT, None, body))
        assert answer.code == ResponseCode.SUCCESS, answer

    def leave(self) -> None:
        header = UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=self.group)
        answer = self.wire.ask(RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header))
        assert answer.code == ResponseCode.SUCCESS, answer

    def request(
        self, offset: int, *, own: bool = False, hold_ms: int = 0, version: int | None = None
    ) -> RemotingCommand:
        """`own`: the pull brings the expression itself."""
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=own * PullSysFlag.SUBSCRIPTION | bool(hold_ms) * SUSPEND,
            suspend_timeout_ms=hold_ms,
            subscription=self.expression if own else None,
            expression_type="SQL92" if own else None,
            sub_version=self.version if version is None else version,
        )
        return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)

    def get(self, end: int, *, begin: int = 0, own: bool = False) -> list[int]:
        """The numbers of the messages that it gets between these offsets."""
        found, at = [], begin
        while at < end:
            answer = self.wire.ask(self.request(at, own=own))
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
            found += [int(record.body) for record in records_of(answer)]
            at = int((answer.ext_fields or {})["nextBeginOffset"])
        return found
