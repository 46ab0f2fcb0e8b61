"""The text of a scrape is, family by family, what prometheus_client writes of the same samples."""

from __future__ import annotations

import gzip
import math
import urllib.request

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from rocketpy.metrics.collector import BrokerCollector, RowCollector
from rocketpy.metrics.counters import Kind
from rocketpy.metrics.endpoint import serve
from rocketpy.metrics.exposition import number, usual_form
from rocketpy.metrics.families import registry_of
from rocketpy.metrics.metric import Metric
from rocketpy.metrics.snapshot import ConsumptionSnapshot, Snapshot, TopicSnapshot
from tests.support.cases import cases

from .test_collector import full_snapshot

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
ACCEPTED = ["", "*/*", "text/plain;version=0.0.4", "application/openmetrics-text", PROMETHEUS]


def theirs(collector: RowCollector[Snapshot], accept: str) -> str:
    return choose_encoder(accept)[0](registry_of(collector)).decode()


def ours(collector: RowCollector[Snapshot], accept: str) -> str:
    form = usual_form(accept)
    assert form is not None
    return collector.text(is_openmetrics=form.is_openmetrics).decode()


def families(text: str) -> list[str]:
    """The families, whose order is free, and the end."""
    head, *found = text.split("# HELP ")
    assert not head
    *found, last = found
    last, eof, rest = last.partition("# EOF\n")
    assert not rest
    return [*sorted([*found, last]), eof]


@pytest.mark.parametrize("accept", ACCEPTED)
def test_each_family_is_written_as_prometheus_client_does(accept: str) -> None:
    collector = BrokerCollector(full_snapshot)
    assert families(ours(collector, accept)) == families(theirs(collector, accept))


@pytest.mark.parametrize("accept", ACCEPTED)
def test_odd_names_and_values(accept: str) -> None:
    odd = 'a\\b"c\nd{}%é'
    row = ConsumptionSnapshot(group=odd, topic=odd, lag_messages=2**63, get_tps=math.nan, get_bytes_tps=math.inf)
    topics = [TopicSnapshot(topic=name, queues=-1, min_offset_sum=0, max_offset_sum=10**6) for name in (odd, "", "\\n")]
    snapshot = attrs.evolve(full_snapshot(), topics=topics, consumption=[row], cluster=odd)
    collector = BrokerCollector(lambda: snapshot)
    assert families(ours(collector, accept)) == families(theirs(collector, accept))


def test_the_help_of_a_family_is_escaped() -> None:
    for kind in (Kind.GAUGE, Kind.COUNTER):
        row: Metric[None] = Metric("m", kind, (), 'a "b" \\ c\nd', lambda _: [((), 1)])
        collector = RowCollector(lambda: None, [row])
        for accept in ACCEPTED:
            assert ours(collector, accept) == theirs(collector, accept)  # type: ignore[arg-type]


def test_a_family_without_samples_is_not_shown() -> None:
    assert "rocketpy_topic_queues" in ours(BrokerCollector(full_snapshot), "")
    assert "rocketpy_topic_queues" not in ours(BrokerCollector(lambda: attrs.evolve(full_snapshot(), topics=[])), "")


@given(st.floats() | st.integers(-(2**64), 2**64))
def test_numbers(value: float) -> None:
    assert number(value) == floatToGoString(value)


@cases("value", [0, 999_999, 999_999.5, 1_000_000, -1_000_000, 0.1 + 0.2, 1e-7, 1e16, math.inf, -math.inf])
def test_numbers_at_the_bounds_of_the_short_form(value: float) -> None:
    assert number(value) == floatToGoString(value)


KINDS = ["application/openmetrics-text", "text/plain", "text/html", "*/*", " text/plain "]
PARAMETERS = ["version=1.0.0", "version=0.0.4", "version=", "version=0", "version=2.0.0", "escaping=dots", "q=0.5"]
PARAMETERS += ["escaping=allow-utf-8", "escaping=underscores", "escaping=values", "escaping=unknown", "version"]
PARTS = st.tuples(st.sampled_from(KINDS), st.lists(st.sampled_from(PARAMETERS)))


@given(st.lists(PARTS.map(lambda part: ";".join([part[0], *part[1]]))).map(",".join))
def test_a_form_that_is_written_here_is_the_one_that_prometheus_client_chooses(accept: str) -> None:
    form = usual_form(accept)
    if form is not None:
        encoder, content_type = choose_encoder(accept)
        assert form.content_type == content_type
        assert form.is_openmetrics is encoder(CollectorRegistry()).endswith(b"# EOF\n")


def test_what_prometheus_asks_for_is_written_here() -> None:
    assert all(usual_form(accept) is not None for accept in ACCEPTED)


@pytest.mark.parametrize("accept", ["text/plain;version=abc", "text/plain;version=1.x", "text/plain;version=1."])
def test_a_version_that_is_no_number_counts_as_none(accept: str) -> None:
    """Fault: A scrape that asked for such a version was answered by status 500."""
    with serve("127.0.0.1", 0, BrokerCollector(full_snapshot)) as endpoint:
        assert answer(endpoint.port, Accept=accept)[0] == choose_encoder("text/plain")[1]
    metrics = usual_form(accept.replace("text/plain", "application/openmetrics-text"))
    assert metrics is not None and metrics.content_type == choose_encoder("application/openmetrics-text")[1]


def answer(port: int, path: str = "/metrics", **headers: str) -> tuple[str, str]:
    """Content type and text of a scrape."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as found:
        data = found.read()
        is_packed = found.headers.get("Content-Encoding") == "gzip"
        assert is_packed is ("Accept-Encoding" in headers)
        return str(found.headers["Content-Type"]), (gzip.decompress(data) if is_packed else data).decode()


def test_a_scrape_has_the_form_that_it_asks_for() -> None:
    collector = BrokerCollector(full_snapshot)
    with serve("127.0.0.1", 0, collector) as endpoint:
        for accept in ACCEPTED[1:]:
            kind, text = answer(endpoint.port, **{"Accept": accept, "Accept-Encoding": "gzip"})
            assert kind == choose_encoder(accept)[1]
            assert families(text) == families(theirs(collector, accept))
        accept = "application/openmetrics-text;version=1.0.0;escaping=dots"
        kind, text = answer(endpoint.port, Accept=accept)
        assert "rocketpy__broker__groups" in text and kind.endswith("dots")
        assert answer(endpoint.port, "/favicon.ico")[1] == ""
