"""`python -m bench.access_control`: sends to rocketpy with access control and without, and to Java with it, in turn.

All three get the same signed requests, which rocketpy without access control takes as any others. They are signed once,
before the run: the load generator has no share in the cost.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST

from . import report
from .brokers import NO_SETTINGS, WARM_UP_S, WHITE, Broker, boot, work_directory

TOPIC, QUEUES = "bench_access", 16
ACCOUNT = "bench-account", "bench-account-secret"
OTHERS = 100  # accounts
WORKLOAD = Workload(Mode.SEND, 64, 64, 1024, account=ACCOUNT)


@attrs.frozen
class Candidate:
    """A broker, with or without access control."""

    name: str
    target: str
    is_guarded: bool


OURS = Candidate("rocketpy with", "rocketpy", True)
PLAIN = Candidate("rocketpy without", "rocketpy", False)
JAVA = Candidate("Java 4.9.7 with", "java", True)
BARS = ((PLAIN, 0.75), (JAVA, 4.0))  # the least ratio of the messages per second of OURS to theirs


def write_accounts(home: Path) -> None:
    """Write the account of the load, which may send to one topic, among others. Control connections are white."""
    (home / "conf").mkdir()
    accounts = [f"- {{accessKey: another-{number}, secretKey: secret-{number}}}" for number in range(OTHERS)]
    key, secret = ACCOUNT
    accounts.insert(OTHERS // 2, f"- {{accessKey: {key}, secretKey: {secret}, topicPerms: [{TOPIC}=PUB]}}")
    text = f'globalWhiteRemoteAddresses: ["{WHITE}"]\naccounts:\n' + "\n".join(accounts) + "\n"
    (home / "conf" / "plain_acl.yml").write_text(text)


@contextlib.contextmanager
def running(candidate: Candidate) -> Iterator[Broker]:
    """Run a fresh broker, stopped and removed at the end. Java finds the accounts by ROCKETMQ_HOME."""
    with work_directory(candidate.target) as directory:
        write_accounts(directory)
        settings = {"aclEnable": "true"} if candidate.is_guarded else dict(NO_SETTINGS)
        if settings and candidate.target == "rocketpy":
            settings["rocketmqHome"] = str(directory)
        broker = boot(candidate.target, directory, settings)
        try:
            yield broker
        finally:
            broker.stop()


def measure(broker: Broker, seconds: float) -> dict[str, float]:
    """Run the load once. Raises ConnectionError: nothing was acknowledged."""
    with Load(WORKLOAD, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES) as load:
        before_s = broker.cpu_s()
        result = load.measure(seconds, warm_up_s=seconds / 4)
        cpu_s = broker.cpu_s() - before_s
    broker.check_alive()
    if not result.messages:
        raise ConnectionError(f"{broker.target} acknowledged no message: {result.errors}")
    figures = {"messages_per_s": result.messages_per_s, "p99_us": result.latency_us.p99}
    figures["cpu_us_per_message"] = cpu_s * 1e6 / (result.messages * 1.25)
    return figures | {f"error {name}": count for name, count in result.errors.items()}


def is_guarded(broker: Broker) -> bool:
    """Return True if the broker refuses the load's requests once their signature is wrong."""
    wrong = attrs.evolve(WORKLOAD, account=(ACCOUNT[0], "wrong-secret"), connections=1, in_flight=1, requests_max=1)
    with Load(wrong, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES) as load:
        load.run(5.0)
        load.drain()
        return load.result(1.0, 0.0).messages == 0


def run_turn(candidate: Candidate, seconds: float) -> dict[str, float]:
    with running(candidate) as broker:
        broker.create_topic(TOPIC, QUEUES)
        if is_guarded(broker) is not candidate.is_guarded:
            raise AssertionError(
                f"{candidate.name}: it does not check signatures, or checks them without access control"
            )
        measure(broker, min(seconds, WARM_UP_S[candidate.target]))
        return measure(broker, seconds)


def rows(found: dict[str, list[dict[str, float]]]) -> Iterator[tuple[str, ...]]:
    for other, bar in BARS:
        for metric in ("messages_per_s", "p99_us", "cpu_us_per_message"):
            values = [statistics.median(run[metric] for run in found[one.name]) for one in (OURS, other)]
            ratio = values[0] / max(values[1], 1e-9)
            verdict = (f"≥ {bar:g}", "holds" if ratio >= bar else "missed") if metric == "messages_per_s" else ("", "")
            yield other.name, metric, f"{values[0]:,.0f}", f"{values[1]:,.0f}", f"{ratio:.2f}", *verdict


@click.command()
@click.option("--seconds", default=5.0, help="of each measurement")
@click.option("--repeat", default=3, help="turns of each broker")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(seconds: float, repeat: int, docs: Path | None) -> None:
    """Compare sends with access control, in turn."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    load_average = os.getloadavg()[0]
    candidates = (OURS, PLAIN, JAVA)
    for turn in range(repeat):
        for candidate in candidates if turn % 2 == 0 else candidates[::-1]:
            figures = run_turn(candidate, seconds)
            found[candidate.name].append(figures)
            click.echo(f"turn {turn + 1} {candidate.name}: {figures}")
    table = report.markdown_table(("other", "metric", OURS.name, "other", "ratio", "bar", ""), rows(found))
    click.echo(table)
    if docs is not None:
        docs.write_text(
            f"""{report.page_head("Access control", "bench.access_control")}
Sends of 1 KiB, 64 connections with 64 requests each, of one of {OTHERS + 1} accounts. All brokers get the same
requests, signed before the run. The load generator shares the cores. Medians of {repeat} turns of {seconds:g} s.
Load average before the run: {load_average:.1f}.

{table}
"""
        )


if __name__ == "__main__":
    main()
