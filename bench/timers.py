"""`python -m bench.timers`: how many timers a second, how late, and what a million that wait cost at a restart.

**steady**: timers of 1 to 5 s are sent at a fixed rate over one connection. Lateness is store time minus due time.

**restart**: all processes of a broker with many pending timers are killed and started again. `boot_s` is from `exec` to
the first acknowledged send, `served_s` to the first delivery of a timer that became due meanwhile. Each timer must be
delivered once, and not early. Timers beyond `--due` wait for a day and must be pending at the end. `pss_mib` is the
memory of all processes before the kill, `timer_mib` the disk space of `timer/`, `store_mib` that of log and consume
queues.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import click

from rocketpy.bench.encoding import SEND_MESSAGE_V2
from rocketpy.bench.own_broker import HOST
from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.remoting.command import RemotingCommand

from . import report
from .brokers import Broker, boot, running, work_directory

TOPIC, QUEUES = "bench_timers", 4
BODY = b"t" * 100
TICK_S = 0.005
USUAL_PER_MS = 10  # timers that a broker accepts on a slow machine
NUMBER_MIN = 1_000_000_000  # so that all numbers have ten digits
WINDOW = 4000  # sends without an answer, when there is no rate
FAR_MS = 86_400_000
LATE_BAR_MS, SERVED_BAR_S = 20, 2.0
WARM_UP = 100
SETTLED_S = 3.0  # until the statistics of the broker are those of its timers
SETTINGS = {"mappedFileSizeCommitLog": str(256 << 20)}


class Frames:
    """Sends, made when they are asked for: millions would not fit the memory.

    Args:
        timer: the property. value: its value for message n; all have as many digits.
    """

    def __init__(self, timer: str, count: int, value: Callable[[int], int], first: int = NUMBER_MIN) -> None:
        fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
        fields |= {"i": f"{timer}\x01{value(0)}\x02", "j": "0", "k": "false", "m": "false"}
        command = RemotingCommand.request(SEND_MESSAGE_V2, ext_fields=fields, body=BODY + b"%d" % NUMBER_MIN)
        command.opaque = NUMBER_MIN
        digits = fields["i"][len(timer) + 1 : -1].encode()
        self._template = command.encode().replace(b'"e":"0"', b'"e":"%d"').replace(b"u0001" + digits, b"u0001%d")
        self._template = self._template.replace(b"%d" % NUMBER_MIN, b"%d")
        self.count, self._value, self._first = count, value, first

    def make(self, numbers: range) -> bytes:
        template, value, first = self._template, self._value, self._first
        return b"".join(
            template % (number % QUEUES, value(number), first + number, first + number) for number in numbers
        )


class Answers(threading.Thread):
    """Counts the answers of a connection, by code of success or not."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self.good = self.bad = 0

    def run(self) -> None:
        data = b""
        while piece := self._connection.recv(1 << 18):
            data += piece
            at = 0
            while len(data) - at >= 4:
                (size,) = struct.unpack_from(">I", data, at)
                if len(data) - at < 4 + size:
                    break
                is_good = b'"code":0,' in data[at : at + 4 + size]
                self.good += is_good
                self.bad += not is_good
                at += 4 + size
            data = data[at:]

    @property
    def count(self) -> int:
        return self.good + self.bad


def send_all(port: int, frames: Frames, rate: int | None) -> Answers:
    """Send at `rate` per second, or as fast as WINDOW allows; returns when all are answered."""
    connection = socket.create_connection((HOST, port))
    answers = Answers(connection)
    answers.start()
    started, sent = time.monotonic(), 0
    while sent < frames.count:
        if rate is None:
            upto = min(frames.count, answers.count + WINDOW)
        else:
            upto = min(frames.count, int((time.monotonic() - started) * rate))
        if upto > sent:
            connection.sendall(frames.make(range(sent, upto)))
            sent = upto
        else:
            time.sleep(TICK_S if rate else 0.0005)
    while answers.count < frames.count:
        time.sleep(TICK_S)
    connection.shutdown(socket.SHUT_RDWR)
    answers.join()
    connection.close()
    return answers


