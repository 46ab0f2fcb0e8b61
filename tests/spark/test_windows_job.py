"""The windows that a stream writes are those that a batch query counts, also over runs that follow each other."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import rocketpy.spark
from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.spark.jobs.windows import Windows
from tests.support.broker import RunningBroker, running_broker
from tests.support.readers import readable, wait_for_readers


def send(broker: RunningBroker, first: int, count: int) -> None:
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        bodies = [json.dumps({"amount": number}).encode() for number in range(first, first + count)]
        sent = [producer.send_soon(Message("Sales", body, tags=f"t{len(body) % 2}")) for body in bodies]
        readable([one.result() for one in sent])


def test_runs_follow_each_other(spark: Any, commands_use_session: None, tmp_path: Path) -> None:
    """Fault: `pipeline windows --check` said nothing when no message had been read."""
    with running_broker({"defaultTopicQueueNums": "2"}) as broker:
        command = ["pipeline", "windows", "-n", broker.namesrv, "-t", "Sales", "--window", "100 milliseconds"]
        command += ["--watermark", "0 seconds", "--sum", "$.amount", "--to-topic", "Results", "--check", "--json"]
        target = str(tmp_path / "target")
        first = run([*command, target], broker, 0, 300)
        second = run([*command, target], broker, 300, 200)
        assert (first["totals"]["messages"], second["totals"]["messages"]) == (300, 200)
        assert (first["totals"]["batches"], second["totals"]["batches"]) == (1, 1)
        # Windows of the first run are closed when the second run has seen later messages; the newest ones never are.
        assert first["totals"]["windows"] < second["totals"]["windows"]
        rows = second["tables"]["windows"]
        assert len(rows) == second["totals"]["windows"] and len(second["checks"]) == 2
        assert 300 <= sum(row["messages"] for row in rows) < 500
        wait_for_readers(broker.port)
        results = rocketpy.spark.read(spark, nameServer=broker.namesrv, topic="Results", columns="body").collect()
        sent = [json.loads(bytes(row.body)) for row in results]
        assert counts(sent) == counts(rows)
        third = run([*command, target], broker, 500, 0)  # reads nothing, and the table is compared all the same
        assert third["totals"]["messages"] == 0 and all(third["checks"].values()) and len(third["checks"]) == 2
        wrong = CliRunner().invoke(cli, [*command, "--by", "keys", target])
        assert wrong.exit_code == 2 and "name another target" in wrong.stderr


def counts(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["by"], row["messages"]) for row in rows)


def run(command: list[str], broker: RunningBroker, first: int, count: int) -> dict[str, Any]:
    """The report of a run after `count` more messages; they come later than those before, by more than a window."""
    send(broker, first, count)
    found = CliRunner().invoke(cli, command)
    assert found.exit_code == 0, found.output
    return dict(json.loads(found.stdout))


def test_no_amount_ends_the_query(spark: Any) -> None:
    """Fault: A body with a huge number ended `pipeline windows` at every start."""
    amounts = ["1.5", "1e300", "-1e300", '"text"', "null", "[1]", "1e31", "9" * 32, "9" * 32, "1e2"]
    bodies = [f'{{"amount":{amount}}}'.encode() for amount in amounts] + [b"\xff", b"{"]
    messages = spark.createDataFrame(
        [(body, "t", None, datetime.datetime(2026, 1, 1)) for body in bodies],
        "body binary, tags string, keys string, storeTimestamp timestamp",
    )
    (row,) = Windows("", "", amount="$.amount").aggregate(messages.where("body not like '%999%'")).collect()
    assert (row.messages, row.amount) == (10, Decimal("10000000000000000000000000000101.5"))
    (row,) = Windows("", "", amount="$.amount").aggregate(messages).collect()
    assert (row.messages, row.amount) == (12, None)  # the sum does not fit


def test_a_window_that_is_none(commands_use_session: None, tmp_path: Path) -> None:
    command = ["pipeline", "windows", "-n", "127.0.0.1:1", "-t", "T", "--window", "soon", str(tmp_path / "x")]
    found = CliRunner().invoke(cli, command)
    assert found.exit_code == 2 and "\nrocketpy: " in "\n" + found.stderr and "Traceback" not in found.stderr
