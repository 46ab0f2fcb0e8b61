"""Clients: HEART_BEAT (34), UNREGISTER_CLIENT (35), CHECK_CLIENT_CONFIG (46).

Source: RocketMQ 4.9 `ClientManageProcessor`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import chain

from rocketpy.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.faults import do_each
from rocketpy.message import names
from rocketpy.message.sys_flag import TOPIC_SYS_FLAG_UNIT_SUB
from rocketpy.remoting.abc import Channel, Preparation, Response, Rest
from rocketpy.remoting.bodies.client import (
    EXPRESSION_TYPE_SQL92,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import UnregisterClientRequestHeader
from rocketpy.remoting.limits import Limit, require
from rocketpy.transport.steps import Steps, read_body

from .. import replies
from ..managers.client_channel import ClientChannelInfo, LastHeartbeat
from ..managers.consumer import size_of
from ..managers.consumer_filter import is_tag_type
from ..managers.filter_compiler import Compiled
from ..services import BrokerServices
from .table import TableProcessor

EXPRESSION_LENGTH_MAX = 32_767  # characters of a subscription's expression: the limit of a message's properties
TAGS_MAX = 4096  # of one subscription
SUBSCRIPTIONS_SIZE_MAX = 8 * 1024 * 1024
"""Limit of `size_of` for all groups of one connection; one heartbeat always fits."""
ALL_SUBSCRIPTIONS_SIZE_MAX = 64 * 1024 * 1024
"""Limit of `size_of` for the groups of all connections, of which a host may have many."""
GROUP_TEXT_MAX = 131_072
"""Characters of the expressions of one group, which is entered in one step: four of the longest."""
EXPRESSIONS_SIZE_MAX = 65_536
"""Limit of `size_of` for the SQL92 subscriptions of one connection: their programs together have to fit the table of
filter_compiler.py."""
PREPARATION_TIMEOUT_S = 60.0  # of compiling them, in turns with those of others
GROUPS_PER_STEP = 50  # each may be a new group and a new topic
CHARACTERS_PER_UNIT = 2_500  # of expressions, read in about the time of a group


class ClientManageProcessor(TableProcessor):
    """Heartbeats of clients, and their end."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.HEART_BEAT: self._heart_beat,
                RequestCode.UNREGISTER_CLIENT: self._unregister,
                RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
            }
        )
        self._services = services
        settings = services.settings
        self.groups_limit = Limit(
            "groups of one client", "clientGroupsMax", lambda: settings.rocketpy.client_groups_max
        )
        self.topics_limit = Limit("topics of one group", "groupTopicsMax", lambda: settings.rocketpy.group_topics_max)

    def renew(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """Serve a heartbeat that says what the last one said, without a task (reactor/request_server.py). Returns None
        for any other."""
        services = self._services
        access_key = "" if services.access is None else services.access.signer(request)
        is_renewed = services.repeated_heartbeats.renew(request, channel.connection, access_key)
        return RemotingCommand.response() if is_renewed else None

    async def _heart_beat(
        self, request: RemotingCommand, channel: Channel, compiled: Mapping[str, Compiled] | None = None
    ) -> Response:
        """Serve a heartbeat. `compiled`: its expressions, when its turn comes again. The body is read anew, so that
        one that waits takes little memory."""
        services = self._services
        heartbeat = await read_body(HeartbeatData, request.body)
        await self._check(heartbeat, channel.connection)
        if compiled is None:
            subscriptions = chain.from_iterable(each.subscription_data_set for each in heartbeat.consumer_data_set)
            if preparation := self._preparation(subscriptions, partial(self._heart_beat, request, channel)):
                return preparation
        services.filters.compiler.keep(compiled or {})
        info = ClientChannelInfo(
            channel=channel,
            client_id=heartbeat.client_id,
            language=(LanguageCode.OTHER if request.language is None else request.language).name,
            version=int(request.version),
            last_heartbeat=LastHeartbeat(services.clock.monotonic_ms(), services.clock.now_ms()),
            access_key="" if services.access is None else services.access.signer(request),
        )
        try:
            await self._register(heartbeat, info)
            services.repeated_heartbeats.remember(request, heartbeat, info)
        finally:
            do_each(lambda changes: changes.tell(), (services.consumers.changes, services.producers.changes))
        await services.groups.file.save()
        await services.topics.file.save()
        return RemotingCommand.response()

    def _preparation(
        self,
        subscriptions: Iterable[SubscriptionData],
        rest: Callable[[Mapping[str, Compiled]], Awaitable[Response]],
    ) -> Preparation | None:
        """Return the compilation that `rest` needs; None if every expression is known."""
        filters = self._services.filters
        texts = [each.sub_string for each in subscriptions if filters.is_compiled(each)]
        if all(map(filters.compiler.is_known, texts)):
            return None

        async def prepare() -> Rest:
            return partial(rest, await filters.compiler.prepare_all(texts))

        return Preparation(prepare, PREPARATION_TIMEOUT_S)

    async def _register(self, heartbeat: HeartbeatData, info: ClientChannelInfo) -> None:
        steps = Steps(GROUPS_PER_STEP)
        for consumer in heartbeat.consumer_data_set:
            self._check_growth([consumer])  # others may have registered since the whole heartbeat was checked
            self._register_consumer(consumer, info)
            await steps.did(1 + len(consumer.subscription_data_set) + _text_size(consumer) // CHARACTERS_PER_UNIT)
        for producer in heartbeat.producer_data_set:
            self._services.producers.register(producer.group_name, info)
            await steps.did()

    async def _check(self, heartbeat: HeartbeatData, connection: int) -> None:
        """Check a whole heartbeat before any part of it is stored. Raises: RequestRefused."""
        services, steps = self._services, Steps()
        require(names.text_fault("client id", heartbeat.client_id))
        for consumer in heartbeat.consumer_data_set:
            require(names.group_fault(consumer.group_name))
            self.topics_limit.check(0, len(consumer.subscription_data_set))
            if _text_size(consumer) > GROUP_TEXT_MAX:
                require(f"the subscriptions of group {consumer.group_name} have more than {GROUP_TEXT_MAX} characters")
            for subscription in consumer.subscription_data_set:
                _check_subscription(subscription)
                await steps.did(1 + len(subscription.tags_set))
            await steps.did()
        for producer in heartbeat.producer_data_set:
            require(names.group_fault(producer.group_name))
            await steps.did()
        consumers = {consumer.group_name for consumer in heartbeat.consumer_data_set}
        producers = {producer.group_name for producer in heartbeat.producer_data_set}
        known = services.consumers.group_names_of(connection)
        self._check_sizes(heartbeat, known - consumers)
        self._check_growth(heartbeat.consumer_data_set)
        self.groups_limit.check(len(known), len(consumers - known))
        known = services.producers.group_names_of(connection)
        self.groups_limit.check(len(known), len(producers - known))

    def _check_sizes(self, heartbeat: HeartbeatData, others: Iterable[str]) -> None:
        """Check what a client has to be kept and compiled. `others`: its groups of earlier heartbeats."""
        services = self._services
        found: list[SubscriptionData] = []
        for consumer in heartbeat.consumer_data_set:
            found += consumer.subscription_data_set
        for entry in filter(None, map(services.consumers.group, others)):
            found += entry.subscriptions.values()
        size = size_of(found)
        if size > SUBSCRIPTIONS_SIZE_MAX:
            require(f"the subscriptions of one client take {size} bytes, at most {SUBSCRIPTIONS_SIZE_MAX} are allowed")
        size = size_of(filter(services.filters.is_compiled, found))
        if size > EXPRESSIONS_SIZE_MAX:
            require(f"the SQL92 filters of one client take {size} bytes, at most {EXPRESSIONS_SIZE_MAX} are allowed")

    def _check_growth(self, consumers: Iterable[ConsumerData]) -> None:
        """Check that the subscriptions of all groups fit. Groups that do not grow are not refused."""
        table = self._services.consumers
        growth = sum(table.growth_by(each.group_name, each.subscription_data_set) for each in consumers)
        if growth and table.size + growth > ALL_SUBSCRIPTIONS_SIZE_MAX:
            require(
                f"the subscriptions of all groups would take {table.size + growth} bytes, at most "
                f"{ALL_SUBSCRIPTIONS_SIZE_MAX} are allowed"
            )

    def _register_consumer(self, consumer: ConsumerData, info: ClientChannelInfo) -> None:
        services = self._services
        notify = True
        group = services.groups.find_or_create(consumer.group_name)
        if group is not None:
            notify = group.notify_consumer_ids_changed_enable
            retry_topic = names.retry_topic(consumer.group_name)
            # A record cannot hold a longer topic name. A slave gets the topic from its master.
            if len(retry_topic) <= names.TOPIC_LENGTH_MAX and not services.settings.is_slave:
                services.topics.create_if_missing(
                    retry_topic,
                    queue_nums=group.retry_queue_nums,
                    topic_sys_flag=TOPIC_SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
                )
        services.consumers.register(
            consumer.group_name,
            info,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=consumer.subscription_data_set,
            notify=notify,
        )

    async def _unregister(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = UnregisterClientRequestHeader.of(request)
        for group_name in filter(None, (header.producer_group, header.consumer_group)):
            require(names.group_fault(group_name))
        if header.producer_group:
            self._services.producers.unregister(header.producer_group, channel.connection)
        if header.consumer_group:
            group = self._services.groups.select(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._services.consumers.unregister(header.consumer_group, channel.connection, notify=notify)
        return RemotingCommand.response(ext_fields={})

    async def _check_config(
        self, request: RemotingCommand, channel: Channel, compiled: Mapping[str, Compiled] | None = None
    ) -> Response:
        subscription = (await read_body(CheckClientRequestBody, request.body)).subscription_data
        filters, kind = self._services.filters, subscription.expression_type
        if is_tag_type(kind):
            return RemotingCommand.response()
        if not filters.is_enabled or kind != EXPRESSION_TYPE_SQL92:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, replies.unsupported_filter(kind or ""))
        if compiled is None and (
            preparation := self._preparation([subscription], partial(self._check_config, request, channel))
        ):
            return preparation
        filters.compiler.keep(compiled or {})
        filters.check(subscription)
        return RemotingCommand.response()


def _text_size(consumer: ConsumerData) -> int:
    return sum(len(subscription.sub_string) for subscription in consumer.subscription_data_set)


def _check_subscription(subscription: SubscriptionData) -> None:
    require(names.known_topic_fault(subscription.topic))
    require(names.text_fault("type of filter", subscription.expression_type or "TAG"))
    if len(subscription.sub_string) > EXPRESSION_LENGTH_MAX:
        require(f"the subscription of {subscription.topic} is longer than {EXPRESSION_LENGTH_MAX} characters")
    if max(len(subscription.tags_set), len(subscription.code_set)) > TAGS_MAX:
        require(f"the subscription of {subscription.topic} has more than {TAGS_MAX} tags")
    if any(len(tag) > EXPRESSION_LENGTH_MAX for tag in subscription.tags_set):
        require(f"a tag of the subscription of {subscription.topic} is longer than {EXPRESSION_LENGTH_MAX} characters")
