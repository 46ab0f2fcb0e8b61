"""Topics: create, change, delete, show."""

from __future__ import annotations

import json
from typing import Any

import click

from rocketpy.client.allocation import Averagely, queue_order, share_of
from rocketpy.client.cluster.route import subscribe_queues
from rocketpy.errors import RocketError
from rocketpy.message.names import is_dlq_topic, is_retry_topic
from rocketpy.remoting.bodies.route import TopicRouteData

from ..admin import ORDER_TOPIC_CONFIG, Admin
from ..base import EXIT_PARTIAL, WATCH, broker_or_cluster, brokers_named, command, option
from ..core import NotFound
from ..java_text import pretty_json
from ..output import Column, Output, Table, java_map, time_text
from ..statistics import topic_figures
from ..topics import TopicChange, change_topic, config_text, put_order_conf

PERM = click.IntRange(2, 7)
TOPIC_STATUS = Table(
    (
        Column("Broker Name", 32),
        Column("QID", 4),
        Column("Min Offset", 20),
        Column("Max Offset", 20, gap=4),
        Column("Last Updated"),
    )
)
TOPIC_ROUTE = Table(
    (
        Column("ClusterName", 45, gap=1),
        Column("BrokerName", 32, gap=1),
        Column("BrokerAddrs", 50, gap=1),
        Column("ReadQueue", 10, gap=1),
        Column("WriteQueue", 11, gap=1),
        Column("Perm", 5),
    )
)
TOPIC_LIST = Table((Column("Cluster Name", 20), Column("Topic", 64), Column("Consumer Group", 64)))
TOPIC_LIST_HEADING = Table((Column("Cluster Name", 20), Column("Topic", 48), Column("Consumer Group", 48)))
ROUTE_RULE_WIDTH = 158


@command(example="mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t OrderTopic -r 8 -w 8")
@broker_or_cluster()
@option("-t", "--topic", required=True, help="Topic.")
@option("-r", "--readQueueNums", type=click.IntRange(1, 65535), help="Queues to read.  [new topic: 8]")
@option("-w", "--writeQueueNums", type=click.IntRange(1, 65535), help="Queues to write.  [new topic: 8]")
@option("-p", "--perm", type=PERM, help="2 write, 4 read, 6 both.  [new topic: 6]")
@option("-o", "--order", type=bool, help="Keep the queue list fixed on the name servers (true, false).")
@option("-u", "--unit", type=bool, help="Unit topic.")
@option("-s", "--hasUnitSub", type=bool, help="Has unit subscriptions.")
@click.option("--replace", is_flag=True, help="Reset settings that are not given, as Java's mqadmin does.")
async def update_topic(
    admin: Admin,
    out: Output,
    broker_addr: str | None,
    cluster_name: str | None,
    topic: str,
    replace: bool,
    **change: Any,
) -> None:
    """Create a topic or change its settings; settings that are not given stay as they are."""
    if broker_addr and cluster_name:
        raise click.UsageError("give either -b (broker address) or -c (cluster), not both")
    wanted = TopicChange(**change)
    addresses = await brokers_named(admin, broker_addr, cluster_name)
    queue_nums: dict[str, int] = {}
    for address in addresses:
        config = await change_topic(admin, address, topic, wanted, replace=replace)
        if wanted.order:
            queue_nums[await _broker_name(admin, address)] = config.write_queue_nums
        order_text = await _put_order(admin, topic, queue_nums, "broker") if broker_addr else ""
        out.line(f"{order_text}create topic to {address} success.")
        out.record(
            address=address,
            topic=topic,
            perm=config.perm,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            order=config.order,
        )
    order_text = "" if broker_addr else await _put_order(admin, topic, queue_nums, "cluster")
    out.line(order_text + config_text(config))


async def _put_order(admin: Admin, topic: str, queue_nums: dict[str, int], what: str) -> str:
    """Write the order configuration of a `broker` or a `cluster`. Returns: Java's text of it, without a line end."""
    if not queue_nums:
        return ""
    value = await put_order_conf(admin, topic, queue_nums, merge=what == "broker")
    return f"set {what} orderConf. isOrder=true, orderConf=[{value}]"


def _route_members(route: TopicRouteData) -> dict[str, object]:
    """A route with its broker ids as numbers, as Java prints it; on the wire they are quoted."""
    brokers = [{**dict(data.wire_members()), "brokerAddrs": data.broker_addrs} for data in route.broker_datas]
    return {**dict(route.wire_members()), "brokerDatas": brokers}


async def _broker_name(admin: Admin, address: str) -> str:
    info = await admin.cluster_info()
    for name, data in info.broker_addr_table.items():
        if address in data.broker_addrs.values():
            return name
    raise NotFound(f"no broker with the address {address} is registered")


