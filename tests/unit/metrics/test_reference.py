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
