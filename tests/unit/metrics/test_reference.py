"""docs/run/metrics.md: a name says the kind of its metric, as the page promises."""

from __future__ import annotations

from rocketpy.metrics import table
from rocketpy.metrics.metric import Kind
from rocketpy.metrics.reference import page
from rocketpy.metrics.replication import REPLICATION_METRICS


def test_names_with_total_are_counters() -> None:
    counted = [row.metric for row in table.WORKER_COUNTERS]
    for metric in (*table.OWN_METRICS, *table.NAMESRV_METRICS, *REPLICATION_METRICS, *counted):
        assert metric.exposed_name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
    exporter = (*table.EXPORTER_METRICS, *(row.metric for row in table.RUNTIME_METRICS))
    assert {metric.kind for metric in exporter} == {Kind.GAUGE}


def test_histograms_are_marked_and_labels_shown() -> None:
    lines = page().splitlines()
    marked = [line.split("`")[1] for line in lines if line.startswith("| `") and "| Histogram. " in line]
    assert marked == ["rocketpy_send_latency_seconds", "rocketpy_timer_lateness_seconds"]
    assert "| `rocketpy_consumer_lag_messages` | group, topic | Unconsumed messages. |" in lines
    assert f"Labels of the metrics below: {', '.join(table.RUNTIME_LABELS)}." in lines
