"""`python -m bench.filters`: pulls with a filter that one message in a hundred matches, of both brokers in turn.

Two questions. How many messages per second and core does a tag subscription pass over? How many per second does a SQL92
subscription, without and with filter bits?
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import attrs
import click

from rocketpy.bench.encoding import PRODUCER_GROUP, SEND_BATCH_MESSAGE, batch_entry, send_fields, unique_key_prefix
from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST
from rocketpy.client.consuming.subscription import Sql92, build_subscription
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData

from . import report
from .brokers import TARGETS, WARM_UP_S, Broker, running
from .control import Control

HEART_BEAT = 34
TOPIC, QUEUES = "bench_filters", 16
BATCH = 100  # messages of a batch, one of which matches
MATCHING = 93  # its number in the batch
TAG = "Wanted"
SQL = "region = 'region3' AND amount > 900"
CONNECTIONS, IN_FLIGHT = 4, 4  # together one pull for each queue
KNOWN_S = 1.5  # Java looks at the filter bits of messages that are stored later than the subscription
UNITS_BAR, RATIO_BAR = 5e6, 3.0
PLAIN = {"enablePropertyFilter": "true"}
WITH_BITS = PLAIN | {"enableCalcFilterBitMap": "true", "enableConsumeQueueExt": "true"}


@attrs.frozen
class Question:
    name: str
    group: str
    expression: str | Sql92
    settings: Mapping[str, str]

    @property
    def expression_type(self) -> str:
        return "SQL92" if isinstance(self.expression, Sql92) else "TAG"


QUESTIONS = (
    Question("tag", "bench_tags", TAG, PLAIN),
    Question("SQL92", "bench_sql", Sql92(SQL), PLAIN),
    Question("SQL92 with filter bits", "bench_sql", Sql92(SQL), WITH_BITS),
)


@attrs.frozen
class Figures:
    """Of one run. Units are messages passed over, with those found among them."""

    units_per_s: float
    units_per_core_s: float  # by the broker's CPU time
    found_per_s: float
    cpu_ns_per_unit: float
    p50_us: float
    p99_us: float
    driver_percent: float  # of a core: taken by the load itself
    errors: dict[str, int]


def message_properties(number: int, prefix: str) -> dict[str, str]:
    """Return the properties that a client sends. One number in a hundred has the tag and fits the expression."""
    return {
        "UNIQ_KEY": f"{prefix}{number:016X}",
        "TAGS": TAG if number % BATCH == MATCHING else f"Tag{number % 10}",
        "customer": f"customer-{number * 7919 % 10_000}",
        "region": f"region{number % 10}",
        "amount": str(number % BATCH // 10 * 100 + 50),
    }


def heartbeat(control: Control, questions: list[Question]) -> None:
    """Send the heartbeat of all groups, which keeps them online for two minutes."""
    consumers = [
        ConsumerData(
            group_name=question.group, subscription_data_set=[build_subscription(TOPIC, question.expression, 1)]
        )
        for question in questions
    ]
    control.check(HEART_BEAT, {}, HeartbeatData(client_id="bench@1", consumer_data_set=consumers).encode())


def preload(control: Control, messages: int) -> list[int]:
    """Batches of which one message matches, to the queues in turn; the queues' ends."""
    prefix = unique_key_prefix()
    for first in range(0, messages, BATCH):
        entries = []
        for number in range(first, first + BATCH):
            pairs = message_properties(number, prefix).items()
            entries.append(batch_entry(b"x" * 128, "".join(f"{name}\x01{value}\x02" for name, value in pairs)))
        queue_id = first // BATCH % QUEUES
        fields = send_fields(TOPIC, queue_id, "", born_timestamp_ms=int(time.time() * 1000), batch=True)
        control.check(SEND_BATCH_MESSAGE, fields | {"a": PRODUCER_GROUP}, b"".join(entries))
    return control.wait_for_offsets(TOPIC, QUEUES, messages)