@command(
    example="mqadmin deleteTopic -n 127.0.0.1:9876 -c DefaultCluster -t OrderTopic",
    destructive="Delete topic {topic} and its messages from cluster {cluster_name}?",
)
@option("-t", "--topic", required=True, help="Topic.")
@option("-c", "--clusterName", required=True, help="Cluster.")
async def delete_topic(admin: Admin, out: Output, topic: str, cluster_name: str) -> None:
    """Delete a topic from the cluster's brokers, then from every name server."""
    await admin.delete_topic(topic, cluster_name)
    out.line(f"delete topic [{topic}] from cluster [{cluster_name}] success.")
    out.line(f"delete topic [{topic}] from NameServer success.")
    out.record(topic=topic, cluster=cluster_name, deleted=True)


@command(example="mqadmin updateTopicPerm -n 127.0.0.1:9876 -c DefaultCluster -t OrderTopic -p 4")
@broker_or_cluster()
@option("-t", "--topic", required=True, help="Topic.")
@option("-p", "--perm", type=PERM, required=True, help="2 write, 4 read, 6 both.")
async def update_topic_perm(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None, topic: str, perm: int
) -> None:
    """Change a topic's permission; queue numbers of each broker stay as they are."""
    for address in await brokers_named(admin, broker_addr, cluster_name):
        present = (await admin.topic_configs(address)).get(topic)
        if present is None:
            raise NotFound(f"broker {address} has no topic {topic}")
        if present.perm == perm and broker_addr:  # with -c Java sets it again, and says so
            out.line("new perm equals to the old one!")
        else:
            config = await change_topic(admin, address, topic, TopicChange(perm=perm))
            out.line(f"update topic perm from {present.perm} to {perm} in {address} success.")
            if broker_addr:
                out.line(f"{config_text(config)}.")
        out.record(address=address, topic=topic, old_perm=present.perm, new_perm=perm)


@command(example="mqadmin topicRoute -n 127.0.0.1:9876 -t OrderTopic -l", watch=WATCH)
@option("-t", "--topic", required=True, help="Topic.")
@option("-l", "--list", to="as_list", is_flag=True, help="A table instead of JSON.")
async def topic_route(admin: Admin, out: Output, topic: str, as_list: bool) -> None:
    """Show where a topic lives: its brokers, queues and permissions."""
    route = await admin.route(topic)
    if not as_list:
        out.line(pretty_json(_route_members(route)))
        if out.is_json:
            out.record(**json.loads(route.encode()))
        return
    brokers = {data.broker_name: data for data in route.broker_datas}
    queue_datas = sorted(route.queue_datas, key=lambda data: data.broker_name)
    out.table(
        TOPIC_ROUTE,
        [
            (
                brokers[data.broker_name].cluster,
                data.broker_name,
                java_map(brokers[data.broker_name].broker_addrs),
                data.read_queue_nums,
                data.write_queue_nums,
                data.perm,
            )
            for data in queue_datas
            if data.broker_name in brokers
        ],
    )
    out.line("-" * ROUTE_RULE_WIDTH)
    totals = Table(TOPIC_ROUTE.columns, with_heading=False)
    out.line(
        totals.line(
            (
                "Total:",
                len(brokers),
                "",
                sum(data.read_queue_nums for data in queue_datas),
                sum(data.write_queue_nums for data in queue_datas),
                "",
            )
        )
    )


@command(example="mqadmin topicStatus -n 127.0.0.1:9876 -t OrderTopic", watch=WATCH)
@option("-t", "--topic", required=True, help="Topic.")
async def topic_status(admin: Admin, out: Output, topic: str) -> None:
    """Show the offsets of a topic's queues and when each was last written."""
    stats = await admin.topic_stats(topic)
    if not stats:
        raise NotFound(f"topic {topic} has no queue")
    out.table(
        TOPIC_STATUS,
        [
            (
                queue.broker_name,
                queue.queue_id,
                stats[queue].min_offset,
                stats[queue].max_offset,
                time_text(at_ms) if (at_ms := stats[queue].last_update_timestamp_ms) > 0 else "",
            )
            for queue in sorted(stats, key=queue_order)
        ],
    )


@command(example="mqadmin topicClusterList -n 127.0.0.1:9876 -t OrderTopic")
@option("-t", "--topic", required=True, help="Topic.")
async def topic_cluster_list(admin: Admin, out: Output, topic: str) -> None:
    """List the clusters that have a topic."""
    for cluster in sorted(await admin.clusters_of_topic(topic)):
        out.done(cluster, cluster=cluster)


