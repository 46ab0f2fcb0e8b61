"""`python deploy/grafana/dashboards.py` writes the dashboards beside it, from one row for each panel.

A panel has a title, the unit of its values in Grafana's spelling, and queries by their legend. `make test-deploy` runs
each query in a Prometheus that scrapes real brokers, and fails if one returns nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
WIDTH, HEIGHT = 8, 7  # of a panel, in Grafana's grid of 24 columns
BROKERS = '{instance=~"$instance"}'
RATE = f"{BROKERS}[$__rate_interval]"
GROUPS = '{instance=~"$instance",group=~"$group"}'


class Panel(NamedTuple):
    title: str
    unit: str
    queries: dict[str, str]  # by legend


def rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}{RATE}))"


def latency(quantile: float) -> str:
    buckets = f"sum by (instance, le) (rate(rocketpy_send_latency_seconds_bucket{RATE}))"
    return f"histogram_quantile({quantile}, {buckets})"


def behind(offset: str) -> str:
    return f"rocketpy_store_published_offset_bytes{BROKERS} - rocketpy_store_{offset}_offset_bytes{BROKERS}"


def or_zero(query: str) -> str:
    """A figure that has no series before its first event."""
    return f"({query}) or vector(0)"


BROKER = (
    Panel("Messages stored", "cps", {"{{instance}}": rate("rocketpy_send_messages_total")}),
    Panel("Messages read", "cps", {"{{instance}}": rate("rocketpy_pull_messages_total")}),
    Panel("Send latency", "s", {"{{instance}} p50": latency(0.5), "{{instance}} p99": latency(0.99)}),
    Panel("Network", "Bps", {
        "{{instance}} in": rate("rocketpy_remoting_received_bytes_total"),
        "{{instance}} out": rate("rocketpy_remoting_sent_bytes_total"),
    }),
    Panel("Connections", "short", {"{{instance}}": f"sum by (instance) (rocketpy_remoting_connections{BROKERS})"}),
    Panel("Waiting requests", "short", {"{{instance}} {{pool}}": f"rocketpy_pool_waiting_requests{BROKERS}"}),
    Panel("Errors", "cps", {
        "{{instance}} failed sends": rate("rocketpy_send_failures_total"),
        "{{instance}} busy": rate("rocketpy_worker_busy_replies_total"),
        "{{instance}} bad frames": rate("rocketpy_remoting_frames_bad_total"),
    }),
    Panel("Behind the log", "bytes", {
        "{{instance}} not on the disk": behind("durable"),
        "{{instance}} not in queues": behind("dispatched"),
    }),
    Panel("Time in flushes", "percentunit", {"{{instance}}": rate("rocketpy_store_flush_seconds_total")}),
    Panel("Disk used", "percentunit", {"{{instance}}": f"rocketpy_store_disk_used_ratio{BROKERS}"}),
    Panel("Memory", "bytes", {"{{instance}} {{worker}}": f"rocketpy_worker_pss_bytes{BROKERS}"}),
    Panel("Restarts and faults", "short", {
        "{{instance}} {{worker}}": f"increase(rocketpy_worker_restarts_total{RATE})",
        "{{instance}} {{place}}": or_zero(f"increase(rocketpy_broker_faults_total{RATE})"),
    }),
)  # fmt: skip

CLUSTER = (
    Panel("Servers that answer", "short", {"{{job}}": 'sum by (job) (up{job=~"rocketpy-(broker|namesrv)"})'}),
    Panel("Brokers", "short", {"{{cluster}} {{broker}} {{version}}": f"rocketpy_build_info{BROKERS}"}),
    Panel("Alerts", "short", {
        "{{alertname}}": or_zero('count by (alertname) (ALERTS{alertstate="firing",alertname=~"Rocketpy.*"})'),
    }),
    Panel("Messages stored, whole cluster", "cps", {"stored": "sum(instance:rocketpy_send_messages:rate1m)"}),
    Panel("Messages read, whole cluster", "cps", {"read": "sum(instance:rocketpy_pull_messages:rate1m)"}),
    Panel("Largest topics", "short", {"{{topic}}": f"topk(10, sum by (topic) (rocketpy_topic_messages{BROKERS}))"}),
    Panel("Topics and groups", "short", {
        "{{instance}} topics": f"rocketpy_broker_topics{BROKERS}",
        "{{instance}} groups": f"rocketpy_broker_groups{BROKERS}",
    }),
    Panel("Last registration", "s", {
        "{{instance}}": f"rocketpy_clock_seconds{BROKERS} - rocketpy_registration_last_success_seconds{BROKERS}",
    }),
    Panel("Name servers: brokers and topics", "short", {
        "{{instance}} brokers": "rocketpy_namesrv_brokers",
        "{{instance}} topics": "rocketpy_namesrv_topics",
    }),
    Panel("Name servers: requests", "reqps", {
        "{{instance}} {{code}}": "rate(rocketpy_namesrv_requests_total[$__rate_interval])",
    }),
)  # fmt: skip

GROUP = (
    Panel("Lag", "short", {"{{group}} {{topic}}": f"sum by (group, topic) (rocketpy_consumer_lag_messages{GROUPS})"}),
    Panel("Age of the oldest unconsumed message", "s", {
        "{{group}} {{topic}}": f"max by (group, topic) (rocketpy_consumer_oldest_age_seconds{GROUPS})",
    }),
    Panel("Log behind the group", "bytes", {
        "{{group}} {{topic}}": f"max by (group, topic) (rocketpy_consumer_behind_bytes{GROUPS})",
    }),
    Panel("Messages read, last minute", "cps", {
        "{{group}} {{topic}}": f"sum by (group, topic) (rocketmq_consumer_tps{GROUPS})",
    }),
    Panel("Offsets", "short", {"{{group}} {{topic}}": f"sum by (group, topic) (rocketmq_consumer_offset{GROUPS})"}),
    Panel("Members", "short", {"{{group}}": f"count by (group) (rocketmq_group_count{GROUPS})"}),
    Panel("Retries and dead letters", "short", {
        "{{group}} sent back, last minute": f"sum by (group) (rocketmq_send_back_nums{GROUPS})",
        "{{group}} dead letters": or_zero(f"sum by (group) (rocketmq_topic_dlq_offset{GROUPS})"),
    }),
    Panel("Differing subscriptions", "short", {
        "{{group}}": or_zero(f"rocketpy_group_differing_subscriptions{GROUPS}"),
    }),
    Panel("Transactions", "short", {"{{instance}} open": f"rocketpy_transaction_open_messages{BROKERS}"}),
)  # fmt: skip

REPLICATION = (
    Panel("Slaves", "short", {"{{instance}} {{state}}": f"rocketpy_ha_slaves{BROKERS}"}),
    Panel("Lag of slaves", "bytes", {"{{instance}} {{slave}}": f"rocketpy_ha_lag_bytes{BROKERS}"}),
    Panel("Time without an acknowledgement", "s", {"{{instance}} {{slave}}": f"rocketpy_ha_lag_seconds{BROKERS}"}),
    Panel("Log sent to slaves", "Bps", {"{{instance}}": rate("rocketpy_ha_transfer_bytes_total")}),
    Panel("Followers", "short", {"{{instance}} {{state}}": f"rocketpy_ha_following{BROKERS} == 1"}),
    Panel("Connections of slaves closed", "short", {
        "{{instance}} {{reason}}": f"increase(rocketpy_ha_connections_closed_total{RATE})",
    }),
    Panel("Failover: states", "short", {"{{instance}} {{state}}": f"rocketpy_ha_member{BROKERS} == 1"}),
    Panel("Failover: epoch", "short", {"{{instance}}": f"rocketpy_ha_epoch{BROKERS}"}),
    Panel("Failover: members in sync", "short", {"{{instance}}": f"rocketpy_ha_in_sync_members{BROKERS}"}),
    Panel("Failover: rest of the lease", "s", {"{{instance}}": f"rocketpy_ha_lease_remaining_seconds{BROKERS}"}),
    Panel("Failover: changes of the role", "short", {
        "{{instance}}": f"increase(rocketpy_ha_role_changes_total{RATE})",
    }),
    Panel("etcd: database", "bytes", {"{{instance}}": f"rocketpy_ha_etcd_database_bytes{BROKERS}"}),
)  # fmt: skip

SPARK = (
    Panel("Messages behind", "short", {
        "{{query}} {{topic}}": 'rocketpy_spark_lag_messages{queues="sum"}',
        "{{query}} {{topic}} worst queue": 'rocketpy_spark_lag_messages{queues="max"}',
    }),
    Panel("Bytes behind", "bytes", {"{{query}} {{topic}}": 'rocketpy_spark_lag_bytes{queues="sum"}'}),
    Panel("Age of the oldest unread message", "s", {
        "{{query}} {{topic}}": 'rocketpy_spark_lag_seconds{queues="max"}',
    }),
    Panel("Rows read", "cps", {"{{query}}": "rate(rocketpy_spark_rows_total[$__rate_interval])"}),
    Panel("Time of a micro-batch", "s", {"{{query}}": "rocketpy_spark_batch_seconds"}),
    Panel("Running", "short", {"{{query}}": "rocketpy_spark_running"}),
)  # fmt: skip

DASHBOARDS = {"broker": BROKER, "cluster": CLUSTER, "groups": GROUP, "replication": REPLICATION, "spark": SPARK}


def variable(name: str, query: str) -> dict[str, Any]:
    """Return a choice of values above the dashboard, all of them at first."""
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def panel(number: int, row: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": source}
        for at, (legend, query) in enumerate(row.queries.items())
    ]
    across = 24 // WIDTH
    return {
        "id": number + 1,
        "title": row.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": number % across * WIDTH, "y": number // across * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": row.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def dashboard(name: str, rows: Sequence[Panel]) -> str:
    """Return the JSON that Grafana imports, a panel in each line."""
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
    ]
    if name != "spark":
        variables.append(variable("instance", "label_values(rocketpy_build_info, instance)"))
    if name == "groups":
        variables.append(variable("group", "label_values(rocketpy_consumer_lag_messages, group)"))
    head = {
        "uid": f"rocketpy-{name}",
        "title": f"rocketpy: {name}",
        "tags": ["rocketpy"],
        "schemaVersion": 38,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
    }
    panels = ",\n".join(json.dumps(panel(number, row)) for number, row in enumerate(rows))
    return f'{json.dumps(head)[:-1]},\n"panels": [\n{panels}\n]}}\n'


if __name__ == "__main__":
    for name, rows in DASHBOARDS.items():
        (HERE / f"{name}.json").write_text(dashboard(name, rows))
