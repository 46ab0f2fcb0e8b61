"""`python -m bench.tls`: sends and pulls over TLS, of rocketpy and of the Java broker, in turn; and handshakes.

Both brokers have the same certificate (ECDSA P-256 or RSA 2048, made for the run) and serve TLS and plain connections
on one port. The load generator's own share of TLS costs both the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
import trustme

from rocketpy.bench.load import Load, Mode, Result, Workload
from rocketpy.bench.own_broker import HOST

from . import report
from .brokers import TARGETS, WARM_UP_S, Broker, running
from .scenarios import PRELOAD_MESSAGES, Bar
from .turn import preload

TOPIC, QUEUES = "bench_tls", 16
TLS_SETTINGS = "tls.server.mode", "tls.server.certPath", "tls.server.keyPath"


@attrs.frozen
class Question:
    name: str
    workload: Workload
    bar: Bar


QUESTIONS = (
    Question("send-1k-64x64-tls", Workload(Mode.SEND, 64, 64, 1024, is_tls=True), Bar("messages_per_s", 1.5)),
    Question("send-1k-64x1-tls", Workload(Mode.SEND, 64, 1, 1024, is_tls=True), Bar("messages_per_s", 1)),
    Question("pull-32x1k-16x4-tls", Workload(Mode.PULL, 16, 4, 1024, is_tls=True), Bar("messages_per_s", 1.2)),
)
HANDSHAKES = "handshakes"
HANDSHAKE_BAR = Bar("per_s", 1)
HANDSHAKE_THREADS = 4


def write_certificate(directory: Path, key_type: trustme.KeyType) -> tuple[Path, Path]:
    """Returns: the certificate chain, and its key in PKCS#8, both PEM."""
    issued = trustme.CA(key_type=key_type).issue_cert(HOST, key_type=key_type)
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(pkcs8(issued.private_key_pem.bytes()))
    return chain, key


def pkcs8(pem: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@contextlib.contextmanager
def tls_broker(target: str, chain: Path, key: Path) -> Iterator[Broker]:
    """Run a broker that serves TLS: Java has the settings as system properties."""
    settings = dict(zip(TLS_SETTINGS, ("permissive", str(chain), str(key)), strict=True))
    if target != "java":
        with running(target, settings=settings) as broker:
            yield broker
        return
    words = [*(f"-D{name}={value}" for name, value in settings.items()), "-Dtls.test.mode.enable=false"]
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(words)
    try:
        with running(target) as broker:
            yield broker
    finally:
        os.environ.pop("JAVA_TOOL_OPTIONS")
        if before is not None:
            os.environ["JAVA_TOOL_OPTIONS"] = before


def measure(broker: Broker, workload: Workload, offsets: list[int], seconds: float) -> Result:
    with Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES, offsets=offsets) as load:
        result = load.measure(seconds, warm_up_s=seconds / 4)
    broker.check_alive()
    return result


def handshakes_per_s(broker: Broker, seconds: float) -> float:
    """Complete handshakes of new connections, one after the other on each of HANDSHAKE_THREADS threads."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    done = [0] * HANDSHAKE_THREADS
    until_s = time.monotonic() + seconds

    def shake(index: int) -> None:
        while time.monotonic() < until_s:
            with socket.create_connection((HOST, broker.port)) as plain, context.wrap_socket(plain):
                done[index] += 1

    threads = [threading.Thread(target=shake, args=(index,)) for index in range(HANDSHAKE_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


def run_turn(target: str, chain: Path, key: Path, seconds: float) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with tls_broker(target, chain, key) as broker:
        broker.create_topic(TOPIC, QUEUES)
        measure(broker, QUESTIONS[0].workload, [0] * QUEUES, WARM_UP_S[target])
        offsets = preload(broker, TOPIC, PRELOAD_MESSAGES, 1024, lambda *_: None)
        for question in QUESTIONS:
            result = measure(broker, question.workload, offsets, seconds)
            figures = {"messages_per_s": result.messages_per_s, "p99_us": result.latency_us.p99}
            found[question.name] = figures | {f"error {name}": count for name, count in result.errors.items()}
        before_s = broker.cpu_s()
        per_s = handshakes_per_s(broker, seconds)
        found[HANDSHAKES] = {"per_s": per_s, "cpu_us": (broker.cpu_s() - before_s) * 1e6 / max(1, per_s * seconds)}
    return found


def rows(found: dict[tuple[str, str], list[dict[str, float]]]) -> Iterator[tuple[str, ...]]:
    bars = {question.name: question.bar for question in QUESTIONS} | {HANDSHAKES: HANDSHAKE_BAR}
    for name, bar in bars.items():
        ours, java = found["rocketpy", name], found["java", name]
        for metric in ours[0]:
            if metric.startswith("error"):
                continue
            values = [statistics.median(run.get(metric, 0.0) for run in runs) for runs in (ours, java)]
            ratio = values[0] / max(values[1], 1e-9)
            is_bar = metric == bar.metric
            verdict = ("holds" if bar.holds(ratio) else "missed") if is_bar else ""
            texts = (f"{values[0]:,.0f}", f"{values[1]:,.0f}", f"{ratio:.2f}")
            yield name, metric, *texts, str(bar) if is_bar else "", verdict


@click.command()
@click.option("--seconds", default=5.0, help="of each measurement")
@click.option("--repeat", default=3, help="turns of each broker")
@click.option("--rsa", is_flag=True, help="certificates with RSA keys of 2048 bits, else ECDSA P-256")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(seconds: float, repeat: int, rsa: bool, docs: Path | None) -> None:
    """Compare sends, pulls and handshakes over TLS, in turn."""
    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-tls-") as directory:
        key_type = trustme.KeyType.RSA if rsa else trustme.KeyType.ECDSA
        chain, key = write_certificate(Path(directory), key_type)
        for turn in range(repeat):
            for target in TARGETS if turn % 2 == 0 else TARGETS[::-1]:
                for name, figures in run_turn(target, chain, key, seconds).items():
                    found[target, name].append(figures)
                    click.echo(f"turn {turn + 1} {target} {name}: {figures}")
    headings = ("load", "metric", "rocketpy", "Java 4.9.7", "ratio", "bar", "")
    table = report.markdown_table(headings, rows(found))
    click.echo(table)
    if docs is not None:
        keys = "RSA 2048" if rsa else "ECDSA P-256"
        docs.write_text(
            f"""{report.page_head("TLS", "bench.tls")}
Certificates with {keys} keys. Both brokers serve plain and TLS connections on one port. The load generator shares the
cores, and does the other half of each cipher. Medians of {repeat} turns of {seconds:g} s. Load average before the run:
{load_average:.1f}. Handshakes are those of new connections, {HANDSHAKE_THREADS} at a time.

{table}
"""
        )


if __name__ == "__main__":
    main()
