"""The analysis of message traces: the records that Python reads are those that SQL reads, and none counts twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.message.trace import EndTransaction, MessageKind, Pub, SubAfter, SubBefore, decode_records
from rocketpy.spark.jobs import trace as job
from tests.support.broker import running_broker
from tests.support.readers import wait_for_readers

T0 = 1_700_000_000_000


def pub(msg_id: str, at_ms: int, cost_ms: int = 5, topic: str = "Orders", is_success: bool = True) -> str:
    place = ("", "", "10.0.0.1:10911", 100, cost_ms, MessageKind.NORMAL, "", is_success)
    return Pub(T0 + at_ms, "r", "makers", topic, msg_id, *place).encode()


def before(request: str, msg_id: str, at_ms: int, retries: int = 0, group: str = "readers") -> str:
    return SubBefore(T0 + at_ms, "r", group, request, msg_id, retries, "").encode()


def after(request: str, msg_id: str, cost_ms: int, is_success: bool = True) -> str:
    return SubAfter(request, msg_id, cost_ms, is_success, "", 0).encode()


BODIES = [
    pub("a", 0) + pub("b", 10, cost_ms=20) + pub("c", 20, is_success=False),
    pub("a", 0) + before("1", "a", 105) + after("1", "a", 7),  # the send is there twice
    before("2", "b", 1_030) + after("2", "b", 30, is_success=False) + before("3", "b", 61_030, retries=1),
    before("1", "a", 105) + after("1", "a", 7),  # and so is a delivery
    before("4", "lost", 70_000) + after("4", "lost", 1) + pub("d,e", 65_000),
    "EndTransaction\x011\x02Pub\x01torn\x02Pub\x01x\x01\x02\x02",
]


def frame(spark: Any, bodies: list[bytes]) -> Any:
    return spark.createDataFrame([(body,) for body in bodies], "body binary")


@pytest.fixture(scope="module")
def report(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    plot = tmp_path_factory.mktemp("plots") / "new/trace.png"
    return job.analyse(frame(spark, [body.encode() for body in BODIES]), plot=plot)


def row(rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
    (found,) = [one for one in rows if all(one[name] == value for name, value in wanted.items())]
    return found


def test_figures_of_each_topic_and_group(report: Any) -> None:
    assert report.is_sound
    assert report.totals["messages_sent"] == 5 and report.totals["deliveries"] == 4
    assert report.totals["not_consumed"] == 2 and report.totals["send_unknown"] == 1
    sends = row(report.tables["sends"], topic="Orders", group="makers")
    assert (sends["sends"], sends["failed"], sends["not_consumed"]) == (5, 1, 2)
    assert (sends["cost_p50_ms"], sends["cost_max_ms"]) == (5, 20)
    consumed = row(report.tables["consumptions"], topic="Orders")
    assert (consumed["deliveries"], consumed["failed"], consumed["unfinished"], consumed["redelivered"]) == (3, 1, 1, 1)
    assert (consumed["wait_p50_ms"], consumed["wait_max_ms"]) == (1_000, 61_000)
    assert consumed["consume_max_ms"] == 30
    assert row(report.tables["consumptions"], topic="?")["send_unknown"] == 1
    assert [one["msg_id"] for one in report.tables["slowest"]] == ["b", "b", "a", "lost"]


def test_figures_over_time_and_their_plot(report: Any) -> None:
    series = report.tables["over_time"]
    assert [one["second"] - T0 // 1000 for one in series] == [-20, 40]  # minutes of the clock
    assert [(one["sends"], one["deliveries"]) for one in series] == [(3, 2), (2, 2)]
    assert report.files[0].read_bytes().startswith(b"\x89PNG")


def test_more_records_than_are_counted_exactly(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "EXACT_MAX", 3)
    report = job.analyse(frame(spark, [body.encode() for body in BODIES]))
    assert report.totals["percentiles"] == "approximate" and report.is_sound
    assert row(report.tables["sends"], topic="Orders")["cost_max_ms"] == 20


def test_rolled_back_messages_are_not_missed_and_no_number_ends_the_job(spark: Any) -> None:
    """Fault: A trace record with a huge time ended `pipeline trace` at every start."""
    ended = EndTransaction(T0, "r", "makers", "Orders", "x", "", "", "", 2, "t", "ROLLBACK_MESSAGE", False).encode()
    least = before("9", "z", -T0 - (1 << 63)) + after("9", "z", (1 << 63) - 1)
    bodies = [pub("x", 0) + pub("y", 0) + pub("z", 0, cost_ms=(1 << 63) - 1), ended + least]
    found = job.analyse(frame(spark, [body.encode() for body in bodies]))
    sends = row(found.tables["sends"], topic="Orders", group="makers")
    assert (sends["sends"], sends["rolled_back"], sends["not_consumed"]) == (3, 1, 1)


def test_nothing_to_analyse(spark: Any, tmp_path: Path) -> None:
    report = job.analyse(frame(spark, []), plot=tmp_path / "empty.png")
    assert report.is_sound and report.totals["messages_sent"] == 0 and report.files[0].exists()


def test_sql_reads_what_python_reads(spark: Any) -> None:
    """Also numbers that are none, fields too many, and bytes that are no text."""
    odd = "Pub\x01-\x01r\x01g\x01T\x01id\x01\x01\x01h\x011.5\x01 7\x011\x01o\x01TRUE\x01host\x01more\x02"
    short = "SubAfter\x01r\x01m\x015\x01true\x01\x010\x02SubAfter\x01r\x01m\x015\x01true\x02"
    bodies = [*(body.encode() for body in BODIES), odd.encode(), short.encode(), pub("ü\0", 1).encode() + b"\xff\x02"]
    contexts = job.split_records(frame(spark, bodies))
    expected = [record for body in bodies for record in decode_records(body.decode("utf-8", "replace"))]
    for kind in (Pub, SubBefore, SubAfter):
        found = sorted(tuple(one) for one in job.typed(contexts, kind).collect())
        of_kind = (record for record in expected if isinstance(record, kind))
        values = ([getattr(record, field.name) for field in kind.__attrs_attrs__] for record in of_kind)
        assert found == sorted(tuple("" if value is None else value for value in row) for row in values)


def test_the_command_reads_the_traces_of_clients(commands_use_session: None) -> None:
    with running_broker({"traceTopicEnable": "true"}) as broker:
        options = ProducerOptions(name_servers=broker.namesrv, send_timeout=10, trace=True)
        with Producer("makers", options) as producer:
            for number in range(20):
                producer.send(Message("Traced", b"%d" % number))
        wait_for_readers(broker.port)
        command = ["pipeline", "trace", "-n", broker.namesrv]
        found = CliRunner().invoke(cli, [*command, "--json"])
        assert found.exit_code == 0, found.stderr
        report = json.loads(found.stdout)
        assert report["totals"]["messages_sent"] == 20 == report["totals"]["not_consumed"]
        assert report["tables"]["sends"][0]["topic"] == "Traced"
        shown = CliRunner().invoke(cli, command)
        assert shown.exit_code == 0 and "checked: every message that was sent is counted once" in shown.stdout
    wrong = CliRunner().invoke(cli, ["pipeline", "trace"])
    assert wrong.exit_code == 2 and "name one input" in wrong.stderr