def records(store: Path) -> Iterator[StoredRecord]:
    """Yield the delivered messages, in the order of the log."""
    for path in sorted((store / "commitlog").iterdir()):
        for record in decode_records(path.read_bytes(), int(path.name)):
            if record.topic == TOPIC:
                yield record


@attrs.frozen
class Delivered:
    """The deliveries, as the log has them. Times are ms since 1970."""

    lateness_ms: list[int]  # sorted
    repeated: int
    first_store_ms: int

    @classmethod
    def of(cls, store: Path, from_ms: float) -> Delivered:
        """Read the messages that were stored at this time (ms) or later."""
        late, bodies, times = [], Counter[bytes](), []
        for record in records(store):
            if record.store_timestamp_ms < from_ms:
                continue
            due_ms = int(decode_properties(record.properties.decode())[TIMER_OUT_MS])
            late.append(record.store_timestamp_ms - due_ms)
            bodies[bytes(record.body)] += 1
            times.append(record.store_timestamp_ms)
        late.sort()
        repeated = sum(count - 1 for count in bodies.values())
        return cls(late, repeated, min(times, default=0))

    def percentile(self, share: float) -> int:
        return self.lateness_ms[min(len(self.lateness_ms) - 1, int(len(self.lateness_ms) * share))]


def wait_delivered(broker: Broker, count: int, timeout_s: float) -> None:
    """Wait until the topic has this many messages."""
    deadline = time.monotonic() + timeout_s
    with broker.control() as control:
        while sum(control.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES)) < count:
            broker.check_alive()
            if time.monotonic() > deadline:
                raise click.ClickException("timers are missing")
            time.sleep(0.1)


def warm_up(broker: Broker) -> None:
    """Send a few timers and wait for them. The first goes to the manager, which makes the topic of timers, and sends
    follow each other there while their connection has one on the way."""
    send_all(broker.port, Frames("TIMER_DELAY_MS", WARM_UP, lambda _: 10, 2 * NUMBER_MIN), None)
    wait_delivered(broker, WARM_UP, 10)


def steady(rate: int, seconds: float) -> dict[str, float]:
    """Accept and deliver at one rate: how late are timers?"""
    choose = random.Random(1)
    with running("rocketpy", settings=SETTINGS) as broker:
        broker.create_topic(TOPIC, QUEUES)
        warm_up(broker)
        frames = Frames("TIMER_DELAY_MS", int(rate * seconds), lambda _: choose.randint(1000, 5000))
        started_ms = time.time() * 1000
        cpu, started = broker.cpu_s(), time.monotonic()
        answers = send_all(broker.port, frames, rate)
        sending_s = time.monotonic() - started
        wait_delivered(broker, WARM_UP + answers.good, 60)
        cpu = broker.cpu_s() - cpu
        found = Delivered.of(broker.store, started_ms)
    return {
        "accepted_per_s": answers.good / sending_s,
        "refused": answers.bad,
        "delivered": len(found.lateness_ms),
        "repeated": found.repeated,
        "early": sum(late < 0 for late in found.lateness_ms),
        "late_p50_ms": found.percentile(0.5),
        "late_p99_ms": found.percentile(0.99),
        "late_p999_ms": found.percentile(0.999),
        "late_max_ms": found.lateness_ms[-1],
        "cpu_us_per_timer": cpu * 1e6 / max(1, answers.good),
    }


