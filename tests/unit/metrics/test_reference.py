"""docs/run/metrics.md: a name says the kind of its metric, as the page promises."""

from __future__ import annotations

import ast
import re

from rocketpy.metrics.counters import Kind
from rocketpy.metrics.exporter import EXPORTER_METRICS, RUNTIME_LABELS, RUNTIME_METRICS
from rocketpy.metrics.reference import page
from rocketpy.metrics.rocketmq5 import ROCKETMQ5_METRICS
from rocketpy.metrics.table import NAMESRV_METRICS, OWN_METRICS
from tests.support.rules import ROOT, hold, name_of, nodes_of

OF_THE_EXPORTER = """
broker_tps broker_qps broker_commitlog_diff producer_tps producer_message_size producer_offset producer_count
topic_retry_offset topic_dlq_offset consumer_tps consumer_message_size consumer_offset send_back_nums
group_consume_tps group_consume_total_offset group_get_latency_by_storetime group_diff group_retrydiff group_dlqdiff
group_count client_consume_fail_msg_count client_consume_fail_msg_tps client_consume_ok_msg_tps client_consume_rt
client_consumer_pull_rt client_consumer_pull_tps brokeruntime_pmdt_0ms brokeruntime_pmdt_10stomore
brokeruntime_msg_put_total_today_now brokeruntime_put_latency_999 brokeruntime_getfound_tps60
brokeruntime_gettransfered_tps600 brokeruntime_send_threadpool_queue_size brokeruntime_query_threadpool_queue_capacity
brokeruntime_pull_threadpoolqueue_headwait_timemills brokeruntime_earliest_message_timestamp
"""
OF_ROCKETMQ5 = """
processor_watermark broker_permission topic_number consumer_group_number messages_in_total throughput_in_total
messages_out_total throughput_out_total message_size topic_create_execution_time consumer_group_create_execution_time
producer_connections consumer_connections consumer_lag_messages consumer_lag_latency consumer_inflight_messages
consumer_queueing_latency consumer_ready_messages send_to_dlq_messages_total commit_messages_total
rollback_messages_total finish_message_latency half_messages rpc_latency storage_size storage_flush_behind_bytes
storage_dispatch_behind_bytes storage_message_reserve_time timer_enqueue_lag timer_enqueue_latency timer_dequeue_lag
timer_dequeue_latency timing_messages timer_message_snapshot timer_enqueue_total timer_dequeue_total
delay_message_latency pop_revive_lag pop_buffer_scan_time_consume proxy_up
"""


def test_names_with_total_are_counters() -> None:
    for metric in (*OWN_METRICS, *NAMESRV_METRICS, *ROCKETMQ5_METRICS):
        assert metric.exposed_name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
    assert {metric.kind for metric in (*EXPORTER_METRICS, *RUNTIME_METRICS)} == {Kind.GAUGE}


def test_every_metric_is_on_the_page() -> None:
    """Also one whose row no table holds."""
    on_page = set(re.findall(r"`(rocket\w+)`", (ROOT / "docs" / "run" / "metrics.md").read_text()))
    named = {
        (node.value, name_of(path))
        for path in sorted((ROOT / "rocketpy" / "metrics").glob("*.py"))
        for node in nodes_of(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"rocket(py|mq)_\w*[a-z]", node.value)
    }
    assert len(named) > 100, "the rule finds no metrics"
    missing = (f"{place}: {name}" for name, place in sorted(named) if not {name, f"{name}_total"} & on_page)
    hold(missing, "put the row into a table of rocketpy/metrics, and run `make docs`")


def test_histograms_are_marked_and_labels_shown() -> None:
    lines = page().splitlines()
    marked = [line.split("`")[1] for line in lines if line.startswith("- `") and ": Histogram. " in line]
    assert marked == ["rocketpy_send_latency_seconds", "rocketpy_timer_lateness_seconds", "rocketmq_rpc_latency"]
    assert "- `rocketpy_consumer_lag_messages` {group, topic}: Unconsumed messages." in lines
    assert "- `rocketpy_broker_groups`: Subscription groups." in lines
    assert lines.index("With the label worker.") < lines.index(
        "- `rocketpy_send_bytes_total`: Bytes appended to the CommitLog."
    )
    assert f"Labels of the metrics below: {', '.join(RUNTIME_LABELS)}." in lines


def test_each_name_of_the_references_is_served_or_said_to_be_missing() -> None:
    """A board made for an exporter of RocketMQ has no panel that is empty without a word on the page.

    Source: RocketMQ 5.x `BrokerMetricsManager`, `DefaultStoreMetricsManager`, `PopMetricsManager`; rocketmq-exporter
    `RMQMetricsCollector`."""
    text = " ".join(page().split())
    mentioned = set(re.findall(r"`(?:rocketmq)?_(\w+\*?)`", text))
    missing = [
        name
        for name in (*OF_THE_EXPORTER.split(), *OF_ROCKETMQ5.split())
        if not {name, f"{name.partition('_')[0]}_*"} & mentioned
    ]
    assert missing == []
