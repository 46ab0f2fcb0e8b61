"""Exports of a cluster to files: topics and groups, settings, figures."""

from __future__ import annotations

from pathlib import Path

import click

from ..admin import Admin
from ..base import command, option
from ..exports import (
    cluster_groups,
    cluster_topics,
    configs,
    metrics,
    user_groups,
    user_topics,
    write_export,
)
from ..java_files import EXPORT_DIRECTORY
from ..output import Output

TOPICS_FILE, GROUPS_FILE = "topic.json", "subscriptionGroup.json"


def tell(out: Output, path: Path) -> None:
    out.done(f"export {path} success", path=str(path))


@command(example="mqadmin exportMetadata -n 127.0.0.1:9876 -c DefaultCluster -f ./export")
@option("-c", "--clusterName", help="All masters of this cluster; numbers of queues are sums over them.")
@option("-b", "--brokerAddr", help="One broker, host:port; with -t or -g.")
@option("-f", "--filePath", default=str(EXPORT_DIRECTORY), show_default=True, help="Directory for the file.")
@option("-t", "--topic", to="only_topics", is_flag=True, help="Topics only.")
@option("-g", "--subscriptionGroup", to="only_groups", is_flag=True, help="Groups only.")
@option("-s", "--specialTopic", is_flag=True, help="With retry and dead letter topics.")
async def export_metadata(
    admin: Admin,
    out: Output,
    cluster_name: str | None,
    broker_addr: str | None,
    file_path: str,
    only_topics: bool,
    only_groups: bool,
    special_topic: bool,
) -> None:
    """Write the settings of topics and groups to topic.json, subscriptionGroup.json or metadata.json."""
    directory = Path(file_path)
    if broker_addr is not None:
        if only_topics:
            topics = await user_topics(admin, broker_addr, with_special=special_topic)
            tell(out, write_export(directory, TOPICS_FILE, topics))
        elif only_groups:
            tell(out, write_export(directory, GROUPS_FILE, await user_groups(admin, broker_addr)))
        else:
            raise click.UsageError("-b (broker address) needs -t (topics) or -g (groups)")
        return
    if cluster_name is None:
        raise click.UsageError("either -b (broker address) or -c (cluster) is required")
    masters = await admin.addresses_of(cluster_name)
    content: dict[str, object] = {"exportTime": admin.instance.now_ms()}
    if only_topics or not only_groups:
        content["topicConfigTable"] = await cluster_topics(admin, masters, with_special=special_topic)
    if only_groups or not only_topics:
        content["subscriptionGroupTable"] = await cluster_groups(admin, masters)
    name = TOPICS_FILE if only_topics else GROUPS_FILE if only_groups else "metadata.json"
    tell(out, write_export(directory, name, content))


@command(example="mqadmin exportConfigs -n 127.0.0.1:9876 -c DefaultCluster -f ./export")
@option("-c", "--clusterName", required=True, help="Cluster.")
@option("-f", "--filePath", default=str(EXPORT_DIRECTORY), show_default=True, help="Directory for the file.")
async def export_configs(admin: Admin, out: Output, cluster_name: str, file_path: str) -> None:
    """Write important settings of a cluster's masters to configs.json."""
    tell(out, write_export(Path(file_path), "configs.json", await configs(admin, cluster_name)))


@command(example="mqadmin exportMetrics -n 127.0.0.1:9876 -c DefaultCluster -f ./export")
@option("-c", "--clusterName", required=True, help="Cluster.")
@option("-f", "--filePath", default=str(EXPORT_DIRECTORY), show_default=True, help="Directory for the file.")
async def export_metrics(admin: Admin, out: Output, cluster_name: str, file_path: str) -> None:
    """Write figures for the sizing of a cluster to metrics.json."""
    tell(out, write_export(Path(file_path), "metrics.json", await metrics(admin, cluster_name)))