def blocks_mib(directory: Path) -> float:
    """Disk space of all files below; holes take none."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file()) / (1 << 20)


def still_pending(broker: Broker) -> int:
    """Return the number of pending timers, as the broker tells it."""
    with broker.control() as control:
        return int(control.runtime_info()["timerPending"])


def restart(pending: int, due: int, rate: int) -> dict[str, float]:
    """Kill the broker while timers wait; how soon does it go on, and is every one delivered once? The last `due` of
    them become due."""
    with work_directory("timers") as directory:
        broker = boot("rocketpy", directory, SETTINGS)
        try:
            broker.create_topic(TOPIC, QUEUES)
            warm_up(broker)
            started = time.monotonic()
            far_ms = int(time.time() * 1000) + FAR_MS
            far = Frames("TIMER_DELIVER_MS", pending - due, lambda number: far_ms + number % FAR_MS)
            accepted = send_all(broker.port, far, None).good
            per_ms = accepted / (time.monotonic() - started) / 1000 if accepted else USUAL_PER_MS
            # All are accepted before: one that is due already is delivered as a plain message.
            first_ms = int(time.time() * 1000 + 1.2 * due / per_ms) + 5000
            frames = Frames(
                "TIMER_DELIVER_MS", due, lambda number: first_ms + number * 1000 // rate, NUMBER_MIN + pending
            )
            answers = send_all(broker.port, frames, None)
            accepted_per_s = (accepted + answers.good) / (time.monotonic() - started)
            time.sleep(max(0.0, first_ms / 1000 - time.time() - 0.5))
            pss = broker.pss_mib()
            timer_mib, queues_mib = blocks_mib(broker.store / "timer"), blocks_mib(broker.store / "consumequeue")
            log_mib = blocks_mib(broker.store / "commitlog")
            broker.kill()
            exec_ms = time.time() * 1000
            broker = boot("rocketpy", directory, SETTINGS)
            wait_delivered(broker, WARM_UP + answers.good, due / rate + 60)
            time.sleep(SETTLED_S)
            left, pss_after = still_pending(broker), broker.pss_mib()
            found = Delivered.of(broker.store, exec_ms)
        finally:
            broker.stop()
        return {
            "pending": accepted + answers.good,
            "accepted_per_s": accepted_per_s,
            "pss_mib": pss,
            "timer_mib": timer_mib,
            "store_mib": log_mib + queues_mib,
            "boot_s": broker.boot_s,
            "served_s": (found.first_store_ms - exec_ms) / 1000,
            "pss_after_mib": pss_after,
            "delivered": len(found.lateness_ms),
            "lost": accepted + answers.good - len(found.lateness_ms) - left,
            "repeated": found.repeated,
            "early": sum(late < 0 for late in found.lateness_ms),
            "late_max_ms": found.lateness_ms[-1],
        }


def markdown(answers: dict[str, dict[str, float]], beside: str) -> str:
    rows = "\n".join(
        f"| {name} | {metric} | {value:,.2f} |".replace(".00 |", " |")
        for name, answer in answers.items()
        for metric, value in answer.items()
    )
    return f"""{report.page_head("Timers", "bench.timers")}

{(__doc__ or "").split(chr(10), 2)[2].strip()}
{f"{chr(10)}Beside it: {beside}.{chr(10)}" if beside else ""}
Bars: 20 000 timers a second accepted and delivered with `late_p99_ms` at most {LATE_BAR_MS}; a million pending survive
kill -9, and the broker serves them again within {SERVED_BAR_S:.0f} s.

| question | metric | value |
|---|---|---|
{rows}
"""


@click.command(help=__doc__)
@click.option("--rate", default=20_000, help="Timers per second.")
@click.option("--seconds", default=30.0, help="How long the steady part sends; 0: leave it out.")
@click.option("--pending", default=(1_000_000,), multiple=True, help="Timers that wait at a restart; 0: none.")
@click.option("--due", default=1_000_000, help="At most so many of these become due.")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
@click.option("--beside", default="", help="Other programs that ran meanwhile, for that page.")
@click.option("--strict", is_flag=True, help="A missed bar is a failure.")
def main(
    rate: int, seconds: float, pending: tuple[int, ...], due: int, docs: Path | None, beside: str, strict: bool
) -> None:
    answers = {"steady": steady(rate, seconds)} if seconds else {}
    for count in filter(None, pending):
        answers[f"restart {count}"] = restart(count, min(due, count), rate)
    click.echo(json.dumps(answers, indent=1))
    if docs:
        docs.write_text(markdown(answers, beside))
    steady_answer = answers.get("steady", {"late_p99_ms": 0.0, "accepted_per_s": float(rate)})
    is_good = steady_answer["late_p99_ms"] <= LATE_BAR_MS and steady_answer["accepted_per_s"] >= rate * 0.98
    is_good &= all(answer["repeated"] == answer["early"] == answer.get("lost", 0) == 0 for answer in answers.values())
    is_good &= all(answer.get("served_s", 0.0) <= SERVED_BAR_S for answer in answers.values())
    if strict and not is_good:
        raise SystemExit("a bar is missed")


if __name__ == "__main__":
    main()
