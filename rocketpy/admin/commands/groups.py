"""Groups: settings, members."""

from __future__ import annotations

from typing import Any

import click

from rocketpy.codes import version_name
from rocketpy.errors import RocketError
from rocketpy.message.names import dlq_topic, retry_topic
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig

from ..admin import Admin
from ..base import EXIT_NOT_FOUND, WATCH, broker_or_cluster, brokers_named, command, option
from ..core import NotFound
from ..group_requests import GroupChange, change_group
from ..java_text import group_fields, group_text, language_name
from ..output import Column, Output, Table

CONNECTIONS = Table(
    (Column("ClientId", 36, gap=1), Column("ClientAddr", 22, gap=1), Column("Language", 10, gap=1), Column("Version"))
)
SUBSCRIPTIONS = Table((Column("Topic", 20, gap=1), Column("SubExpression")))


@command(example="mqadmin updateSubGroup -n 127.0.0.1:9876 -c DefaultCluster -g billing -q 1")
@broker_or_cluster()
@option("-g", "--groupName", required=True, help="Group.")
@option("-s", "--consumeEnable", type=bool, help="May consume at all (true, false).")
@option("-m", "--consumeFromMinEnable", type=bool, help="May start at the oldest message.  [new group: false]")
@option("-d", "--consumeBroadcastEnable", type=bool, help="May broadcast.  [new group: false]")
@option("-q", "--retryQueueNums", type=click.IntRange(0), help="Queues of the retry topic.")
@option("-r", "--retryMaxTimes", type=click.IntRange(-1), help="Deliveries before a message is a dead letter.")
@option("-i", "--brokerId", type=click.IntRange(0), help="Broker id to read from.")
@option("-w", "--whichBrokerWhenConsumeSlowly", type=click.IntRange(0), help="Broker id to read from when far behind.")
@option("-a", "--notifyConsumerIdsChanged", type=bool, help="Tell members of changes at once.")
@click.option("--replace", is_flag=True, help="Reset settings that are not given, as Java's mqadmin does.")
async def update_sub_group(
    admin: Admin,
    out: Output,
    broker_addr: str | None,
    cluster_name: str | None,
    group_name: str,
    replace: bool,
    **change: Any,
) -> None:
    """Create a subscription group or change its settings; settings that are not given stay as they are."""
    config = SubscriptionGroupConfig(group_name=group_name)
    for address in await brokers_named(admin, broker_addr, cluster_name):
        config = await change_group(admin, address, group_name, GroupChange(**change), replace=replace)
        out.line(f"create subscription group to {address} success.")
        out.record(
            address=address,
            group=group_name,
            consume_enable=config.consume_enable,
            retry_queue_nums=config.retry_queue_nums,
            retry_max_times=config.retry_max_times,
        )
    out.line(group_text(config))


@command(
    example="mqadmin deleteSubGroup -n 127.0.0.1:9876 -c DefaultCluster -g billing",
    destructive="Delete group {group_name} (with -c also its retry and dead letter topics)?",
)
@broker_or_cluster()
@option("-g", "--groupName", required=True, help="Group.")
@option("-r", "--removeOffset", type=bool, default=False, help="Delete its offsets too (true, false).")
async def delete_sub_group(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None, group_name: str, remove_offset: bool
) -> None:
    """Delete a group; with -c also its retry and dead letter topics, and the dead letters in them."""
    for address in await brokers_named(admin, broker_addr, cluster_name):
        await admin.delete_group(address, group_name, remove_offset=remove_offset)
        text = f"delete subscription group [{group_name}] from broker [{address}]"
        where = f" in cluster [{cluster_name}]" if cluster_name and not broker_addr else ""
        out.done(f"{text}{where} success.", group=group_name, address=address)
    if broker_addr or cluster_name is None:
        return
    for topic in (retry_topic(group_name), dlq_topic(group_name)):
        try:
            await admin.delete_topic(topic, cluster_name)
        except RocketError as error:
            out.warn(f"{topic}: {error}")
            continue
        out.line(f"delete topic [{topic}] from cluster [{cluster_name}] success.")
        out.done(f"delete topic [{topic}] from NameServer success.", topic=topic)


