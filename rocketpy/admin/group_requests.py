"""Consumer and producer groups: settings and changes of them, members, progress."""

from __future__ import annotations

import attrs

from rocketpy import aio
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BodyInvalid, BrokerError, ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import retry_topic
from rocketpy.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTableInfo,
)
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumeStats, ConsumeStatsList, ResetOffsetBody
from rocketpy.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)

from .core import read_answer
from .topic_requests import TopicRequests

PROPERTIES_MAX = 1000  # that a consumer may tell of itself


class GroupRequests(TopicRequests):
    """Operations on groups."""

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        response = await self.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return (await read_answer(SubscriptionGroupWrapper, response.body)).subscription_group_table

    async def create_group(self, address: str, config: SubscriptionGroupConfig) -> None:
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())

    async def delete_group(self, address: str, group: str, *, remove_offset: bool) -> None:
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=remove_offset)
        await self.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def consume_stats(self, group: str, topic: str | None = None, *, address: str | None = None) -> ConsumeStats:
        """Offsets of a group on every broker that has its retry topic, merged, or on one.

        Raises:
            BrokerError: TOPIC_NOT_EXIST: the group has no retry topic: it never was online, or broadcasts.
        """
        merged = ConsumeStats()
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        addresses = [address] if address else (await self.masters_of_topic(retry_topic(group))).values()
        for each_address in addresses:
            response = await self.ask(each_address, RequestCode.GET_CONSUME_STATS, header, timeout_s=self.timeout_s * 3)
            stats = await read_answer(ConsumeStats, response.body)
            merged.offset_table.update(stats.offset_table)
            merged.consume_tps += stats.consume_tps
        return merged

    async def consumer_connection(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Members and subscriptions of a group, of all brokers of its retry topic, or of one.

        Raises:
            BrokerError: CONSUMER_NOT_ONLINE.
        """
        addresses = [address] if address else list((await self.masters_of_topic(retry_topic(group))).values())
        merged: ConsumerConnection | None = None
        failure: RocketError | None = None
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        for each_address in addresses:
            try:
                response = await self.ask(each_address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            except RocketError as error:
                failure = error
                continue
            found = await read_answer(ConsumerConnection, response.body)
            if merged is None:
                merged = found
            else:
                known = {connection.client_id for connection in merged.connection_set}
                merged.connection_set += [c for c in found.connection_set if c.client_id not in known]
                merged.subscription_table = found.subscription_table | merged.subscription_table
                merged.differing_subscriptions = merged.differing_subscriptions or found.differing_subscriptions
        if merged is None or not merged.connection_set:
            raise failure or BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"group {group} has no member online")
        return merged

    async def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """Members of a producer group at the brokers of a topic, merged."""
        merged = ProducerConnection()
        failure: RocketError | None = None
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        for address in (await self.masters_of_topic(topic)).values():
            try:
                response = await self.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except RocketError as error:
                failure = error
                continue
            known = {connection.client_id for connection in merged.connection_set}
            found = (await read_answer(ProducerConnection, response.body)).connection_set
            merged.connection_set += [c for c in found if c.client_id not in known]
        if failure is not None and not merged.connection_set:
            raise failure
        return merged

    async def all_producers(self, address: str) -> ProducerTableInfo:
        """Ask a broker for the producers that are connected to it, by group."""
        return await read_answer(ProducerTableInfo, (await self.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)).body)

    async def running_info(
        self, group: str, client_id: str, *, with_stack: bool = False, address: str | None = None
    ) -> ConsumerRunningInfo:
        """The state that a member reports, relayed by a broker that knows it."""
        addresses = [address] if address else list((await self.masters_of_topic(retry_topic(group))).values())
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_stack
        )
        failure: RocketError | None = None
        for each_address in addresses:
            try:
                response = await self.ask(
                    each_address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_s=self.timeout_s * 3
                )
                return await aio.in_thread(_running_info, response.body)
            except RocketError as error:
                failure = error
        raise failure or ClientError(f"no broker knows group {group}")

    async def consume_directly(
        self, address: str, group: str, client_id: str, offset_msg_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Ask one member to consume one message now, independent of offsets."""
        header = ConsumeMessageDirectlyRequestHeader(consumer_group=group, client_id=client_id, msg_id=offset_msg_id)
        response = await self.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_s=self.timeout_s * 3)
        return await aio.in_thread(ConsumeMessageDirectlyResult.decode_report, response.body)

    async def broker_consume_stats(self, address: str, *, is_order: bool, timeout_s: float) -> ConsumeStatsList:
        header = GetConsumeStatsInBrokerHeader(is_order=is_order)
        response = await self.ask(address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_s=timeout_s)
        return ConsumeStatsList.decode(response.body)

    async def reset_offset(
        self, address: str, group: str, topic: str, timestamp_ms: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        """Ask a broker to reset the offsets of an online group. Raises BrokerError CONSUMER_NOT_ONLINE if it is
        offline."""
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=force)
        response = await self.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return ResetOffsetBody.decode(response.body).offset_table


@attrs.frozen
class GroupChange:
    """A change of a group's settings; None keeps a setting."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed: bool | None = None

    def applied_to(self, group: str, present: SubscriptionGroupConfig | None) -> SubscriptionGroupConfig:
        """The settings after the change. `present` None: the group is new, or all its settings are replaced."""
        config = present or SubscriptionGroupConfig(
            group_name=group, consume_from_min_enable=False, consume_broadcast_enable=False
        )
        for field in attrs.fields(GroupChange):
            wanted = getattr(self, field.name)
            if wanted is not None:
                name = field.name
                setattr(config, f"{name}_enable" if name == "notify_consumer_ids_changed" else name, wanted)
        return config


async def change_group(
    admin: GroupRequests, address: str, group: str, change: GroupChange, *, replace: bool = False
) -> SubscriptionGroupConfig:
    """Apply a change on one master. Returns: the settings it has now.

    Java's updateSubGroup resets settings that are not given; here those of an existing group stay unchanged, unless
    `replace` is set. A new group gets Java's: it may not broadcast and not start at the oldest message.
    """
    present = None if replace else (await admin.group_configs(address)).get(group)
    config = change.applied_to(group, present)
    await admin.create_group(address, config)
    return config


def _running_info(body: bytes | None) -> ConsumerRunningInfo:
    """Read what a member tells of itself. Raises BodyInvalid: it is too much."""
    info = ConsumerRunningInfo.decode_report(body)
    if len(info.properties) > PROPERTIES_MAX:
        raise BodyInvalid(f"a consumer with {len(info.properties)} properties, at most {PROPERTIES_MAX} are allowed")
    return info
