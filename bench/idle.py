"""`python -m bench.idle`: what does a broker with everything on take while nobody uses it?

Everything: a name server beside it, TLS (permissive, certificates that are followed), accounts of both, timers, delays,
transactions, the port for slaves, cleaning, and metrics under all names that are scraped every 15 s as Prometheus does.
Messages with delay levels and timers and ends of transactions came before, and were delivered. CPU and wake-ups are
counted by process. `--strict`: a missed bar is a failure.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import click
import trustme

from rocketpy.bench import proc
from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST, free_ports

from . import report
from .brokers import ROOT, Broker, boot, work_directory
from .metrics import ALL_NAMES, PROMETHEUS_S, every, scraper
from .report import Row
from .tls import TLS_SETTINGS, write_certificate

TOPIC, QUEUES, MESSAGES = "bench_idle", 8, 200
SETTLE_S = 75.0  # the first minute after a start is another one: cleaning has not begun
ACCOUNTS = """globalWhiteRemoteAddresses: ["127.0.0.*"]
accounts:
- {accessKey: bench-broker, secretKey: bench-broker-secret, admin: true}
"""
CREDENTIALS = "accessKey: bench-broker\nsecretKey: bench-broker-secret\n"
USED = (
    Workload(Mode.SEND, 1, 8, 1024, requests_max=MESSAGES),
    Workload(Mode.SEND, 1, 8, 1024, requests_max=MESSAGES, in_transactions=True),
    Workload(Mode.SEND, 1, 8, 1024, requests_max=MESSAGES, properties={"DELAY": "1"}),
    Workload(Mode.SEND, 1, 8, 1024, requests_max=MESSAGES, properties={"TIMER_DELAY_MS": "1500"}),
)
CPU_BAR, PSS_BAR = 0.5, 60.0


@attrs.frozen
class Figures:
    """Of one process, or of all together."""

    cpu_percent: float  # of a core
    wakes_per_s: float
    pss_mib: float

    @property
    def cells(self) -> tuple[str, ...]:
        return f"{self.cpu_percent:.3f}", f"{self.wakes_per_s:.2f}", f"{self.pss_mib:.1f}"


def everything(directory: Path, metrics_port: int) -> dict[str, str]:
    """Write the files of accounts and certificates; return the settings of a broker that uses them."""
    chain, key = write_certificate(directory, trustme.KeyType.ECDSA)
    (directory / "conf").mkdir()
    (directory / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    credentials = directory / "credentials.yml"
    credentials.write_text(CREDENTIALS)
    credentials.chmod(0o600)
    return dict(zip(TLS_SETTINGS, ("permissive", str(chain), str(key)), strict=True)) | {
        "aclEnable": "true",
        "aclCredentialsFile": str(credentials),
        "rocketmqHome": str(directory),
        "metricsPort": str(metrics_port),
        "metricsNames": ALL_NAMES,
    }


def use(broker: Broker) -> None:
    """Send messages of each kind, and wait until they are delivered."""
    broker.create_topic(TOPIC, QUEUES)
    for workload in USED:
        with Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES) as load:
            load.run(10.0)
            load.drain()
            if (stored := load.stats().messages_ok) < MESSAGES:
                raise click.ClickException(
                    f"the broker stored {stored} of {MESSAGES} messages: {load.result(1.0, 0.0)}"
                )


def measure(broker: Broker, seconds: float) -> dict[str, Figures]:
    """Return the figures of each process, by its name."""
    processes = broker.process_names()
    before = {pid: (proc.own_cpu_s(pid), proc.wakes(pid)) for pid in processes}
    began_s = time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - began_s
    after = {pid: (proc.own_cpu_s(pid), proc.wakes(pid)) for pid in processes}
    broker.check_alive()
    if broker.process_names() != processes:
        raise click.ClickException("a process was replaced")
    pss_kib = proc.pss_kib_by_process(broker.roots, [broker.store])
    return {
        name: Figures(
            (after[pid][0] - before[pid][0]) / elapsed_s * 100,
            (after[pid][1] - before[pid][1]) / elapsed_s,
            pss_kib[pid] / 1024,
        )
        for pid, name in processes.items()
    }


def total(figures: Mapping[str, Figures]) -> Figures:
    return Figures(*(sum(getattr(one, field.name) for one in figures.values()) for field in attrs.fields(Figures)))


def bars(figures: Figures) -> Iterator[Row]:
    yield Row("idle broker with everything on", figures.cpu_percent, "% of a core", CPU_BAR)
    yield Row("the same: memory (PSS)", figures.pss_mib, "MiB", PSS_BAR)


def run(
    directory: Path, seconds: float, settle_s: float, windows: int, *, is_plain: bool, root: Path = ROOT
) -> dict[str, Figures]:
    """Return the medians of the windows, by process."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as home:
        broker = boot("rocketpy", directory, {} if is_plain else everything(Path(home), port), root)
        try:
            use(broker)
            if is_plain:
                time.sleep(settle_s)
                found = [measure(broker, seconds) for _ in range(windows)]
            else:
                with every(PROMETHEUS_S, scraper(port)):
                    time.sleep(settle_s)
                    found = [measure(broker, seconds) for _ in range(windows)]
        finally:
            broker.stop()
    return {
        name: Figures(
            *(statistics.median(getattr(one[name], field.name) for one in found) for field in attrs.fields(Figures))
        )
        for name in found[0]
    }


@click.command()
@click.option("--seconds", default=60.0, help="of each window")
@click.option("--windows", default=3, help="windows, of whose figures the medians are shown")
@click.option("--settle", default=SETTLE_S, help="seconds before them")
@click.option("--plain", is_flag=True, help="default settings, without scrapes")
@click.option("--checkout", type=click.Path(path_type=Path), default=ROOT, help="another one, after `make build`")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
@click.option("--strict", is_flag=True, help="fail if a bar is missed")
def main(
    seconds: float, windows: int, settle: float, checkout: Path, docs: Path | None, *, plain: bool, strict: bool
) -> None:
    """Measure an idle broker with everything on, and its name server."""
    with work_directory("rocketpy") as directory:
        figures = run(directory, seconds, settle, windows, is_plain=plain, root=checkout.resolve())
    whole = total(figures)
    rows = sorted(figures.items(), key=lambda item: -item[1].cpu_percent)
    table = report.markdown_table(
        ("process", "% of a core", "wake-ups per s", "PSS in MiB"),
        ((name, *one.cells) for name, one in [*rows, ("together", whole)]),
    )
    judged = list(bars(whole))
    against = report.markdown_table(("figure", "value", "bar", ""), (row.cells for row in judged))
    click.echo(f"{table}\n\n{against}")
    if docs is not None:
        docs.write_text(
            f"""{report.page_head("An idle broker", "bench.idle")}
Everything is on: TLS, accounts, timers, delays, transactions, the port for slaves, and metrics that are scraped every
{PROMETHEUS_S:g} s. Medians of {windows} windows of {seconds:g} s.

{against}

{table}
"""
        )
    if strict and not all(row.holds for row in judged):
        raise click.ClickException("a bar is missed")


if __name__ == "__main__":
    main()
