"""Converts a topic's route to the queues for producers and consumers. Values only.

Source: RocketMQ 4.9 `MQClientInstance#topicRouteData2TopicPublishInfo` and `#topicRouteData2TopicSubscribeInfo`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.numbers import int_or
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.route import MASTER_ID, QueueData, TopicRouteData

QUEUE_NUMS_MAX = 65_536  # of one topic on one broker
QUEUES_MAX = 1_048_576  # of one topic: each is an object, of about 100 bytes


@attrs.frozen
class PublishInfo:
    """The writable queues of a topic. Without queues the topic exists but cannot be written."""

    topic: str
    queues: tuple[MessageQueue, ...] = ()
    write_queue_nums: Mapping[str, int] = attrs.field(factory=dict)  # by broker name
    is_ordered: bool = False  # the name server fixes the queue list


def usable_queue_datas(route: TopicRouteData) -> list[QueueData]:
    """Return the brokers of a route without those with the most queues, as far as all have more than QUEUES_MAX: in a
    registration, which a stranger may send to an open name server, a topic can have 2 147 483 647 queues."""
    usable: list[QueueData] = []
    left = QUEUES_MAX
    for data in sorted(route.queue_datas, key=lambda data: max(data.read_queue_nums, data.write_queue_nums)):
        left -= max(data.read_queue_nums, data.write_queue_nums, 0)
        if left < 0:
            break
        usable.append(data)
    return usable


def publish_info(topic: str, route: TopicRouteData) -> PublishInfo:
    """Queues of every writable broker that has a master, or exactly the order configuration's list."""
    write_queue_nums = {data.broker_name: data.write_queue_nums for data in route.queue_datas}
    if route.order_topic_conf:
        queues = tuple(
            MessageQueue(topic, broker_name, queue_id)
            for broker_name, nums in parse_order_conf(route.order_topic_conf)
            for queue_id in range(nums)
        )
        return PublishInfo(topic, queues, write_queue_nums, is_ordered=True)
    with_master = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    queues = tuple(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(usable_queue_datas(route), key=lambda data: data.broker_name)
        if data.perm & PermName.WRITE and data.broker_name in with_master
        for queue_id in range(data.write_queue_nums)
    )
    return PublishInfo(topic, queues, write_queue_nums)


def subscribe_queues(topic: str, route: TopicRouteData) -> frozenset[MessageQueue]:
    """Queues of every readable broker; a master is not needed for reading."""
    return frozenset(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in usable_queue_datas(route)
        if data.perm & PermName.READ
        for queue_id in range(data.read_queue_nums)
    )


def parse_order_conf(text: str) -> list[tuple[str, int]]:
    """Parse `broker-a:4;broker-b:8` to pairs, in order; invalid entries, and those beyond QUEUES_MAX, are ignored."""
    pairs = []
    left = QUEUES_MAX
    for item in text.split(";"):
        broker_name, _, nums = item.partition(":")
        count = int_or(nums.strip(), -1)
        if broker_name and 0 <= count <= min(QUEUE_NUMS_MAX, left):
            pairs.append((broker_name, count))
            left -= count
    return pairs


def limit_queue_nums(route: TopicRouteData, queue_nums: int) -> TopicRouteData:
    """The template topic's route as a new topic will have it: at most `queue_nums` queues per broker."""
    limited = [
        QueueData(
            broker_name=data.broker_name,
            perm=data.perm,
            read_queue_nums=min(queue_nums, data.read_queue_nums),
            write_queue_nums=min(queue_nums, data.read_queue_nums),
            topic_sys_flag=data.topic_sys_flag,
        )
        for data in route.queue_datas
    ]
    return TopicRouteData(broker_datas=route.broker_datas, order_topic_conf=route.order_topic_conf, queue_datas=limited)


def same_route(left: TopicRouteData | None, right: TopicRouteData) -> bool:
    """Return True if two routes are equal. The order of their lists does not count: name servers do not keep it."""
    return left is not None and _canonical(left) == _canonical(right)


def _canonical(route: TopicRouteData) -> tuple[object, ...]:
    return (
        route.order_topic_conf or "",
        sorted(
            (data.broker_name, data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
            for data in route.queue_datas
        ),
        sorted((data.cluster, data.broker_name, sorted(data.broker_addrs.items())) for data in route.broker_datas),
    )


def find_address(
    addresses: Mapping[int, str], broker_id: int = MASTER_ID, *, only_this_broker: bool = False
) -> tuple[int, str] | None:
    """(broker id, address) to read from: the one asked for, the next slave, else the lowest id there is.

    Source: RocketMQ 4.9 `MQClientInstance#findBrokerAddressInSubscribe`.
    """
    wanted = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
    for candidate in wanted:
        if candidate in addresses:
            return candidate, addresses[candidate]
    if only_this_broker or not addresses:
        return None
    lowest = min(addresses)
    return lowest, addresses[lowest]


def vip_address(address: str) -> str:
    """The VIP channel is the port two below; it serves everything but pulls. Without a port there is none."""
    host, _, port = address.rpartition(":")
    number = int_or(port, 0)
    return f"{host}:{number - 2}" if number > 2 else address