@command(example="mqadmin topicList -n 127.0.0.1:9876", watch=WATCH)
@option("-c", "--clusterModel", is_flag=True, help="With cluster and consumer groups.")
async def topic_list(admin: Admin, out: Output, cluster_model: bool) -> int | None:
    """List all topics."""
    topics = await admin.topics()
    if not cluster_model:
        for topic in topics:
            out.done(topic, topic=topic)
        return None
    out.heading(TOPIC_LIST_HEADING)  # narrower than the rows, as in Java
    failed = 0
    shown = [topic for topic in topics if not is_retry_topic(topic) and not is_dlq_topic(topic)]
    for topic in out.steps(shown, "topics"):
        try:
            clusters = ",".join(sorted(await admin.clusters_of_topic(topic)))
            groups = sorted(await admin.who_consumes(topic))
        except RocketError as error:
            out.warn(f"{topic}: {error}")
            failed += 1
            clusters, groups = "", []
        for group in groups or [""]:
            out.row(TOPIC_LIST, (clusters, topic, group))
    return EXIT_PARTIAL if failed else None


@command(example="mqadmin updateOrderConf -n 127.0.0.1:9876 -t OrderTopic -m put -v 'broker-a:8;broker-b:8'")
@option("-t", "--topic", required=True, help="Topic.")
@option("-v", "--orderConf", help="broker:queues;broker:queues")
@option("-m", "--method", required=True, type=click.Choice(["put", "get", "delete"]), help="What to do.")
async def update_order_conf(admin: Admin, out: Output, topic: str, order_conf: str | None, method: str) -> None:
    """Put, get or delete the order configuration that fixes a topic's queue list."""
    if method == "put":
        if not order_conf:
            raise click.UsageError("please set orderConf with option -v.")
        await admin.put_kv(ORDER_TOPIC_CONFIG, topic, order_conf)
        out.done(f"update orderConf success. topic=[{topic}], orderConf=[{order_conf}]", topic=topic, value=order_conf)
    elif method == "delete":
        await admin.delete_kv(ORDER_TOPIC_CONFIG, topic)
        out.done(f"delete orderConf success. topic=[{topic}]", topic=topic, value=None)
    else:
        value = await admin.kv(ORDER_TOPIC_CONFIG, topic)
        if value is None:
            raise NotFound(f"topic {topic} has no order configuration")
        out.done(f"get orderConf success. topic=[{topic}], orderConf=[{value}]", topic=topic, value=value)


@command(example="mqadmin allocateMQ -n 127.0.0.1:9876 -t OrderTopic -i 10.0.0.1,10.0.0.2")
@option("-t", "--topic", required=True, help="Topic.")
@option("-i", "--ipList", required=True, help="Consumers, separated by commas.")
async def allocate_mq(admin: Admin, out: Output, topic: str, ip_list: str) -> None:
    """Show how the averaging strategy would share the topic's queues among consumers."""
    shares = _shares(topic, await admin.route(topic), [ip.strip() for ip in ip_list.split(",") if ip.strip()])
    out.line(json.dumps({"result": shares}, separators=(",", ":")))
    out.record(result=shares)


def _shares(topic: str, route: TopicRouteData, consumers: list[str]) -> dict[str, list[dict[str, object]]]:
    queues = subscribe_queues(topic, route)
    return {
        consumer: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in share_of(Averagely(), consumer, queues, consumers)
        ]
        for consumer in consumers
    }


STATS_ALL = Table(
    (
        Column("Topic", 64),
        Column("Consumer Group", 64, gap=1),
        Column("Accumulation", 12, right=True, gap=1),
        Column("InTPS", 11, right=True, gap=1),
        Column("OutTPS", 11, right=True, gap=1),
        Column("InMsg24Hour", 14, right=True, gap=1),
        Column("OutMsg24Hour", 14, right=True),
    )
)


@command(example="mqadmin statsAll -n 127.0.0.1:9876 -a", watch=WATCH)
@option("-a", "--activeTopic", is_flag=True, help="Only topics with traffic.")
@option("-t", "--topic", help="One topic.  [all]")
async def stats_all(admin: Admin, out: Output, active_topic: bool, topic: str | None) -> int | None:
    """Production, consumption and backlog of every topic and group, over the last minute and day."""
    out.heading(STATS_ALL)
    failed = 0
    topics = [topic] if topic else [name for name in await admin.topics() if not is_retry_topic(name)]
    shown = [name for name in topics if not is_dlq_topic(name)]
    for name in out.steps(shown, "topics"):
        try:
            figures = await topic_figures(admin, name)
        except RocketError as error:
            out.warn(f"{name}: {error}")
            failed += 1
            continue
        for row in figures.rows(active_only=active_topic):
            out.row(STATS_ALL, row)
    return EXIT_PARTIAL if failed else None