def measure(broker: Broker, question: Question, ends: list[int], seconds: float) -> Figures:
    workload = Workload(
        Mode.FILTERED, CONNECTIONS, IN_FLIGHT, group=question.group, expression_type=question.expression_type
    )
    load = Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES, offsets=ends)
    with load:
        load.run(WARM_UP_S[broker.target])
        before_s = broker.cpu_s()
        result = load.measure(seconds)
        cpu_s = broker.cpu_s() - before_s
    broker.check_alive()
    if not 0.9 < result.messages * BATCH / max(1, result.units) < 1.1:
        raise click.ClickException(
            f"{broker.target}: {result.messages} of {result.units} messages matched: {result.errors}"
        )
    return Figures(
        round(result.units / result.seconds),
        round(result.units / cpu_s),
        round(result.messages_per_s),
        round(cpu_s * 1e9 / result.units, 1),
        result.latency_us.p50,
        result.latency_us.p99,
        round(result.driver_cpu_s / result.seconds * 100, 1),
        result.errors,
    )


def run_turn(target: str, settings: Mapping[str, str], messages: int, seconds: float) -> dict[str, Figures]:
    """Ask a fresh broker all questions that want these settings."""
    questions = [question for question in QUESTIONS if question.settings == settings]
    found = {}
    with running(target, settings=settings) as broker, broker.control() as control:
        broker.create_topic(TOPIC, QUEUES)
        heartbeat(control, questions)
        time.sleep(KNOWN_S)
        ends = preload(control, messages)
        for question in questions:
            heartbeat(control, questions)
            found[question.name] = measure(broker, question, ends, seconds)
    return found


def verdict(question: str, metric: str, ours: float, ratio: float) -> tuple[str, str]:
    """Return the bar of a metric, and `holds` or `missed`; empty texts: it has no bar."""
    if question == "tag" and metric == "units_per_core_s":
        return f"at least {UNITS_BAR:,.0f}", "holds" if ours >= UNITS_BAR else "missed"
    if question == "SQL92 with filter bits" and metric == "units_per_s":
        return f"ratio at least {RATIO_BAR:g}", "holds" if ratio >= RATIO_BAR else "missed"
    return "", ""


def rows(found: Mapping[tuple[str, str], list[Figures]]) -> list[tuple[str, ...]]:
    """Return the rows of the table. `found`: by target and question."""
    table: list[tuple[str, ...]] = []
    for question in QUESTIONS:
        for field in attrs.fields(Figures):
            if field.name == "errors":
                continue
            ours, java = (report.median_of(found[target, question.name], field.name) for target in TARGETS)
            ratio = ours / max(java, 1e-9)
            bar = verdict(question.name, field.name, ours, ratio)
            table.append((question.name, field.name, report.number(ours), report.number(java), f"{ratio:.2f}", *bar))
    return table


@click.command()
@click.option("--seconds", default=5.0, help="of each measurement")
@click.option("--repeat", default=3, help="turns of each broker")
@click.option("--messages", default=400_000, help="in the topic")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(seconds: float, repeat: int, messages: int, docs: Path | None) -> None:
    """Compare filtered pulls of both brokers, in turn."""
    found: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    load_average = os.getloadavg()[0]
    for turn in range(repeat):
        for target in TARGETS if turn % 2 == 0 else TARGETS[::-1]:
            for settings in (PLAIN, WITH_BITS):
                for name, figures in run_turn(target, settings, messages, seconds).items():
                    found[target, name].append(figures)
                    click.echo(f"turn {turn} {target} {name}: {figures}")
    table = rows(found)
    for line in table:
        click.echo(" | ".join(line))
    if docs is not None:
        write_page(docs, table, repeat, seconds, messages, load_average)


def write_page(
    path: Path, table: list[tuple[str, ...]], repeat: int, seconds: float, messages: int, load_average: float
) -> None:
    headings = ("filter", "metric", "rocketpy", "Java 4.9.7", "ratio", "bar", "")
    path.write_text(
        f"""{report.page_head("Filters", "bench.filters")}
The load generator shares the cores; Java has a heap of 1 GB. Load average before the run: {load_average:.1f}.

A topic of {QUEUES} queues has {messages:,} messages of 128 bytes. One in a hundred has the tag `{TAG}` and matches
`{SQL}`. {CONNECTIONS} connections read all queues repeatedly with their group's subscription, one pull for each queue
at a time. Units are messages passed over or found, by the offsets in the answers. Medians of {repeat} turns of
{seconds:g} s.

{report.markdown_table(headings, iter(table))}
"""
    )


if __name__ == "__main__":
    main()