@command(example="mqadmin getConsumerConfig -n 127.0.0.1:9876 -g billing")
@option("-g", "--groupName", required=True, help="Group.")
async def get_consumer_config(admin: Admin, out: Output, group_name: str) -> int | None:
    """Show a group's settings on every broker that knows it."""
    info = await admin.cluster_info()
    found = False
    for cluster, brokers in sorted(info.cluster_addr_table.items()):
        for broker_name in sorted(brokers):
            address = info.broker_addr_table[broker_name].master_addr
            config = (await admin.group_configs(address)).get(group_name) if address else None
            if config is None:
                continue
            found = True
            out.line(f"============================={cluster}:{broker_name}=============================")
            for key, value in group_fields(config):
                out.line(f"{key:<40}=  {value}")
            out.record(cluster=cluster, broker_name=broker_name, **dict(config.wire_members()))
    if not found:
        raise NotFound(f"no broker has the group {group_name}")
    return None


@command(example="mqadmin consumerConnection -n 127.0.0.1:9876 -g billing", watch=WATCH)
@option("-g", "--consumerGroup", required=True, help="Group.")
@option("-b", "--brokerAddr", help="Ask this broker only.  [all that have the group]")
async def consumer_connection(admin: Admin, out: Output, consumer_group: str, broker_addr: str | None) -> int | None:
    """Show a group's members, their subscriptions and how they consume."""
    connection = await admin.consumer_connection(consumer_group, broker_addr)
    out.table(
        CONNECTIONS,
        [
            (member.client_id, member.client_addr, language_name(member.language), version_name(member.version))
            for member in sorted(connection.connection_set, key=lambda member: member.client_id)
        ],
    )
    out.line()
    out.line("Below is subscription:")
    subscriptions = sorted(connection.subscription_table.items())
    out.table(SUBSCRIPTIONS, [(topic, data.sub_string) for topic, data in subscriptions])
    out.line()
    out.line(f"ConsumeType: {connection.consume_type}")
    out.line(f"MessageModel: {connection.message_model}")
    out.line(f"ConsumeFromWhere: {connection.consume_from_where}")
    out.record(
        consume_type=connection.consume_type,
        message_model=connection.message_model,
        consume_from_where=connection.consume_from_where,
        differing_subscriptions=[dict(each.wire_members()) for each in connection.differing_subscriptions or ()],
    )
    for each in connection.differing_subscriptions or ():
        out.warn(f"WARN: {each.members} members subscribe like {each.client_id}: {each.text}")
    return None if connection.connection_set else EXIT_NOT_FOUND


@command(example="mqadmin producerConnection -n 127.0.0.1:9876 -g orders -t OrderTopic", watch=WATCH)
@option("-g", "--producerGroup", required=True, help="Producer group.")
@option("-t", "--topic", required=True, help="A topic it sends to.")
async def producer_connection(admin: Admin, out: Output, producer_group: str, topic: str) -> None:
    """Show the members of a producer group."""
    connection = await admin.producer_connection(producer_group, topic)
    for number, member in enumerate(sorted(connection.connection_set, key=lambda member: member.client_id), 1):
        language, version = language_name(member.language), version_name(member.version)
        out.done(
            f"{number:04d}  {member.client_id:<32} {member.client_addr:<22} {language:<8} {version}",
            client_id=member.client_id,
            client_addr=member.client_addr,
            language=language,
            version=version,
        )


@command(example="mqadmin producer -n 127.0.0.1:9876 -b 127.0.0.1:10911", watch=WATCH)
@option("-b", "--broker", required=True, help="Broker address.")
async def producer(admin: Admin, out: Output, broker: str) -> None:
    """List all producers of a broker, by group."""
    table = (await admin.all_producers(broker)).data
    for group, members in sorted(table.items()):
        for member in members:
            language = language_name(member.language)
            out.done(
                f"producer group ({group}) instance : clientId={member.client_id},remoteIP={member.remote_ip}, "
                f"language={language}, version={member.version}, lastUpdateTimestamp={member.last_update_timestamp_ms}",
                group=group,
                client_id=member.client_id,
                remote_ip=member.remote_ip,
                language=language,
                version=version_name(member.version),
            )
