"""A client's view of the cluster: routes, broker addresses, heartbeats, and the jobs that update them.

Every facade (producer, consumer, admin client) owns one instance and runs it in its own nursery; each job is a task, so
that a slow one delays no other. Source: RocketMQ 4.9 `MQClientInstance`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from rocketpy.remoting.bodies.route import MASTER_ID, TopicRouteData

from ..options import ClientOptions
from ..results import ClientCode
from .api import MQClientAPI
from .jobs import Jobs
from .route import (
    QUEUES_MAX,
    PublishInfo,
    find_address,
    limit_queue_nums,
    publish_info,
    same_route,
    subscribe_queues,
    usable_queue_datas,
    vip_address,
)
from .route_renewal import RouteRenewal
from .unanswered_sends import LOOK_S, UnansweredSends

logger = logging.getLogger(__name__)

NO_ADDRESSES: Mapping[int, str] = MappingProxyType({})
FIRST_HEARTBEAT_S = 1.0
NEW_HEARTBEAT_S = 0.5  # for the heartbeat of a broker that is new in a route


class ConsumerMember(Protocol):
    """The part of a consumer that its instance uses."""

    @property
    def group(self) -> str: ...

    @property
    def topics(self) -> Collection[str]: ...

    def consumer_data(self) -> ConsumerData: ...

    def wake_rebalance(self) -> None: ...


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class ClientInstance:
    """Routes and broker addresses of the topics in use.

    Attributes:
        routes: by topic, as last received from a name server. brokers: broker name -> broker id -> address, of all
        routes. broker_versions: by address, from heartbeat answers.
    """

    options: ClientOptions
    client_id: str
    api: MQClientAPI
    rng: random.Random = attrs.field(factory=random.Random)
    now_ms: Callable[[], int] = wall_clock_ms
    routes: dict[str, TopicRouteData] = attrs.field(init=False, factory=dict)
    brokers: dict[str, dict[int, str]] = attrs.field(init=False, factory=dict)
    broker_versions: dict[str, int] = attrs.field(init=False, factory=dict)
    publish_topics: set[str] = attrs.field(init=False, factory=set)
    producer_groups: set[str] = attrs.field(init=False, factory=set)
    consumer: ConsumerMember | None = attrs.field(init=False, default=None)
    _publish_infos: dict[str, PublishInfo] = attrs.field(init=False, factory=dict)
    _route_lock: aio.Lock = attrs.field(init=False, factory=aio.Lock)
    _heartbeat_lock: aio.Lock = attrs.field(init=False, factory=aio.Lock)
    _unanswered_sends: UnansweredSends = attrs.field(init=False)
    _jobs: Jobs | None = attrs.field(init=False, default=None)
    _renewal: RouteRenewal = attrs.field(init=False)
    clock: Callable[[], float] = attrs.field(init=False, factory=aio.clock)
    _has_left: bool = attrs.field(init=False, default=False)
    _looks_at_sends: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._renewal = RouteRenewal(self._renew_route)
        self._unanswered_sends = UnansweredSends(self.api.remoting, self.send_address, self._renewal.doubt)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def start(self, jobs: Jobs) -> None:
        """Begin the periodic jobs."""
        self._jobs = jobs
        self._renewal.start(jobs.nursery)
        jobs.every(self.options.poll_name_server_interval, self.refresh_routes)
        jobs.every(self.options.heartbeat_interval, self._tell_brokers, first_s=FIRST_HEARTBEAT_S)

    async def _tell_brokers(self) -> None:
        self.forget_offline_brokers()
        await self.heartbeat()

    def begin_publishing(self, topic: str) -> None:
        """Refresh the route of a topic from now on. With the first one, begin to look at sends without an answer."""
        if not self._looks_at_sends and self._jobs is not None:
            self._looks_at_sends = True
            self._jobs.call_every(LOOK_S, self._unanswered_sends.look)
        self.publish_topics.add(topic)

    @property
    def topics_in_use(self) -> set[str]:
        return self.publish_topics | set(self.consumer.topics if self.consumer is not None else ())

    async def refresh_routes(self) -> None:
        for topic in sorted(self.topics_in_use):
            try:
                await self.update_route(topic)
            except RocketError as error:
                logger.warning("cannot refresh the route of topic %s: %s; keeping the known route", topic, error)

    # --- routes -------------------------------------------------------------------------------------------------------

    async def doubt_route(self, topic: str, within_s: float) -> None:
        """Have the route asked for, because the master of a broker seems to have changed, and wait for it a while."""
        asked = self._renewal.doubt(topic)
        with aio.move_on_after(max(0.0, within_s)):
            await asked.wait()

    def route_changed(self, topic: str) -> None:
        """Have the route asked for soon: a broker has passed a message on to another one."""
        self._renewal.doubt(topic)

    async def wait_changed(self, topic: str, broker_name: str, addresses: Mapping[int, str], within_s: float) -> None:
        """Ask for the route until the broker has other addresses than these; at most for `within_s` seconds."""
        with aio.move_on_after(within_s):
            while self.addresses(broker_name) == addresses:
                await self._renewal.doubt(topic).wait()

    async def _renew_route(self, topic: str) -> None:
        """Ask for the route. A broker that is new in it gets a heartbeat first: it may not know this client."""
        known = set(self.heartbeat_targets())
        await self.update_route(topic)
        if not set(self.heartbeat_targets()) <= known:
            with aio.move_on_after(NEW_HEARTBEAT_S):
                await self.heartbeat()

    async def update_route(self, topic: str) -> bool:
        """Ask for the topic's route and store it. Returns: whether there is one.

        Raises:
            TransportError, ClientError: no name server answered, which is not the same as "no route".
        """
        async with self._route_lock:
            try:
                route = await self.api.topic_route(topic, self.options.api_timeout)
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                logger.debug("topic %s has no route: the name server does not know it", topic)
                return False
            self._learn(topic, route)
            return True

    async def _update_route_by_template(self, topic: str, template: str, queue_nums: int) -> bool:
        async with self._route_lock:
            try:
                route = await self.api.topic_route(template, self.options.api_timeout)
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return False
            self._learn(topic, limit_queue_nums(route, queue_nums))
            return True

    def _learn(self, topic: str, route: TopicRouteData) -> None:
        if same_route(self.routes.get(topic), route):
            return
        names = ", ".join(data.broker_name for data in route.queue_datas)
        logger.info("topic %s has a new route: brokers %s", topic, names or "none")
        if left_out := len(route.queue_datas) - len(usable_queue_datas(route)):
            text = "topic %s has more than %d queues: left out the %d brokers with the most"
            logger.warning(text, topic, QUEUES_MAX, left_out)
        for data in route.broker_datas:
            self.brokers[data.broker_name] = dict(data.broker_addrs)
        self.routes[topic] = route
        self._publish_infos.pop(topic, None)

    def known_publish_info(self, topic: str) -> PublishInfo | None:
        """Return the queues for messages of `topic` if its route is known and has any."""
        info = self._publish_infos.get(topic)
        if info is None:
            route = self.routes.get(topic)
            if route is None:
                return None
            info = self._publish_infos[topic] = publish_info(topic, route)
        return info if info.queues else None

    async def publish_info(self, topic: str, template: str, queue_nums: int) -> PublishInfo:
        """Return the queues for messages of `topic`. A topic that does not exist gets the template's route: brokers
        create it.

        Raises:
            ClientError: there is no route, or none that can be written.
            TransportError: no name server answered and no route is stored.
        """
        usable = self.known_publish_info(topic)
        if usable is not None:
            return usable
        self.begin_publishing(topic)
        await self.update_route(topic)
        if topic not in self.routes:
            await self._update_route_by_template(topic, template, queue_nums)
        usable = self.known_publish_info(topic)
        if usable is None:
            known = "no queue of it can be written" if topic in self.routes else "the name server has no route for it"
            raise ClientError(f"no route for topic {topic}: {known}", code=ClientCode.NOT_FOUND_TOPIC)
        return usable

    async def readable_queues(self, topic: str) -> frozenset[MessageQueue]:
        """Queues of `topic` that consumers read; empty when it has no route."""
        if topic not in self.routes:
            await self.update_route(topic)
        route = self.routes.get(topic)
        return frozenset() if route is None else subscribe_queues(topic, route)

    def forget_offline_brokers(self) -> None:
        """Remove addresses that no route contains any more."""
        alive = {
            (data.broker_name, address)
            for route in self.routes.values()
            for data in route.broker_datas
            for address in data.broker_addrs.values()
        }
        for name, addresses in list(self.brokers.items()):
            kept = {broker_id: address for broker_id, address in addresses.items() if (name, address) in alive}
            if kept:
                self.brokers[name] = kept
            else:
                del self.brokers[name]

    # --- addresses ----------------------------------------------------------------------------------------------------

    def master_address(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def send_address(self, broker_name: str) -> str | None:
        """Return the address that messages of a broker are sent to: its master's, or the VIP port of its master."""
        master = self.brokers.get(broker_name, NO_ADDRESSES).get(MASTER_ID)
        return self.vip(master) if master is not None and self.options.vip_channel else master

    async def _ask_route(self, topic: str) -> None:
        """Ask for a route that lacks a broker: not more often than the renewal does, if that runs."""
        if self._renewal.nursery is not None:
            await self.doubt_route(topic, self.options.api_timeout)
        else:
            await self.update_route(topic)

    async def find_master(self, queue: MessageQueue) -> str:
        """The master of the queue's broker, asking for the route once when it is not known.

        Raises:
            ClientError: there is none (BROKER_NOT_EXIST).
        """
        address = self.master_address(queue.broker_name)
        if address is None:
            await self._ask_route(queue.topic)
            address = self.master_address(queue.broker_name)
        if address is None:
            raise ClientError(f"broker {queue.broker_name} has no master", code=ClientCode.BROKER_NOT_EXIST)
        return address

    def addresses(self, broker_name: str) -> Mapping[int, str]:
        """Return the addresses of a broker by id, as they are now: a new route brings a new table."""
        return self.brokers.get(broker_name, NO_ADDRESSES)

    def known_reader(self, queue: MessageQueue, broker_id: int, *, only: bool = False) -> tuple[int, str] | None:
        """(broker id, address) to read the queue from; None when the broker is not known."""
        return find_address(self.addresses(queue.broker_name), broker_id, only_this_broker=only)

    async def find_reader(self, queue: MessageQueue, broker_id: int, *, only: bool = False) -> tuple[int, str]:
        """(broker id, address) to read the queue from. Raises ClientError when the broker is not known."""
        found = self.known_reader(queue, broker_id, only=only)
        if found is None:
            await self._ask_route(queue.topic)
            found = self.known_reader(queue, broker_id, only=only)
        if found is None:
            raise ClientError(f"broker {queue.broker_name} is not known", code=ClientCode.BROKER_NOT_EXIST)
        return found

    async def any_broker_of(self, topic: str) -> str:
        """An address of one broker of the topic, chosen at random: its master, otherwise any."""
        if topic not in self.routes:
            await self.update_route(topic)
        route = self.routes.get(topic)
        candidates = [data.broker_addrs for data in route.broker_datas if data.broker_addrs] if route else []
        if not candidates:
            raise ClientError(f"no broker of topic {topic} is known", code=ClientCode.BROKER_NOT_EXIST)
        addresses = self.rng.choice(candidates)
        return addresses[MASTER_ID] if MASTER_ID in addresses else addresses[min(addresses)]

    def vip(self, address: str) -> str:
        return vip_address(address) if self.options.vip_channel else address

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.producer_groups)],
            consumer_data_set=[] if self.consumer is None else [self.consumer.consumer_data()],
        )

    def heartbeat_targets(self) -> Sequence[str]:
        """Masters for producers; every address once there is a consumer: any broker may be asked for members."""
        return [
            address
            for addresses in self.brokers.values()
            for broker_id, address in addresses.items()
            if broker_id == MASTER_ID or self.consumer is not None
        ]

    async def heartbeat(self) -> None:
        """Send a heartbeat with all groups and subscriptions to the brokers. A failed one is repeated in the next
        round."""
        if self.consumer is None and not self.producer_groups:
            return
        async with self._heartbeat_lock:
            data = self.heartbeat_data()
            async with aio.open_nursery() as nursery:
                for address in self.heartbeat_targets():
                    nursery.start_soon(self._heartbeat_one, address, data)

    async def _heartbeat_one(self, address: str, data: HeartbeatData) -> None:
        if self._has_left:  # it would register the groups again
            return
        try:
            self.broker_versions[address] = await self.api.heartbeat(address, data, self.options.api_timeout)
        except RocketError as error:
            logger.info("cannot send a heartbeat to broker %s: %s", address, error)

    async def unregister(self) -> None:
        """Unregister all groups from every broker, so that other members take over the queues at once.

        Heartbeats end. One that is under way was sent before, on the same connection.
        """
        self._has_left = True
        consumer_group = None if self.consumer is None else self.consumer.group
        groups: list[tuple[str | None, str | None]] = [(group, None) for group in sorted(self.producer_groups)]
        if consumer_group is not None:
            groups.insert(0, (None, consumer_group))
        addresses = [address for by_id in self.brokers.values() for address in by_id.values()]
        async with aio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(self._unregister_one, address, groups)

    async def _unregister_one(self, address: str, groups: Sequence[tuple[str | None, str | None]]) -> None:
        try:
            for producer_group, consumer_group in groups:
                await self.api.unregister(
                    address, self.client_id, producer_group, consumer_group, self.options.api_timeout
                )
        except RocketError as error:
            logger.info("cannot unregister from broker %s: %s; it drops this client after 120 s", address, error)
